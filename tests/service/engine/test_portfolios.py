"""Portfolios: campaigns that share budgets never spend more together, and the log alone derives every decision."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import numpy as np
import pytest
from sqlalchemy import text, update

from service import reads
from service.domain.portfolio import Call
from service.engine import prune
from service.engine.commands import (
    Adjust,
    CreateCampaign,
    CreatePortfolio,
    Decide,
    Expire,
    Feedback,
    PatchCampaign,
    PatchPortfolio,
    SetStatus,
)
from service.engine.replay import replay
from service.problems import Conflict, Invalid, NotFound
from service.store import tables
from service.store.database import Database
from service.times import moment_microseconds
from tests.service.engine.campaigns import config, rows, running

HOUR = 3_600_000_000
NOON = moment_microseconds("2027-03-27T12:00:00Z")


def portfolio(budget=10, *windows, name="acme"):
    declared = [{"period": period, "limit": limit} for period, limit in windows]
    return {"id": name, "resources": [{"id": "usd", "budget": budget, "windows": declared}], "timezone": "UTC"}


def shared(name, **changes):
    return config(name, **{"budget": 100, "portfolio": "acme"} | changes)


def played(database, play, *windows, budget=10, campaigns=("c", "d"), at=NOON, **changes):
    """Creates a portfolio with some campaigns at a time and runs `play(engine)`."""
    database.clock.micros = at

    async def main():
        async with running(database) as engine:
            await engine.submit(CreatePortfolio(portfolio(budget, *windows)))
            for name in campaigns:
                await engine.submit(CreateCampaign(shared(name, **changes)))
            return await play(engine)

    return asyncio.run(main())


async def asked(engine, *decisions):
    """The bodies of decisions of (campaign, id), asked for together."""
    commands = [Decide(campaign, one, [0.5, 0.5]) for campaign, one in decisions]
    return [answer.body for answer in await engine.submit_together(commands)]


async def paid(engine, campaign, decision_id, usd, reward=1.0):
    costs = {"usd": usd, "impressions": 1}
    return (await engine.submit(Feedback(campaign, decision_id, reward=reward, costs=costs))).body


def of_portfolio(database):
    """Granted, held, spent, overrun of the portfolio's money."""
    (number,) = [row["number"] for row in rows(database, tables.campaign) if row["id"] == "portfolio/acme"]
    (row,) = [row for row in rows(database, tables.account) if row["campaign"] == number]
    return tuple(row[name] / 1e6 for name in ("granted", "held", "spent", "overrun"))


def check(database, *, prune_first=False):
    """The portfolio and every campaign verify, and every campaign replays."""
    with database.read() as connection:
        found = reads.verify_portfolio(connection, "acme")
        assert found["ok"], [each for each in found["checks"] if not each["ok"]]
        members = reads.portfolio(connection, "acme")["campaigns"]
        for name in members:
            verified = reads.verify(connection, name)
            assert verified["ok"], [each for each in verified["checks"] if not each["ok"]]
    for row in rows(database, tables.campaign):
        if row["id"] in members:
            replayed = replay(database, row["number"], advanced=lambda done, of: None)
            assert replayed.difference is None, replayed.difference
    return found


def test_two_campaigns_never_hold_more_than_the_portfolio_has(clocked_database):
    async def play(engine):
        together = await asked(engine, *((name, f"{name}{n}") for n in range(4) for name in ("c", "d")))
        later = await asked(engine, ("c", "late"), ("d", "later"))
        return together + later

    bodies = played(clocked_database, play, budget=5)
    assert [body["arm"] is not None for body in bodies].count(True) == 5
    assert {body["reason"] for body in bodies if body["arm"] is None} == {"window_exhausted"}
    assert of_portfolio(clocked_database) == (5, 5, 0, 0)
    check(clocked_database)


def test_all_that_becomes_of_a_decision_is_booked_in_both(clocked_database):
    clock = clocked_database.clock

    async def play(engine):
        await asked(engine, *((name, f"{name}{n}") for name in ("c", "d") for n in range(4)))
        found = [of_portfolio(clocked_database)]
        await paid(engine, "c", "c0", 0.25)
        found.append(of_portfolio(clocked_database))
        await engine.submit(Feedback("d", "d0", void=True))
        found.append(of_portfolio(clocked_database))
        await paid(engine, "d", "d1", 5.5)  # more than was held, and more than the portfolio has
        found.append(of_portfolio(clocked_database))
        await engine.submit(Adjust("d", "usd", -1.5, "billed twice"))
        found.append(of_portfolio(clocked_database))
        clock.micros += HOUR
        await engine.submit(Expire())
        found.append(of_portfolio(clocked_database))
        await paid(engine, "c", "c1", 0.5)  # late
        await paid(engine, "d", "d0", 0.125)  # void before
        found.append(of_portfolio(clocked_database))
        return found

    found = played(clocked_database, play, budget=10)
    assert found == [
        (10, 8, 0, 0),
        (10, 7, 0.25, 0),
        (10, 6, 0.25, 0),
        (10, 5, 5.75, 0.75),
        (10, 5, 4.25, 0),
        (10, 0, 9.25, 0),
        (10, 0, 8.875, 0),
    ]
    check(clocked_database)


def test_a_campaign_with_its_own_shortage_is_budget_exhausted(clocked_database):
    async def play(engine):
        await engine.submit(CreateCampaign(shared("poor", budget=1)))
        first, second = await asked(engine, ("poor", "x"), ("poor", "y"))
        await engine.submit(PatchCampaign("poor", {"resources": [{"id": "usd", "budget": 50}]}))
        (third,) = await asked(engine, ("poor", "z"))
        return [first["reason"], second["reason"], third["reason"]]

    assert played(clocked_database, play, budget=2) == ["policy", "budget_exhausted", "policy"]
    assert of_portfolio(clocked_database) == (2, 2, 0, 0)
    check(clocked_database)


def test_the_windows_of_a_portfolio_bound_every_period_of_all_its_campaigns(clocked_database):
    clock = clocked_database.clock

    async def play(engine):
        first = await asked(engine, ("c", "c0"), ("d", "d0"), ("c", "c1"), ("d", "d1"))
        clock.micros += HOUR
        second = await asked(engine, ("d", "d2"), ("c", "c2"), ("d", "d3"), ("d", "d4"))
        await paid(engine, first[0]["campaign_id"], first[0]["decision_id"], 0.5)
        return [[body["reason"] for body in bodies] for bodies in (first, second)]

    first, second = played(
        clocked_database, play, ("hour", 3), ("day", 5), budget=100, feedback={"ttl_seconds": 36_000}
    )
    assert sorted(first) == ["policy"] * 3 + ["window_exhausted"]
    assert sorted(second) == ["policy"] * 2 + ["window_exhausted"] * 2
    found = sorted((row["period"], row["held"], row["spent"]) for row in rows(clocked_database, tables.window_account))
    assert found == [("day", 4_000_000, 500_000), ("hour", 2_000_000, 0), ("hour", 2_000_000, 500_000)]
    names = {each["name"].split(" from ")[0] for each in check(clocked_database)["checks"]}
    assert {"spent of usd in the day", "held of usd in the hour"} <= names
    with clocked_database.read() as connection:
        (usd,) = reads.portfolio_budget(connection, "acme")["resources"]
    assert [(window["period"], window["limit"]) for window in usd["windows"]] == [("hour", 3), ("day", 5)]


def test_budgets_and_windows_change_but_not_below_what_is_spent_and_held(clocked_database):
    async def changed(engine, **change):
        try:
            return (await engine.submit(PatchPortfolio("acme", {"resources": [{"id": "usd", **change}]}))).body
        except (Conflict, NotFound) as problem:
            return problem.kind

    async def play(engine):
        await asked(engine, *((name, f"{name}{n}") for name in ("c", "d") for n in range(3)))
        below = await changed(engine, budget=5)
        tight = await changed(engine, windows=[{"period": "day", "limit": 5}])
        added = await changed(engine, budget=7, windows=[{"period": "day", "limit": 7}])
        (seventh, eighth) = await asked(engine, ("c", "x"), ("d", "y"))
        gone = await changed(engine, windows=[], budget=20)
        unknown = [await changed(engine, id="eur", budget=1), gone["version"], added["version"]]
        return (
            below,
            tight,
            unknown,
            seventh["reason"],
            eighth["reason"],
            (await asked(engine, ("d", "z")))[0]["reason"],
        )

    below, tight, unknown, *reasons = played(clocked_database, play)
    assert (below, tight) == ("budget-below-spent", "window-below-spent")
    assert unknown == ["unknown-resource", 3, 2]
    assert reasons == ["policy", "window_exhausted", "policy"]
    assert of_portfolio(clocked_database) == (20, 8, 0, 0)
    check(clocked_database)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"portfolio": "nobody"}, "must exist"),
        ({"resources": [{"id": "eur", "budget": 5, "max_cost": 1}]}, "must have a resource"),
        ({"max_cost": 11, "budget": 1000}, "must have a budget"),
    ],
)
def test_a_campaign_that_the_portfolio_cannot_serve_is_refused(database, changes, message):
    async def play():
        async with running(database) as engine:
            await engine.submit(CreatePortfolio(portfolio()))
            with pytest.raises(Invalid) as refused:
                await engine.submit(CreateCampaign(shared("c", **changes)))
            (error,) = refused.value.extensions["errors"]
            return error

    error = asyncio.run(play())
    assert error["field"] == "portfolio"
    assert error["message"].startswith(message)
    assert [row["id"] for row in rows(database, tables.campaign)] == ["portfolio/acme"]


def test_a_process_that_starts_again_goes_on_where_the_last_one_stopped(clocked_database):
    async def begin(engine):
        return await asked(engine, *((name, f"{name}{n}") for name in ("c", "d") for n in range(2)))

    async def go_on():
        async with running(clocked_database) as engine:
            clocked_database.clock.micros += 2 * HOUR
            await engine.submit(Expire())  # it does not know the campaigns yet
            return await asked(engine, ("d", "d8"), ("c", "c8"))

    played(clocked_database, begin, ("day", 4), budget=9)
    last = asyncio.run(go_on())
    assert [body["reason"] for body in last] == ["window_exhausted"] * 2
    assert of_portfolio(clocked_database) == (9, 0, 4, 0)
    check(clocked_database)


def history(database, rounds=60, seed=3):
    """Two campaigns of a portfolio with outcomes of every kind, in batches; "c" earns twice as much as "d"."""
    rng = np.random.default_rng(seed)

    async def play(engine):
        opened = []
        for step in range(rounds):
            names = [("c", "d")[rng.integers(2)] for _ in range(rng.integers(1, 5))]
            bodies = await asked(engine, *((name, f"{name}-{step}-{at}") for at, name in enumerate(names)))
            opened += [(body["campaign_id"], body["decision_id"]) for body in bodies if body["arm"] is not None]
            rng.shuffle(opened)
            for campaign, decision in opened[: rng.integers(0, 4)]:
                if rng.random() < 0.1:
                    await engine.submit(Feedback(campaign, decision, void=True))
                else:
                    reward = rng.random() * (1.0 if campaign == "c" else 0.5)
                    await paid(engine, campaign, decision, round(0.2 + 0.6 * rng.random(), 6), reward)
            del opened[:3]
            if step == rounds // 2:
                await engine.submit(SetStatus("d", "pause"))
                await engine.submit(PatchCampaign("c", {"horizon": 800}))
            if step == rounds // 2 + 5:
                await engine.submit(SetStatus("d", "resume"))
                await engine.submit(PatchPortfolio("acme", {"resources": [{"id": "usd", "budget": 45}]}))
            database.clock.micros += HOUR // 20
            await engine.submit(Expire())

    changes = {"horizon": 100, "feedback": {"ttl_seconds": 900}}
    played(database, play, ("hour", 9), budget=40, **changes)


def test_every_log_replays_alone_and_the_prices_follow_from_the_order_of_the_calls(clocked_database):
    history(clocked_database)
    found = check(clocked_database)
    assert len(rows(clocked_database, tables.portfolio_call)) > 60
    assert {"calls", "calls that do not follow from the one before", "prices after the last call"} <= {
        each["name"] for each in found["checks"]
    }
    calls = [Call.read(row["call"], row["numbers"]) for row in rows(clocked_database, tables.portfolio_call)]
    assert any((call.state.prices > 0).any() for call in calls), "the shared budget becomes scarce"


def test_pruning_keeps_the_accounts_of_the_portfolio(clocked_database):
    history(clocked_database, rounds=30)
    clocked_database.clock.micros += 24 * 30 * HOUR

    async def expired():
        async with running(clocked_database) as engine:
            return await engine.submit(Expire())

    asyncio.run(expired())
    before = of_portfolio(clocked_database)
    for row in rows(clocked_database, tables.campaign):
        if row["portfolio"] is not None:
            wanted = prune.prunable(clocked_database, row["number"], NOON + HOUR)
            decisions, _ = prune.prune(clocked_database, wanted, actor="test", advanced=lambda step, done, of: None)
            assert decisions > 5
    assert of_portfolio(clocked_database) == before
    check(clocked_database)


def test_a_portfolio_whose_newest_call_was_pruned_verifies_and_goes_on(clocked_database):
    async def begin(engine):
        await asked(engine, *(("c", f"c{n}") for n in range(3)))
        await asked(engine, ("d", "d0"))
        await asked(engine, *(("c", f"c{n}") for n in range(3, 6)))
        for n in range(6):
            await engine.submit(Feedback("c", f"c{n}", reward=1.0, costs={"usd": 0.5}))

    async def go_on():
        async with running(clocked_database) as engine:
            await asked(engine, ("d", "d1"), ("c", "c6"))

    played(clocked_database, begin)
    (number,) = [row["number"] for row in rows(clocked_database, tables.campaign) if row["id"] == "c"]
    for _ in range(2):
        clocked_database.clock.micros += 24 * HOUR
        wanted = prune.prunable(clocked_database, number, clocked_database.clock.micros)
        assert prune.prune(clocked_database, wanted, actor="test", advanced=lambda step, done, of: None)[0]
        check(clocked_database)
        asyncio.run(go_on())
        check(clocked_database)


DAMAGE = {
    "held of usd": "UPDATE account SET held = held + 1 WHERE campaign = {portfolio}",
    "spent of usd": "UPDATE account SET spent = spent - 1 WHERE campaign = {portfolio}",
    "granted of usd": "UPDATE account SET granted = granted + 1 WHERE campaign = {portfolio}",
    "spent of usd in the hour": "UPDATE window_account SET spent = spent + 1 WHERE campaign = {portfolio}",
    "calls": "DELETE FROM portfolio_call WHERE call = 7",
    "calls that do not follow from the one before": "UPDATE portfolio_call SET numbers = (SELECT numbers FROM"
    " portfolio_call WHERE call = 5) WHERE call = 9",
    "rounds": "UPDATE campaign_state SET round = round + 1 WHERE campaign > {portfolio}",
    "rows of the log": "DELETE FROM change WHERE campaign = {portfolio} AND kind = 'patch'",
}


class Undone(Exception):  # noqa: N818
    """Rolls the damage back."""


def test_verification_finds_damage_of_every_kind(clocked_database):
    history(clocked_database, rounds=24)
    (number,) = [row["number"] for row in rows(clocked_database, tables.campaign) if row["portfolio"] is None]
    for name, statement in DAMAGE.items():
        with suppress(Undone), clocked_database.write() as connection:
            connection.execute(text(statement.format(portfolio=number)))
            failed = {each["name"] for each in reads.verify_portfolio(connection, "acme")["checks"] if not each["ok"]}
            raise Undone
        assert any(each == name or each.startswith(f"{name} from ") for each in failed), (name, failed)
    check(clocked_database)


def test_a_replay_notices_a_call_that_is_not_the_one_of_its_decisions(clocked_database):
    history(clocked_database, rounds=24)
    number = next(row["number"] for row in rows(clocked_database, tables.campaign) if row["id"] == "c")
    first, *_, last = (row for row in rows(clocked_database, tables.portfolio_call) if row["campaign"] == number)
    with clocked_database.write() as connection:
        call = tables.portfolio_call
        of_last = (call.c.campaign == number, call.c.sequence == last["sequence"])
        connection.execute(update(call).where(*of_last).values(numbers=first["numbers"]))
    found = replay(clocked_database, number, advanced=lambda done, of: None)
    assert found.difference is not None
    assert found.difference.sequence == last["sequence"]


def test_the_ledger_of_a_portfolio_adds_up_to_its_accounts_page_by_page(clocked_database):
    history(clocked_database, rounds=20)
    items, cursor = [], None
    with clocked_database.read() as connection:
        while True:
            page = reads.portfolio_ledger(connection, "acme", limit=7, cursor=cursor)
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
    places = [(item["campaign_id"], item["sequence"]) for item in items]
    assert len(set(places)) == len(places)
    assert [item["at"] for item in items] == sorted((item["at"] for item in items), key=moment_microseconds)[::-1]
    assert all({*item["held"], *item["spent"], *item["granted"]} <= {"usd"} for item in items)
    sums = [round(sum(item[part].get("usd", 0) for item in items), 6) for part in ("granted", "held", "spent")]
    assert sums == [pytest.approx(part) for part in of_portfolio(clocked_database)[:3]]


def test_campaigns_outside_a_portfolio_are_decided_as_before(database):
    async def play(members):
        async with running(database) as engine:
            if members:
                await engine.submit(CreatePortfolio(portfolio()))
                await engine.submit(CreateCampaign(shared("inside")))
            name = "with" if members else "without"
            await engine.submit(CreateCampaign(config(name)))
            bodies = await asked(engine, *((name, f"{name}{n}") for n in range(12)))
            return [(body["arm"], body["reason"], body["probability"]) for body in bodies]

    assert asyncio.run(play(False)) == asyncio.run(play(True))
    assert not rows(database, tables.portfolio_call)


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_two_replicas_together_hold_exactly_what_the_portfolio_has(migrated_url):
    """Two engines decide, settle and expire at the same time for campaigns in different orders: no deadlock."""

    async def play(first, second):
        async with running(first, lock_timeout_ms=60_000) as one, running(second, lock_timeout_ms=60_000) as other:
            await one.submit(CreatePortfolio(portfolio(15, name="acme")))
            await one.submit(CreatePortfolio(portfolio(10, name="zenith")))
            for name, owner in (("c", "zenith"), ("d", "acme"), ("e", "zenith"), ("f", "acme")):
                await other.submit(CreateCampaign(shared(name, portfolio=owner)))
            await one.submit(CreateCampaign(config("alone", budget=8)))
            names = ("c", "d", "alone", "e", "f")
            batches = []
            for turn in range(12):
                order = names if turn % 2 else names[::-1]
                engine = (one, other)[turn % 2]
                batches.append(asked(engine, *((name, f"{name}-{turn}") for name in order)))
            bodies = [body for batch in await asyncio.gather(*batches) for body in batch]
            held = [body["campaign_id"] for body in bodies if body["arm"] is not None]
            both = [(body["campaign_id"], body["decision_id"]) for body in bodies if body["arm"] is not None]
            settled = [paid((one, other)[at % 2], *pair, 0.5) for at, pair in enumerate(both)]
            await asyncio.gather(*settled, one.submit(Expire()), other.submit(Expire()))
            await one.submit(PatchPortfolio("acme", {"resources": [{"id": "usd", "budget": 8}]}))
            last = await asked(other, ("d", "last"), ("f", "lost"))
            return held, [body["reason"] for body in last]

    with Database.open(migrated_url) as first, Database.open(migrated_url) as second:
        held, last = asyncio.run(play(first, second))
        assert (held.count("d") + held.count("f"), held.count("c") + held.count("e"), held.count("alone")) == (
            15,
            10,
            8,
        )
        assert last == ["window_exhausted"] * 2
        for name in ("acme", "zenith"):
            with first.read() as connection:
                found = reads.verify_portfolio(connection, name)
                assert found["ok"], [each for each in found["checks"] if not each["ok"]]
