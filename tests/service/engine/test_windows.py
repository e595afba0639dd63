"""Windows: in every period of the calendar, what is spent and held stays within the limit."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from service import reads
from service.domain.ledger import Account, Ledger, Limit
from service.domain.windows import bounds
from service.engine import prune
from service.engine.commands import CreateCampaign, Decide, Expire, Feedback, PatchCampaign
from service.engine.replay import replay
from service.problems import Conflict
from service.store import tables
from service.store.database import Database
from service.times import microseconds_of, moment_microseconds
from tests.service.databases import ClockedDatabase, campaigns_locked
from tests.service.engine.campaigns import accounts, config, rows, running

HOUR = 3_600_000_000
NOON = moment_microseconds("2027-03-27T12:00:00Z")


def resources(*windows, budget=1000, max_cost=1):
    return [
        {
            "id": "usd",
            "budget": budget,
            "max_cost": max_cost,
            "windows": [{"period": p, "limit": x} for p, x in windows],
        },
        {"id": "impressions", "budget": 100000, "max_cost": 1},
    ]


def played(database, play, *windows, at=NOON, **changes):
    """Creates a campaign with these windows at a time and runs `play(engine)`."""
    database.clock.micros = at

    async def main():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(**{"resources": resources(*windows)} | changes)))
            return await play(engine)

    return asyncio.run(main())


async def asked(engine, *ids, **options):
    """The bodies of decisions, asked for together."""
    answers = await engine.submit_together([Decide("c", one, [0.5, 0.5], **options) for one in ids])
    return [answer.body for answer in answers]


async def paid(engine, decision_id, usd, reward=1.0):
    answer = await engine.submit(Feedback("c", decision_id, reward=reward, costs={"usd": usd, "impressions": 1}))
    return answer.body


async def changed(engine, *windows, **others):
    declared = [{"period": period, "limit": limit} for period, limit in windows]
    try:
        return await engine.submit(PatchCampaign("c", {"resources": [{"id": "usd", "windows": declared} | others]}))
    except Conflict as problem:
        return problem


def windows(database):
    """Of every row, in order: period, hours since NOON at which it starts, limit, held and spent."""
    return sorted(
        (row["period"], (row["starts_at"] - NOON) / HOUR, row["granted"] / 1e6, row["held"] / 1e6, row["spent"] / 1e6)
        for row in rows(database, tables.window_account)
    )


def is_right(database):
    """Whether the accounts follow from the log, and every decision, too."""
    with database.read() as connection:
        report = reads.verify(connection, "c")
    assert [check for check in report["checks"] if not check["ok"]] == []
    return replay(database, 1, advanced=lambda done, todo: None).difference is None


def test_a_day_ends_when_its_limit_is_held_and_the_next_day_begins_anew(clocked_database):
    async def play(engine):
        first = await asked(engine, *(f"a{number}" for number in range(7)))
        clocked_database.clock.micros = NOON + 12 * HOUR
        return first, await asked(engine, "b")

    first, after = played(clocked_database, play, ("day", 5))
    assert [one["reason"] for one in first] == ["policy"] * 5 + ["window_exhausted"] * 2
    assert {one["probability"] for one in first[5:]} == {1.0}
    assert after[0]["reason"] == "policy"
    assert windows(clocked_database) == [("day", -12, 5, 5, 0), ("day", 12, 5, 1, 0)]
    assert is_right(clocked_database)


@pytest.mark.parametrize("rules", [4, 5])
@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_the_price_of_a_day_lasts_through_the_hours_without_money_and_older_campaigns_replay(
    clocked_database, monkeypatch, rules
):
    monkeypatch.setattr("service.engine.administer.RULES_VERSION", rules)

    async def play(engine):
        found = []
        for number in range(80):
            clocked_database.clock.micros += HOUR // 40
            (body,) = await asked(engine, f"{number}")
            found.append(body["reason"])
            if body["arm"] is not None:
                await paid(engine, body["decision_id"], 0.5)
        return found

    reasons = played(clocked_database, play, ("day", 4))
    prices = [np.frombuffer(row["prices"])[0] for row in rows(clocked_database, tables.decision)]
    last = reasons.index("window_exhausted")
    assert set(reasons[last:]) == {"window_exhausted"}
    assert prices[last] > 0.0
    # The price is the position times the mean value per round, which every round without a reward lowers.
    assert bool(prices[-1] == pytest.approx(prices[last] * last / 79, rel=1e-6)) is (rules == 5)
    assert is_right(clocked_database)


def test_what_becomes_of_a_decision_is_booked_in_its_own_period(clocked_database):
    clock = clocked_database.clock

    async def play(engine):
        await asked(engine, "paid", "void", "expired", "late", "above")
        clock.micros = NOON + HOUR  # the next hour has no decision yet
        await paid(engine, "paid", 0.25)
        await asked(engine, "next")
        await engine.submit(Feedback("c", "void", void=True))
        await paid(engine, "above", 1.5)
        clock.micros = NOON + HOUR + HOUR // 2
        await engine.submit(Expire())
        assert windows(clocked_database) == [("hour", 0, 5, 0, 3.75), ("hour", 1, 5, 1, 0)]
        assert (await paid(engine, "late", 0.125))["status"] == "late"

    played(clocked_database, play, ("hour", 5), at=NOON + 1)
    assert windows(clocked_database) == [("hour", 0, 5, 0, 2.875), ("hour", 1, 5, 1, 0)]
    assert accounts(clocked_database)[1:3] == (1_000_000, 2_875_000)
    assert is_right(clocked_database)


def test_a_cost_above_the_hold_overruns_the_window_and_blocks_the_rest_of_the_period(clocked_database):
    async def play(engine):
        await asked(engine, "a")
        await paid(engine, "a", 3)
        return await asked(engine, "b")

    assert played(clocked_database, play, ("day", 2))[0]["reason"] == "window_exhausted"
    (row,) = rows(clocked_database, tables.window_account)
    assert (row["spent"], row["overrun"]) == (3_000_000, 1_000_000)
    assert is_right(clocked_database)


def test_an_empty_budget_is_told_apart_from_an_empty_window(clocked_database):
    async def play(engine):
        first = await asked(engine, "a", "b")
        await paid(engine, "a", 1)
        return first + await asked(engine, "c") + await asked(engine, "d", exclude=["a", "b"])

    bodies = played(clocked_database, play, resources=resources(("day", 2), budget=2))
    assert [one["reason"] for one in bodies] == ["policy", "policy", "budget_exhausted", "all_excluded"]


def test_a_roll_over_is_a_change_of_the_log_with_its_bounds(clocked_database):
    async def play(engine):
        await asked(engine, "a")
        await asked(engine, "b")

    played(clocked_database, play, ("day", 5), ("month", 50), timezone="America/New_York")
    changes = rows(clocked_database, tables.change)
    assert [row["kind"] for row in changes] == ["window", "window"]
    day, month = (json.loads(row["body"]) for row in changes)
    assert day == {
        "resource": 0,
        "period": "day",
        "starts_at": moment_microseconds("2027-03-27T00:00:00-04:00"),
        "ends_at": moment_microseconds("2027-03-28T00:00:00-04:00"),
        "limit": 5_000_000,
    }
    assert (month["starts_at"], month["ends_at"]) == (
        moment_microseconds("2027-03-01T00:00:00-05:00"),
        moment_microseconds("2027-04-01T00:00:00-04:00"),
    )


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)  # SQLite serves one process
def test_two_replicas_roll_a_window_over_once(clocked_database, migrated_url):
    clock = clocked_database.clock

    async def main(other):
        async with running(clocked_database) as one, running(other) as two:
            await one.submit(CreateCampaign(config(resources=resources(("hour", 6)))))
            for hour in range(3):
                clock.micros = NOON + hour * HOUR
                asks = [(one, f"x{hour}{number}") for number in range(4)] + [(two, f"y{hour}{n}") for n in range(4)]
                bodies = await asyncio.gather(*(asked(engine, name) for engine, name in asks))
                reasons = sorted(body["reason"] for (body,) in bodies)
                assert reasons == ["policy"] * 6 + ["window_exhausted"] * 2

    clock.micros = NOON
    with ClockedDatabase.with_clock(migrated_url, clock) as other:
        asyncio.run(main(other))
    assert windows(clocked_database) == [("hour", hour, 6, 6, 0) for hour in range(3)]
    assert is_right(clocked_database)


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)  # SQLite serves one process
def test_a_replica_whose_clock_lags_behind_a_roll_over_holds_in_the_new_period_only(clocked_database, migrated_url):
    late = deepcopy(clocked_database.clock)

    async def main(other):
        async with running(clocked_database) as one, running(other) as two:
            await one.submit(CreateCampaign(config(resources=resources(("hour", 6)))))
            await asked(one, "a")
            clocked_database.clock.micros = NOON + HOUR
            await asked(one, "b")
            late.micros = NOON + HOUR - 20
            assert (await asked(two, "c", "d"))[0]["reason"] == "policy"

    clocked_database.clock.micros = late.micros = NOON
    with ClockedDatabase.with_clock(migrated_url, late) as other:
        asyncio.run(main(other))
    assert windows(clocked_database) == [("hour", 0, 6, 1, 0), ("hour", 1, 6, 3, 0)]
    assert is_right(clocked_database)


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)  # SQLite waits before it reads the clock
def test_a_decision_that_waits_for_its_lock_over_midnight_belongs_to_the_new_day(
    clocked_database, migrated_url, monkeypatch
):
    clock, before = clocked_database.clock, Database.wait_for_rows

    async def play(engine):
        await asked(engine, "a")
        with campaigns_locked(migrated_url) as other:
            clock.micros = NOON + 12 * HOUR - 20

            def wait(*args, **options):
                clock.micros += 20
                other.rollback()
                return before(*args, **options)

            monkeypatch.setattr(Database, "wait_for_rows", wait)
            await asked(engine, "b")

    played(clocked_database, play, ("day", 5))
    assert windows(clocked_database) == [("day", -12, 5, 1, 0), ("day", 12, 5, 1, 0)]
    assert is_right(clocked_database)


def test_a_campaign_outside_its_flight_begins_no_period(clocked_database):
    async def main():
        async with running(clocked_database) as engine:
            start = {"resources": resources(("hour", 6)), "starts_at": "2099-01-01T00:00:00Z"}
            await engine.submit(CreateCampaign(config(**start)))
            assert (await asked(engine, "a"))[0]["reason"] == "not_started"

    clocked_database.clock.micros = NOON
    asyncio.run(main())
    assert windows(clocked_database) == []


def test_limits_change_while_the_period_runs(clocked_database):
    async def play(engine):
        await asked(engine, "a", "b")
        await paid(engine, "a", 0.5)
        low = await changed(engine, ("day", 1.25))
        assert (low.status, low.kind) == (409, "window-below-spent")
        assert (await changed(engine, ("day", 1.5))).body["config"]["resources"][0]["budget"] == 1000
        assert (await asked(engine, "c"))[0]["reason"] == "window_exhausted"
        await changed(engine, ("day", 2.5))
        assert (await asked(engine, "d"))[0]["reason"] == "policy"

    played(clocked_database, play, ("day", 5))
    assert windows(clocked_database) == [("day", -12, 2.5, 2, 0.5)]
    assert is_right(clocked_database)


def test_a_window_that_is_added_counts_the_decisions_of_its_period_before(clocked_database):
    clock = clocked_database.clock

    async def play(engine):
        await asked(engine, "yesterday")
        clock.micros = NOON + 13 * HOUR
        await asked(engine, "a", "b", "c")
        await paid(engine, "a", 0.5)
        assert (await changed(engine, ("day", 2.25))).kind == "window-below-spent"
        await changed(engine, ("day", 3), ("week", 5))
        assert (await asked(engine, "d"))[0]["reason"] == "window_exhausted"
        await paid(engine, "b", 0.25)
        await paid(engine, "yesterday", 0.75)
        assert (await asked(engine, "d"))[0]["reason"] == "window_exhausted"
        await engine.submit(Feedback("c", "c", void=True))
        assert (await asked(engine, "e"))[0]["reason"] == "policy"

    played(clocked_database, play)
    assert windows(clocked_database) == [("day", 12, 3, 1, 0.75), ("week", -132, 5, 1, 1.5)]
    assert is_right(clocked_database)


def test_a_window_that_is_removed_binds_no_longer_and_may_return(clocked_database):
    async def play(engine):
        await asked(engine, "a", "b")
        await changed(engine)
        assert rows(clocked_database, tables.window_account) == []
        assert (await asked(engine, "c"))[0]["reason"] == "policy"
        await changed(engine, ("day", 4))
        await paid(engine, "a", 0.5)

    played(clocked_database, play, ("day", 2))
    assert windows(clocked_database) == [("day", -12, 4, 2, 0.5)]
    assert is_right(clocked_database)


@pytest.mark.parametrize("column", ["granted", "held", "spent"])
def test_verify_sees_a_damaged_window(clocked_database, column):
    async def play(engine):
        await asked(engine, "a", "b")
        await paid(engine, "a", 0.5)

    played(clocked_database, play, ("day", 5))
    table = tables.window_account
    with clocked_database.write() as connection:
        connection.execute(update(table).values({column: table.c[column] + 1}))
    with clocked_database.read() as connection:
        report = reads.verify(connection, "c")
    assert [check["name"] for check in report["checks"] if not check["ok"]] == [
        f"{column} of usd in the day from 2027-03-27T00:00:00Z"
    ]


def test_pruning_keeps_the_sums_of_windows_and_replay_goes_on_from_there(clocked_database):
    clock = clocked_database.clock

    async def play(engine):
        for number in range(8):
            await asked(engine, f"a{number}", f"b{number}")
            await paid(engine, f"a{number}", 0.25)
            await paid(engine, f"b{number}", 0.5)
            clock.micros += 2 * HOUR
        await asked(engine, "open")

    played(clocked_database, play, ("day", 8), ("hour", 2), feedback={"late_window_seconds": 0})
    before = windows(clocked_database)
    found = prune.prunable(clocked_database, 1, clock.micros - 5 * HOUR)
    gone = prune.prune(clocked_database, found, actor="test", advanced=lambda step, done, todo: None)
    assert gone[0] > 8
    assert windows(clocked_database) == before
    assert is_right(clocked_database)

    async def more():
        async with running(clocked_database) as engine:
            await asked(engine, "x", "y")
            answer = await changed(engine, ("day", 8), ("hour", 2), ("week", 100))
            assert answer.kind == "window-pruned"

    asyncio.run(more())
    assert is_right(clocked_database)


UTC_DAYS = st.datetimes(datetime(2020, 1, 1), datetime(2037, 12, 31)).map(lambda at: at.replace(tzinfo=UTC))
ZONES = sorted(available_timezones() - {"localtime"})


@given(at=UTC_DAYS, zone=st.sampled_from(ZONES), period=st.sampled_from(["hour", "day", "week", "month"]))
@settings(max_examples=300, deadline=None)
def test_periods_follow_one_another_without_gap_and_contain_their_time(at, zone, period):
    here = ZoneInfo(zone)
    now = microseconds_of(at)
    start, end = bounds(period, now, here)
    assert start <= now < end
    assert bounds(period, start, here) == bounds(period, end - 1, here) == (start, end)
    assert bounds(period, end, here)[0] == end
    assert start % (900 * 1_000_000) == 0


@pytest.mark.parametrize(
    ("period", "at", "zone", "hours"),
    [
        ("day", "2027-03-28T12:00:00+02:00", "Europe/Berlin", 23),
        ("day", "2027-10-31T12:00:00+01:00", "Europe/Berlin", 25),
        ("day", "2027-10-31T12:00:00+01:00", "UTC", 24),
        ("week", "2027-03-28T12:00:00+02:00", "Europe/Berlin", 167),
        ("month", "2028-02-29T23:30:00-05:00", "America/New_York", 29 * 24),
        ("month", "2027-11-30T23:30:00-05:00", "America/New_York", 30 * 24 + 1),
        ("month", "2027-12-31T23:59:59Z", "UTC", 31 * 24),
        ("hour", "2027-10-31T02:30:00+02:00", "Europe/Berlin", 1),
        ("hour", "2027-10-31T02:30:00+01:00", "Europe/Berlin", 1),
        ("hour", "2027-03-27T12:10:00+05:30", "Asia/Kolkata", 1),
        ("hour", "2027-04-04T01:45:00+10:30", "Australia/Lord_Howe", 1.5),
        ("day", "2026-09-06T12:00:00-03:00", "America/Santiago", 23),
    ],
)
def test_days_of_a_change_of_the_clocks_have_23_or_25_hours(period, at, zone, hours):
    start, end = bounds(period, moment_microseconds(at), ZoneInfo(zone))
    assert (end - start) / HOUR == hours
    if period == "week":
        assert datetime.fromtimestamp(start // 1_000_000, ZoneInfo(zone)).weekday() == 0


@st.composite
def movements(draw):
    """What may happen to a ledger with a limit, in any order."""
    kinds = st.sampled_from(["hold", "settle", "void", "above", "late", "roll"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 9)), max_size=60))


@given(steps=movements(), granted=st.integers(10, 60), limit=st.integers(5, 20))
@settings(max_examples=200, deadline=None)
def test_holds_never_exceed_a_limit_and_every_period_has_the_sums_of_its_decisions(steps, granted, limit):
    ledger, now, open_holds, done, sums = Ledger([Account(granted)]), 0, [], [], {}
    for kind, amount in [("roll", 0), *steps]:
        if kind == "roll":
            now += 10
            ledger.earlier = [*ledger.earlier, *ledger.limits]
            ledger.limits = [Limit(0, "day", now, now + 10, Account(limit))]
            sums[now] = [0, 0]
        elif kind == "hold":
            if amount <= ledger.free()[0]:
                ledger.hold([amount])
                open_holds.append((now, amount))
                sums[now][0] += amount
                assert sum(sums[now]) <= limit or not amount
        elif kind == "late" and done:
            at, was = done.pop()
            ledger.book(decided_at=at, spent=[amount - was], reported=True)
            sums[at][1] += amount - was
        elif open_holds:
            at, held = open_holds.pop(amount % len(open_holds))
            cost = {"settle": held // 2, "void": 0, "above": held + amount}.get(kind, 0)
            ledger.book(decided_at=at, held=[-held], spent=[cost], reported=True)
            sums[at] = [sums[at][0] - held, sums[at][1] + cost]
            done.append((at, cost))
        found = {each.starts_at: each.account for each in (*ledger.limits, *ledger.earlier)}
        assert {at: [account.held, account.spent] for at, account in found.items()} == sums
        assert all(account.overrun == max(0, account.held + account.spent - limit) for account in found.values())
        (whole,) = ledger.accounts
        assert [whole.held, whole.spent] == [sum(column) for column in zip(*sums.values(), strict=True)]


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_day_limit_lasts_beyond_noon_though_the_budget_would_pay_for_all(clocked_database):
    """Traffic by day and little at night; the limit pays for a quarter of the decisions of a day."""
    clock, spent_by_noon = clocked_database.clock, []

    async def play(engine):
        for hour in range(4 * 24):
            clock.micros = midnight + hour * HOUR
            for number in range(30 if 6 <= hour % 24 < 22 else 4):
                clock.micros += HOUR // 40
                (body,) = await asked(engine, f"{hour}:{number}")
                if body["arm"] is not None:
                    worth = 0.2 + 0.8 * ((hour * 7 + number * 13) % 10) / 10
                    await paid(engine, body["decision_id"], 0.5, reward=worth)
            if hour % 24 == 11:
                day = max(rows(clocked_database, tables.window_account), key=lambda row: row["starts_at"])
                spent_by_noon.append(day["spent"] / day["granted"])

    midnight = NOON + 12 * HOUR
    terms = resources(("day", 60), budget=1_000_000)
    played(clocked_database, play, at=midnight, resources=terms, horizon=100_000)
    # Two fifths of a day's decisions come before noon; the price of a busy day is found within two days.
    assert max(spent_by_noon) < 1.0
    assert max(spent_by_noon[2:]) < 0.6
    assert min(row["spent"] / row["granted"] for row in rows(clocked_database, tables.window_account)) > 0.8
    assert is_right(clocked_database)
