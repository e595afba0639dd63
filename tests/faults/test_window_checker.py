"""The checker of windows finds each kind of violation: a sound log, damaged in one place at a time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.faults.books import Account, Books, ChangeRow, DecisionRow, GrantRow, OutcomeRow, WindowRow
from tests.faults.history import Operation
from tests.faults.window_checker import window_findings

ONE = 1_000_000
DAY = 86_400 * ONE
MONDAY, TUESDAY = 4 * DAY, 5 * DAY  # 5 and 6 January 1970
EVENING, MORNING = MONDAY + DAY - ONE, TUESDAY + ONE


def config(limit=2, **changes):
    windows = [{"period": "day", "limit": limit}]
    return {
        "arms": [{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.5}}],
        "resources": [{"id": "usd", "budget": 4, "max_cost": 1, "windows": windows}],
        "timezone": "UTC",
    } | changes


def decided(sequence, at, hold=ONE, **changes):
    row = DecisionRow(sequence, f"d{sequence}", sequence, "a", "policy", 0.5, (hold,), at, at)
    return replace(row, **changes)


def null(sequence, at, reason):
    return replace(decided(sequence, at), arm=None, hold=None, reason=reason, probability=1.0)


def became(sequence, decision, cost, at, kind="reported", **changes):
    row = OutcomeRow(sequence, decision, kind, "settled", 1.0, (cost,), (cost,), True, True, 1, (), at)
    return replace(row, **changes)


def day(start, granted, held, spent, overrun=0):
    return WindowRow(0, "day", start, start + DAY, Account(granted, held, spent, overrun))


def books(**changes):
    """On Monday two decisions hold the day's limit of 2 and a third gets nothing; on Tuesday one more is held, the
    first costs 0.25 more than its hold, the limit is set to 1, and a fifth request finds it used up."""
    one = Books(
        campaign="c",
        resources=("usd",),
        sequence=10,
        round=6,
        accounts=(Account(4 * ONE, 2 * ONE, 1_250_000, 0),),
        decisions=(
            decided(2, EVENING),
            decided(3, EVENING),
            null(4, EVENING, "window_exhausted"),
            decided(6, MORNING),
            null(9, MORNING, "window_exhausted"),
        ),
        outcomes=(became(7, 2, 1_250_000, MORNING),),
        grants=(GrantRow(1, 0, "budget", 4 * ONE),),
        changes=(ChangeRow(5, "window", "{}", MORNING), ChangeRow(8, "patch", "{}", MORNING)),
        holds={3: (ONE,), 6: (ONE,)},
        config_version=2,
        configs={1: json.dumps(config()), 2: json.dumps(config(1))},
        windows=(day(MONDAY, 2 * ONE, ONE, 1_250_000, 250_000), day(TUESDAY, ONE, ONE, 0)),
    )
    return replace(one, **changes)


REQUESTED = [Operation("c", f"d{number}", {}, None) for number in range(12)]
COSTS = {2: (1_250_000,)}


def kinds(one, costs=COSTS, requested=REQUESTED):
    return {finding.kind for finding in window_findings(one, costs, requested)}


def with_row(table, place, **columns):
    rows = list(getattr(books(), table))
    rows[place] = replace(rows[place], **columns)
    return books(**{table: tuple(rows)})


def test_sound_periods_have_no_findings():
    assert list(window_findings(books(), COSTS, REQUESTED)) == []


@pytest.mark.parametrize(
    ("damaged", "kind"),
    [
        # Costs of the first decision in the day of the report, and the fourth decision in the day before its own.
        (books(windows=(day(MONDAY, 2 * ONE, ONE, 0), day(TUESDAY, ONE, ONE, 1_250_000, 1_250_000))), "windows"),
        (books(windows=(day(MONDAY, 2 * ONE, 2 * ONE, 1_250_000, 1_250_000), day(TUESDAY, ONE, 0, 0))), "windows"),
        (books(windows=books().windows[:1]), "windows"),
        (books(windows=(*books().windows, day(TUESDAY + DAY, ONE, 1, 0))), "windows"),
        (books(windows=(*books().windows, books().windows[1])), "windows"),
        (with_row("windows", 1, starts_at=TUESDAY - 1), "windows"),
        (with_row("windows", 1, ends_at=TUESDAY + DAY - 3_600 * ONE), "windows"),
        (with_row("windows", 1, account=Account(2 * ONE, ONE, 0, 0)), "windows"),
        (with_row("decisions", 3, at=EVENING), "over window"),
        (with_row("decisions", 2, arm="b", hold=(500_000,)), "over window"),
        (books(configs={1: json.dumps(config()), 2: json.dumps(config(0.5))}), "over window"),
        (with_row("outcomes", 0, kind="expired"), "over window"),
        (with_row("decisions", 2, reason="budget_exhausted"), "exhausted"),
        (with_row("decisions", 2, reason="policy"), "exhausted"),
        (with_row("decisions", 2, at=MORNING), "exhausted"),
        (with_row("grants", 0, amount=2 * ONE), "exhausted"),
    ],
)
def test_a_period_that_the_log_contradicts_is_found(damaged, kind):
    assert kind in kinds(damaged)


@pytest.mark.parametrize("reason", ["policy", "holdout"])
def test_a_null_where_an_arm_can_be_paid_is_found_if_null_is_the_last_resort(reason):
    for changes, found in (({}, set()), ({"null_arm": "last_resort", "floor_arm": "b"}, {"exhausted"})):
        configs = {1: json.dumps(config(3, **changes)), 2: json.dumps(config(1, **changes))}
        rows = [*books().decisions[:2], null(4, EVENING, reason), *books().decisions[3:]]
        windows = (day(MONDAY, 3 * ONE, ONE, 1_250_000), day(TUESDAY, ONE, ONE, 0))
        assert kinds(books(decisions=tuple(rows), configs=configs, windows=windows)) == found


def test_an_overrun_that_no_client_reported_is_found():
    assert "over window" in kinds(books(), costs={2: (1_000_000,)})


def test_a_request_that_may_cost_less_is_not_exhausted():
    cheap = [Operation("c", "d9", {"max_costs": {"b": {"usd": 0}}}, None)]
    assert kinds(books(), requested=cheap) == {"exhausted"}


def test_a_period_may_begin_with_a_request_that_is_refused():
    assert kinds(books(windows=(*books().windows, day(TUESDAY + DAY, ONE, 0, 0)))) == set()


def test_a_window_that_is_removed_has_no_periods_and_one_that_is_added_counts_what_was_before():
    plain = config(resources=[{"id": "usd", "budget": 4, "max_cost": 1}])
    removed = books(configs={1: json.dumps(config()), 2: json.dumps(plain)}, decisions=books().decisions[:4])
    assert kinds(removed) == {"windows"}
    assert kinds(replace(removed, windows=())) == set()
    added = books(
        configs={1: json.dumps(plain), 2: json.dumps(config(1))},
        decisions=tuple(row for row in books().decisions if row.sequence != 4),
        windows=(day(TUESDAY, ONE, ONE, 0),),
    )
    assert kinds(added) == set()
