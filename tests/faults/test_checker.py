"""The checker finds each kind of violation: a sound history and sound books, damaged in one place at a time."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.books import Account, Books, ChangeRow, DecisionRow, GrantRow, OutcomeRow
from tests.faults.checker import findings
from tests.faults.history import Call, History

BUDGET = 3_000_000
WARNED = ("cost_above_hold",)


def decided(sequence, place, hold=(1_000_000,), arm="a"):
    return DecisionRow(sequence, f"d{place}", place, arm, "policy", 0.5, hold, sequence + 100, sequence)


def became(sequence, decision, kind="reported", status="settled", reward=1.0, costs=(250_000,), **changes):
    row = OutcomeRow(sequence, decision, kind, status, reward, costs, costs, True, True, 1, (), sequence)
    return replace(row, **changes)


def books():
    """A budget of 3: one decision settled at 0.25, one expired and corrected to 1.5 against a hold of 1, one held."""
    return Books(
        campaign="c",
        resources=("usd",),
        sequence=7,
        round=3,
        accounts=(Account(BUDGET, 1_000_000, 1_750_000, 0),),
        decisions=(decided(2, 0), decided(3, 1), decided(6, 2)),
        outcomes=(
            became(4, 2),
            became(5, 3, "expired", "expired", 0.0, (1_000_000,), policy_version=2),
            became(
                7, 3, "late", "late", None, (1_500_000,), spent=(500_000,), released=False, taught=False,
                policy_version=2, warnings=("late_not_learnt",),
            ),
        ),
        grants=(GrantRow(1, 0, "budget", BUDGET),),
        changes=(),
        holds={6: (1_000_000,)},
    )  # fmt: skip


def call(path, body, answer=None, status=200, *, replayed=False):
    text = json.dumps(answer).encode() if answer is not None else None
    return Call(path, {"campaign_id": "c", **body}, 0.0, 1.0, status if text else None, text, replayed)


def decide_call(place, **answer):
    body = {"reason": "policy", "arm": "a", "round": place, "probability": 0.5, "hold": {"usd": 1.0}} | answer
    return call("/decide", {"decision_id": f"d{place}", "context": [0.5]}, body)


def report_call(place, costs, reward, **answer):
    body = {"status": "settled", "learned": True, "policy_version": 1, "warnings": []} | answer
    halves = {"costs": {"usd": costs}} | ({"reward": reward} if reward is not None else {})
    return call("/feedback", {"decision_id": f"d{place}", **halves}, body)


LATE = {"status": "late", "learned": False, "policy_version": 2, "warnings": ["late_not_learnt"]}


def history(*more):
    reports = [report_call(0, 0.25, 1.0), report_call(1, 1.5, None, **LATE)]
    return History([decide_call(0), decide_call(1), decide_call(2), *reports, *more])


def kinds(one, other):
    return set(Counter(finding.kind for finding in findings(one, {"c": other})))


def with_rows(spoilt, **changes):
    """Return the books with some rows of a table replaced."""
    table, place, row = changes["table"], changes["place"], changes["row"]
    rows = list(getattr(spoilt, table))
    rows[place] = replace(rows[place], **row)
    return replace(spoilt, **{table: tuple(rows)})


def test_a_sound_history_with_sound_books_has_no_findings():
    assert findings(history(), {"c": books()}) == []


def test_an_unanswered_request_that_was_answered_later_is_sound():
    lost = decide_call(2)
    lost.status = lost.answer = None
    again = decide_call(2)
    again.replayed = True
    one = history(again)
    one.calls[2] = lost
    assert findings(one, {"c": books()}) == []


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (history(decide_call(9)), "lost"),
        (history(decide_call(2, arm="b")), "lost"),
        (history(decide_call(2, hold={"usd": 0.999999})), "lost"),
        (history(report_call(2, 0.5, 1.0, policy_version=3)), "lost"),
        (history(call("/decide", {"decision_id": "d7", "context": [0.5]})), "unclear"),
        (history(call("/decide", {"decision_id": "d7", "context": [0.5]}, {"detail": "away"}, 503)), "unclear"),
        (history(decide_call(2, probability=0.6)), "unclear"),
        (history(call("/decide", {"decision_id": "d2", "context": [0.5]}, {"detail": "why?"}, 500)), "failed"),
        (history(decide_call(2)), "duplicated"),
        (History([decide_call(0), decide_call(1), *history().calls[3:]]), "unasked"),
        (History(history().calls[:4]), "unasked"),
    ],
)
def test_a_history_that_contradicts_the_books_is_found(one, kind):
    assert kind in kinds(one, books())


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"table": "decisions", "place": 2, "row": {"decision_id": "d1"}}, "duplicated"),
        ({"table": "decisions", "place": 2, "row": {"decision_id": "d9"}}, "unasked"),
        ({"table": "decisions", "place": 2, "row": {"decision_id": "d9"}}, "lost"),
        ({"table": "decisions", "place": 2, "row": {"round": 3}}, "numbering"),
        ({"table": "decisions", "place": 2, "row": {"at": 1}}, "numbering"),
        ({"table": "outcomes", "place": 0, "row": {"sequence": 5}}, "numbering"),
        ({"table": "outcomes", "place": 0, "row": {"spent": (250_001,)}}, "accounts"),
        ({"table": "outcomes", "place": 0, "row": {"released": False}}, "accounts"),
        ({"table": "outcomes", "place": 0, "row": {"costs": (250_001,), "spent": (250_001,)}}, "unasked"),
        ({"table": "outcomes", "place": 0, "row": {"status": "late"}}, "states"),
        ({"table": "outcomes", "place": 2, "row": {"released": True}}, "duplicated"),
        ({"table": "outcomes", "place": 2, "row": {"taught": True}}, "duplicated"),
        ({"table": "outcomes", "place": 2, "row": {"decision": 6}}, "states"),
        ({"table": "outcomes", "place": 2, "row": {"decision": 99}}, "unasked"),
        ({"table": "grants", "place": 0, "row": {"amount": BUDGET - 1}}, "accounts"),
        ({"table": "grants", "place": 0, "row": {"amount": 1_500_000}}, "over budget"),
        ({"table": "accounts", "place": 0, "row": {"held": 0}}, "accounts"),
        ({"table": "accounts", "place": 0, "row": {"overrun": 1}}, "accounts"),
    ],
)
def test_books_that_are_damaged_in_one_place_are_found(changes, kind):
    assert kind in kinds(history(), with_rows(books(), **changes))


def test_a_missing_hold_and_a_superfluous_hold_are_found():
    assert "accounts" in kinds(history(), replace(books(), holds={}))
    assert "accounts" in kinds(history(), replace(books(), holds={6: (1_000_000,), 2: (1_000_000,)}))


def test_a_change_without_its_own_number_is_found():
    assert "numbering" in kinds(history(), replace(books(), changes=(ChangeRow(7, "pause", "{}"),)))


def overrun(cost, reported):
    """A budget of 1 that is held and then charged with a higher cost, of which the client reported `reported`."""
    other = Books(
        campaign="c",
        resources=("usd",),
        sequence=3,
        round=1,
        accounts=(Account(1_000_000, 0, cost, cost - 1_000_000),),
        decisions=(decided(2, 0),),
        outcomes=(became(3, 2, costs=(cost,), warnings=WARNED),),
        grants=(GrantRow(1, 0, "budget", 1_000_000),),
        changes=(),
        holds={},
    )
    return kinds(History([decide_call(0), report_call(0, reported, 1.0, warnings=list(WARNED))]), other)


def test_an_overrun_needs_a_reported_excess_that_explains_it_to_the_millionth():
    assert overrun(1_400_000, 1.4) == set()
    assert "over budget" in overrun(1_400_001, 1.4)


@pytest.mark.parametrize(("kind", "found"), [("adjust", set()), ("budget", {"over budget"})])
def test_an_overrun_by_an_adjustment_is_sound_and_one_by_a_lower_budget_is_not(kind, found):
    amount = 1_500_000 if kind == "adjust" else -1_500_000
    account = Account(1_000_000 + min(amount, 0) + 1_000_000, 0, max(amount, 0) + 1_000_000, 500_000)
    other = Books(
        campaign="c",
        resources=("usd",),
        sequence=4,
        round=1,
        accounts=(account,),
        decisions=(decided(2, 0),),
        outcomes=(became(3, 2, costs=(1_000_000,)),),
        grants=(GrantRow(1, 0, "budget", 2_000_000), GrantRow(4, 0, kind, amount)),
        changes=(),
        holds={},
    )
    assert kinds(History([decide_call(0), report_call(0, 1.0, 1.0)]), other) == found


def test_a_batch_that_was_answered_while_the_campaign_was_paused_may_be_answered_otherwise_later():
    paused = {"reason": "paused", "arm": None, "round": 3, "probability": 1.0, "hold": {}}
    body = {"items": [{"decision_id": "d2", "context": [0.5]}]}
    decided = decide_call(2).json
    one = history(*(call("/decide/batch", body, {"decisions": [answer]}) for answer in (paused, decided)))
    assert findings(one, {"c": books()}) == []


def test_an_overrun_by_expiry_is_found():
    late = became(3, 2, "expired", "expired", None, (1_000_001,))
    other = Books(
        campaign="c",
        resources=("usd",),
        sequence=3,
        round=1,
        accounts=(Account(1_000_000, 0, 1_000_001, 1),),
        decisions=(decided(2, 0),),
        outcomes=(late,),
        grants=(GrantRow(1, 0, "budget", 1_000_000),),
        changes=(),
        holds={},
    )
    assert kinds(History([decide_call(0)]), other) == {"over budget"}


def test_a_hold_above_the_free_amount_is_found_even_if_it_is_released_later():
    other = Books(
        campaign="c",
        resources=("usd",),
        sequence=3,
        round=1,
        accounts=(Account(999_999, 0, 0, 0),),
        decisions=(decided(2, 0),),
        outcomes=(became(3, 2, "void", "voided", None, None, spent=None, taught=False),),
        grants=(GrantRow(1, 0, "budget", 999_999),),
        changes=(),
        holds={},
    )
    body = {"status": "voided", "learned": False, "policy_version": 1, "warnings": []}
    void = call("/feedback", {"decision_id": "d0", "void": True}, body)
    assert kinds(History([decide_call(0), void]), other) == {"over budget"}


def test_a_missing_campaign_is_found():
    assert {finding.kind for finding in findings(history(), {})} == {"lost"}
