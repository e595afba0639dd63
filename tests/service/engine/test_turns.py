"""Replicas that share campaigns on PostgreSQL: what is free comes first, and nothing waits for longer than it may."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, contextmanager
from threading import Event, Thread

import numpy as np
import psycopg
import pytest

from service.engine.commands import CreateCampaign, CreatePortfolio, Decide, Expire, Feedback
from service.engine.transaction import Transactions
from service.problems import Unavailable
from service.store import tables
from service.store.database import Database
from tests.service.databases import make_holds_due
from tests.service.engine.campaigns import config, rows, running
from tests.service.engine.test_portfolios import portfolio

pytestmark = pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
CONTEXT = [0.1, 0.2]
SECONDS_MAX = 20.0


@contextmanager
def locked(url, *numbers):
    """Another process has locked these campaigns."""
    with psycopg.connect(url) as connection:
        for number in numbers:
            connection.execute("SELECT FROM campaign_state WHERE campaign = %s FOR UPDATE", [number])
        yield connection


async def engines(stack, url, count, **options):
    """Engines on one database, each with connections of its own, and two campaigns: a, which is number 1, and b."""
    made = []
    for _ in range(count):
        database = stack.enter_context(Database.open(url, lock_timeout_ms=options.get("lock_timeout_ms", 2_000)))
        made.append(await stack.enter_async_context(running(database, **options)))
    for name in ("a", "b"):
        await made[0].submit(CreateCampaign(config(name, budget=100_000, horizon=100_000)))
    for engine in made:
        await engine.submit_together([Decide(name, None, CONTEXT) for name in ("a", "b")])
    return made


def played(url, count, play, **options):
    async def main():
        async with AsyncExitStack() as stack:
            return await play(*await engines(stack, url, count, **options))

    return asyncio.run(main())


def test_commands_of_free_campaigns_do_not_wait_for_a_locked_one(migrated_url):
    async def play(engine):
        with locked(migrated_url, 1) as other:
            waiting = asyncio.create_task(engine.submit(Decide("a", "waits", CONTEXT)))
            for number in range(5):
                await asyncio.wait_for(engine.submit(Decide("b", f"b{number}", CONTEXT)), SECONDS_MAX)
            assert not waiting.done()
            other.rollback()
            return await asyncio.wait_for(waiting, SECONDS_MAX)

    assert played(migrated_url, 1, play, lock_timeout_ms=60_000).body["decision_id"] == "waits"


def test_commands_of_one_transaction_wait_together_and_change_nothing_before(migrated_url, database):
    async def play(engine):
        with locked(migrated_url, 1) as other:
            both = [Decide("b", "one", CONTEXT), Decide("a", "two", CONTEXT)]
            waiting = asyncio.create_task(engine.submit_together(both))
            await asyncio.wait_for(engine.submit(Decide("b", "free", CONTEXT)), SECONDS_MAX)
            before = {row["decision_id"] for row in rows(database, tables.decision)}
            other.rollback()
            return before, await asyncio.wait_for(waiting, SECONDS_MAX)

    before, answers = played(migrated_url, 1, play, lock_timeout_ms=60_000)
    assert "free" in before
    assert not before & {"one", "two"}
    assert [answer.body["decision_id"] for answer in answers] == ["one", "two"]
    assert {"one", "two"} <= {row["decision_id"] for row in rows(database, tables.decision)}


def test_a_command_is_answered_at_its_lock_timeout_while_others_go_on(migrated_url):
    async def play(engine):
        slowest = 0.0
        with locked(migrated_url, 1):
            began = time.monotonic()
            waiting = asyncio.create_task(engine.submit(Decide("a", "busy", CONTEXT)))
            while not waiting.done():
                since = time.monotonic()
                await engine.submit(Decide("b", None, CONTEXT))
                slowest = max(slowest, time.monotonic() - since)
            waited = time.monotonic() - began
            with pytest.raises(Unavailable) as refused:
                await waiting
        return refused.value.kind, waited, slowest

    kind, waited, slowest = played(migrated_url, 1, play, lock_timeout_ms=4_000)
    assert kind == "campaign-busy"
    assert 4.0 <= waited < 4.0 + SECONDS_MAX
    assert slowest < 4.0  # one wait takes a quarter of the timeout


@contextmanager
def hardly_ever_free(url):
    """Another process locks campaign 1 again as soon as it has released it; sets what it yields at the end."""
    stop = Event()

    def hold():
        with psycopg.connect(url) as connection:
            while not stop.is_set():
                connection.execute("SELECT FROM campaign_state WHERE campaign = 1 FOR UPDATE")
                time.sleep(0.03)
                connection.commit()

    holder = Thread(target=hold)
    holder.start()
    try:
        yield stop
    finally:
        stop.set()
        holder.join()


def test_no_command_is_overtaken_beyond_its_lock_timeout(migrated_url):
    async def play(engine):
        with hardly_ever_free(migrated_url) as stop:

            async def others():
                while not stop.is_set():
                    await engine.submit(Decide("b", None, CONTEXT))

            beside, waits = asyncio.create_task(others()), []
            for number in range(5):
                began = time.monotonic()
                await engine.submit(Decide("a", f"a{number}", CONTEXT))
                waits.append(time.monotonic() - began)
            stop.set()
            await beside
        return waits

    assert max(played(migrated_url, 1, play, lock_timeout_ms=10_000)) < 10.0


def test_the_holds_of_a_campaign_that_is_hardly_ever_free_expire(migrated_url, database):
    async def play(engine):
        for name in ("a", "b"):
            await engine.submit(Decide(name, "held", CONTEXT))
        make_holds_due(database)
        expired = tries = 0
        with hardly_ever_free(migrated_url):
            while expired < 4 and tries < 8:
                tries += 1
                expired += (await engine.submit(Expire())).body["expired"]
        return expired

    assert played(migrated_url, 1, play) == 4


@pytest.mark.parametrize("locks", ["SELECT FROM campaign_state FOR UPDATE", "SELECT FROM portfolio_state FOR UPDATE"])
def test_an_engine_that_can_only_wait_does_not_poll(migrated_url, monkeypatch, locks):
    transactions = []
    right = Transactions.run
    monkeypatch.setattr(Transactions, "run", lambda *given: (transactions.append(1), right(*given))[1])

    async def play(engine):
        await engine.submit(CreatePortfolio(portfolio()))
        await engine.submit(CreateCampaign(config("member", portfolio="acme")))
        await engine.submit(Decide("member", None, CONTEXT))
        with psycopg.connect(migrated_url) as other:
            other.execute(locks)
            waiting = asyncio.create_task(engine.submit(Decide("member", None, CONTEXT)))
            transactions.clear()
            await asyncio.sleep(2.0)
            made = len(transactions)
            other.rollback()
            await asyncio.wait_for(waiting, SECONDS_MAX)
        return made

    # In each quarter of a second one wait, and where there is a portfolio one transaction before it; two expiries.
    assert played(migrated_url, 1, play, lock_timeout_ms=60_000) <= 2 * 2.0 / 0.25 + 4


def test_replicas_that_share_campaigns_answer_everything_and_deadlock_nowhere(migrated_url):
    async def ask(engine, number):
        names = ("a", "b") if number % 2 else ("b", "a")
        for turn in range(10):
            if turn % 3 == 0:
                await engine.submit_together([Decide(name, None, CONTEXT) for name in names])
            else:
                await engine.submit(Decide(names[turn % 2], None, CONTEXT))

    async def play(*made):
        await asyncio.gather(*(ask(engine, number) for number in range(6) for engine in made))

    played(migrated_url, 3, play, lock_timeout_ms=30_000)
    with Database.open(migrated_url) as database:
        found = rows(database, tables.campaign_state)
    assert [row["round"] for row in found] == [3 + 3 * 6 * 7] * 2  # at first 3, then of 10 turns 4 for both, 6 for one


def test_a_replica_that_follows_the_others_knows_what_the_log_says(migrated_url, database):
    """Every kind of outcome, each followed by a decision of the other replica; then a third one folds the log."""

    async def play(writer, follower, late):
        async def report(decision, **halves):
            await writer.submit(Feedback("a", decision, **halves))
            await follower.submit(Decide("a", None, CONTEXT))

        for number in range(12):
            await writer.submit(Decide("a", f"d{number}", [number / 12, 0.5]))
        await follower.submit(Decide("a", None, CONTEXT))
        costs = {"usd": 0.5, "impressions": 1}
        await report("d0", reward=1, costs=costs)
        await report("d1", reward=0.3)
        await report("d1", costs=costs)
        await report("d2", costs=costs)
        await report("d2", reward=0.7)
        await report("d3", void=True)
        await report("d4", reward=0.2)
        await report("d5", costs=costs)
        make_holds_due(database)
        await writer.submit(Expire())
        await follower.submit(Decide("a", None, CONTEXT))
        await report("d6", costs=costs)
        await report("d6", reward=1)
        await late.submit(Decide("a", None, CONTEXT))
        await follower.submit(Decide("a", None, CONTEXT))
        return [engine._batches._transactions.cache.get(1).state for engine in (follower, late)]

    def arrays(part):
        if isinstance(part, np.ndarray):
            return [part]
        return [array for inner in part for array in arrays(inner)] if isinstance(part, tuple) else []

    follower, cold = played(migrated_url, 3, play)
    assert int(follower.learnt[0]) >= 5
    assert len(arrays(follower.oracle)) > 0
    for mine, folded in zip(arrays(follower.oracle), arrays(cold.oracle), strict=True):
        assert np.array_equal(mine, folded)
    assert np.array_equal(follower.residuals, cold.residuals)


def test_holds_of_locked_campaigns_expire_later_and_nothing_waits_for_each_of_them(migrated_url, database):
    """A frozen replica has locked eight campaigns whose holds are due; the ninth is asked for a decision."""
    names = [f"locked-{number}" for number in range(8)]

    async def play(engine):
        for name in names:
            await engine.submit(CreateCampaign(config(name, budget=100_000, horizon=100_000)))
            await engine.submit(Decide(name, "held", CONTEXT))
        await engine.submit(Expire())
        make_holds_due(database)
        with locked(migrated_url, *range(3, 11)) as other:
            expiring = asyncio.create_task(engine.submit(Expire()))
            await asyncio.sleep(0)
            began = time.monotonic()
            await engine.submit(Decide("a", None, CONTEXT))
            waited = time.monotonic() - began
            first = (await expiring).body["expired"]
            other.rollback()
        return waited, first + (await engine.submit(Expire())).body["expired"]

    waited, expired = played(migrated_url, 1, play, lock_timeout_ms=2_000)
    assert waited < 2.0  # one after the other the eight would take 16 s
    assert expired == 10


def test_commands_outside_a_locked_portfolio_do_not_wait_for_it(migrated_url):
    async def play(engine):
        await engine.submit(CreatePortfolio(portfolio()))
        await engine.submit(CreateCampaign(config("member", portfolio="acme")))
        await engine.submit(Decide("member", None, CONTEXT))
        with psycopg.connect(migrated_url) as other:
            other.execute("SELECT FROM portfolio_state FOR UPDATE")
            waiting = asyncio.create_task(engine.submit(Decide("member", "waits", CONTEXT)))
            slowest = 0.0
            for _ in range(5):
                began = time.monotonic()
                await asyncio.wait_for(engine.submit(Decide("b", None, CONTEXT)), SECONDS_MAX)
                slowest = max(slowest, time.monotonic() - began)
            assert not waiting.done()
            other.rollback()
            return slowest, await asyncio.wait_for(waiting, SECONDS_MAX)

    slowest, waited = played(migrated_url, 1, play, lock_timeout_ms=60_000)
    assert slowest < 4.0  # one wait takes 0.25 s at most; at 5 s the statement is cancelled
    assert waited.body["decision_id"] == "waits"
