"""Rows that contradict a configuration or a change are found: sound books, damaged in one place at a time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.faults.admin_client import AdminCall, admin_findings
from tests.faults.books import Account, Books, ChangeRow, DecisionRow, GrantRow, OutcomeRow
from tests.faults.config_checker import config_findings, holdout_findings, shadow_findings
from tests.faults.history import Call, History, Operation

ENDS_AT, BEFORE_END, AFTER_END = "2026-01-01T00:00:00Z", 1_767_225_599_000_000, 1_767_225_600_000_000
PATCH = {"resources": [{"id": "usd", "budget": 3}], "retire_arms": ["b"], "feedback": {"missing_cost": "none"}}
ADJUST = {"resource": "usd", "amount": 0.5, "reason": "correction 1"}


def config(**changes):
    return {
        "arms": [{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.5}}],
        "resources": [{"id": "usd", "max_cost": 1}],
        "horizon": None,
        "ends_at": ENDS_AT,
        "feedback": {"missing_cost": "hold"},
        "holdout": None,
    } | changes


def decided(sequence, place, arm="a", hold=1_000_000, **changes):
    row = DecisionRow(sequence, f"d{place}", place, arm, "policy", 0.5, (hold,), 0, BEFORE_END)
    return replace(row, **changes)


def expired(sequence, decision, cost):
    costs = (cost,)
    return OutcomeRow(sequence, decision, "expired", "expired", 0.0, costs, costs, True, True, 1, (), BEFORE_END)


def books(**changes):
    """Two decisions, one of which expires; a PATCH retires arm b and charges nothing; a pause; the other expires."""
    retired = config(
        arms=[{"id": "a"}, {"id": "b", "retired": True}], horizon=4, ends_at=None, feedback={"missing_cost": "none"}
    )
    one = Books(
        campaign="c",
        resources=("usd",),
        sequence=10,
        round=3,
        accounts=(Account(3_000_000, 1_000_000, 1_000_000, 0),),
        decisions=(decided(2, 0), decided(3, 1, "b", 500_000), decided(9, 2, config_version=2)),
        outcomes=(expired(4, 3, 500_000), expired(8, 2, 0)),
        grants=(GrantRow(1, 0, "budget", 3_000_000), GrantRow(10, 0, "adjust", 500_000, "correction 1")),
        changes=(ChangeRow(5, "patch", json.dumps(PATCH)), ChangeRow(6, "pause", "{}"), ChangeRow(7, "resume", "{}")),
        holds={9: (1_000_000,)},
        config_version=2,
        configs={1: json.dumps(config()), 2: json.dumps(retired)},
    )
    return replace(one, **changes)


def with_row(table, place, **columns):
    rows = list(getattr(books(), table))
    rows[place] = replace(rows[place], **columns)
    return books(**{table: tuple(rows)})


def test_sound_books_follow_their_configurations():
    assert list(config_findings(books())) == []


@pytest.mark.parametrize(
    "damaged",
    [
        with_row("decisions", 2, config_version=1),
        with_row("decisions", 2, arm="b", hold=(500_000,)),
        with_row("decisions", 2, round=4),
        with_row("decisions", 1, at=AFTER_END),
        with_row("decisions", 1, hold=(1_000_000,)),
        with_row("decisions", 0, arm="z"),
        with_row("changes", 2, kind="archive"),
        with_row("changes", 2, kind="patch"),
        with_row("outcomes", 0, costs=(0,)),
        with_row("outcomes", 1, costs=(1_000_000,)),
        books(config_version=1),
    ],
)
def test_a_row_that_its_configuration_or_status_does_not_allow_is_found(damaged):
    assert {finding.kind for finding in config_findings(damaged)} == {"configuration"}


def drawn(held_out, by_policy, **columns):
    terms = {"fraction": 0.2, "arm": "a"}
    rows = [decided(place, place, reason="holdout") for place in range(held_out)]
    rows += [decided(place, place, "b") for place in range(held_out, held_out + by_policy)]
    rows[0] = replace(rows[0], **columns)
    return books(decisions=tuple(rows), configs={1: json.dumps(config(holdout=terms))})


def test_a_share_of_the_holdout_near_the_declared_one_is_sound():
    assert list(holdout_findings(drawn(200, 800))) == []
    assert list(holdout_findings(books())) == []


@pytest.mark.parametrize(
    "damaged",
    [drawn(300, 700), drawn(100, 900), drawn(200, 800, arm="b"), drawn(200, 800, probability=0.1),
     drawn(200, 800, arm="b", reason="policy", probability=0.9)],
)  # fmt: skip
def test_another_share_another_arm_and_an_impossible_probability_of_the_holdout_are_found(damaged):
    assert {finding.kind for finding in holdout_findings(damaged)} == {"hold-out"}


def test_a_holdout_may_decide_less_where_null_is_the_last_resort_and_never_more_nor_null():
    terms = {"null_arm": "last_resort", "floor_arm": "b", "holdout": {"fraction": 0.2, "arm": "a"}}
    configs = {1: json.dumps(config(**terms))}
    assert list(holdout_findings(replace(drawn(50, 950), configs=configs))) == []
    alone = drawn(50, 950, reason="policy", arm="b", probability=1.0)
    assert list(holdout_findings(replace(alone, configs=configs))) == []
    for damaged in (drawn(300, 700), drawn(50, 950, arm=None), drawn(50, 950, probability=0.1)):
        assert list(holdout_findings(replace(damaged, configs=configs)))


def test_a_holdout_that_was_not_declared_is_found():
    assert list(holdout_findings(with_row("decisions", 0, reason="holdout")))


@pytest.mark.parametrize(
    ("answer", "mode", "found"),
    [
        ({"arm": "a", "reason": "shadow"}, "shadow", 0),
        ({"arm": "b", "reason": "shadow"}, "shadow", 1),
        ({"arm": None, "reason": "shadow"}, "shadow", 1),
        ({"arm": None, "reason": "budget_exhausted"}, "shadow", 0),
        ({"arm": None, "reason": "window_exhausted"}, "shadow", 0),
        ({"arm": None, "reason": "all_excluded"}, "shadow", 1),
        ({"arm": None, "reason": "paused"}, "shadow", 0),
        ({"arm": "a", "reason": "policy"}, "shadow", 1),
        ({"arm": "a", "reason": "shadow"}, "live", 1),
    ],
)
def test_a_shadow_answer_other_than_the_baseline_is_found(answer, mode, found):
    one = books(configs={1: json.dumps(config(mode=mode)), 2: json.dumps(config())})
    assert len(list(shadow_findings(one, [Operation("c", "d0", {"baseline_arm": "a"}, answer)]))) == found


def test_the_holdout_of_each_version_is_compared_with_its_own_terms():
    terms = {1: {"fraction": 0.2, "arm": "a"}, 2: None}
    configs = {version: json.dumps(config(holdout=one)) for version, one in terms.items()}
    rows = drawn(200, 800).decisions
    ended = tuple(replace(row, config_version=2, reason="policy") for row in rows)
    assert list(holdout_findings(books(decisions=rows + ended, configs=configs))) == []
    late = tuple(replace(row, config_version=2) for row in rows)
    assert list(holdout_findings(books(decisions=late, configs=configs)))


def test_the_max_costs_of_a_request_are_its_hold():
    operation = Operation("c", "d0", {"max_cost": {"usd": 0.25}}, None)
    assert list(config_findings(books(), [operation]))
    assert list(config_findings(with_row("decisions", 0, hold=(250_000,)), [operation])) == [
        finding for finding in config_findings(books(), [operation]) if "number 2" not in finding.what
    ]


def answered(path, body, sent_at, answer, status=200):
    return Call(path, body, sent_at, sent_at + 1, status, json.dumps(answer).encode())


def changes(**statuses):
    patch = answered("/campaigns/c", PATCH, 10, {"version": 2}, statuses.get("patch", 200))
    account = {"spent": 1.0, "overrun": 0.0}
    adjust = answered("/admin/campaigns/c/adjust", ADJUST, 12, account, statuses.get("adjust", 200))
    pause, resume = (answered(f"/campaigns/c/{name}", {}, at, {}) for name, at in (("pause", 20), ("resume", 30)))
    return [AdminCall("c", patch, "PATCH"), *(AdminCall("c", one) for one in (adjust, pause, resume))]


def admin_kinds(calls, found, *decisions):
    return {finding.kind for finding in admin_findings(calls, History(list(decisions)), {"c": found})}


def decision(sent_at, reason="policy", arm="a"):
    return answered("/decide", {"campaign_id": "c"}, sent_at, {"reason": reason, "arm": arm})


def test_changes_that_are_logged_as_they_were_answered_are_sound():
    sound = [
        decision(9, arm="b"),
        decision(10.5, arm="b"),
        decision(20.5),
        decision(22, "paused", None),
        decision(29.5),
    ]
    assert admin_kinds(changes(), books(), *sound) == set()


@pytest.mark.parametrize(
    ("calls", "found", "kind"),
    [
        (changes(), with_row("changes", 0, body="{}"), "lost"),
        (changes(), with_row("changes", 0, body="{}"), "unasked"),
        (changes(), books(changes=(ChangeRow(5, "estimate", "{}"), ChangeRow(6, "patch", json.dumps(PATCH)))), "lost"),
        (changes(), with_row("changes", 1, kind="patch", body=json.dumps(PATCH)), "duplicated"),
        (changes(), with_row("grants", 1, reason="correction 2"), "lost"),
        (changes(), with_row("grants", 1, amount=400_000), "accounts"),
        (changes(patch=409), books(), "unasked"),
        (changes(adjust=422), books(), "unasked"),
        (changes(adjust=500), books(), "failed"),
    ],
)
def test_a_change_that_is_lost_duplicated_or_booked_otherwise_is_found(calls, found, kind):
    assert kind in admin_kinds(calls, found)


def arm_changes(*statuses):
    """Changes of arm a at 40, 50, …; each is answered a second later."""
    return [
        AdminCall("c", answered("/campaigns/c", {"arms": [{"id": "a", "status": one}]}, at, {"version": 2}), "PATCH")
        for at, one in zip(range(40, 100, 10), statuses, strict=False)
    ]


@pytest.mark.parametrize(("sent_at", "found"), [(39, set()), (42, {"stale"}), (58, {"stale"}), (59.5, set())])
def test_an_arm_that_is_answered_between_its_pause_and_its_return_is_found(sent_at, found):
    calls = arm_changes("paused", "paused", "active")
    assert {one.kind for one in admin_findings(calls, History([decision(sent_at)]), {})} == found


@pytest.mark.parametrize("late", [decision(11.5, arm="b"), decision(22)])
def test_a_decision_that_does_not_know_an_acknowledged_change_is_found(late):
    assert admin_kinds(changes(), books(), late) == {"stale"}
