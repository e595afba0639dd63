"""A process that is far behind the log catches up before it takes a campaign's lock: no other waits for the fold."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest
from sqlalchemy import delete, event

from service.engine import cache
from service.engine.batch import BatchRunner
from service.engine.cache import BEHIND_ROWS_MAX
from service.engine.commands import CreateCampaign, Decide, Feedback, Item
from service.engine.replay import replay
from service.store import tables
from tests.service.engine.campaigns import config, rows, running
from tests.service.engine.histories import state_of

MANY = BEHIND_ROWS_MAX // 2 + 50


@contextmanager
def folds(database):
    """By whom outcomes are read to be learnt: `write` has the lock, `read` has not."""
    seen = []

    def note(name):
        def listen(connection, cursor, statement, *rest):
            if "taught IS NOT NULL" in statement:
                seen.append(name)

        return listen

    listeners = [(database._write_engine, note("write")), (database._read_engine, note("read"))]
    for engine, listen in listeners:
        event.listen(engine, "before_cursor_execute", listen)
    try:
        yield seen
    finally:
        for engine, listen in listeners:
            event.remove(engine, "before_cursor_execute", listen)


async def played(engine, start=0):
    ids = [f"d{number}" for number in range(start, start + MANY)]
    answers = await engine.submit_together([Decide("c", one, [0.3, 0.6]) for one in ids])
    plays = [one for one, answer in zip(ids, answers, strict=True) if answer.body["arm"] is not None]
    await engine.submit_together([Feedback("c", one, reward=1, costs={"usd": 0.5}) for one in plays])


@pytest.fixture
def log(database):
    """A campaign with a long log and no snapshot."""

    async def play():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(budget=3 * MANY, horizon=2 * MANY)))
            await played(engine)

    asyncio.run(play())
    with database.write() as connection:
        connection.execute(delete(tables.snapshot))


@pytest.mark.usefixtures("log")
def test_a_cold_start_folds_the_log_without_the_lock(database):
    async def play():
        async with running(database) as engine:
            with folds(database) as seen:
                first = await engine.submit(Decide("c", "next", [0.1, 0.2]))
                found = list(seen)
                await engine.submit(Decide("c", "after", [0.1, 0.2]))
            return first, found, seen

    learnt = int(state_of(database).learnt[0])
    first, found, seen = asyncio.run(play())
    assert set(found) == {"read"}
    assert seen == found  # the second found everything remembered
    assert first.body["policy_version"] == learnt
    assert replay(database, 1, advanced=lambda done, todo: None).difference is None


def test_a_process_that_others_have_left_far_behind_catches_up_without_the_lock(database):
    async def play():
        async with running(database) as stale, running(database) as busy:
            await stale.submit(CreateCampaign(config(budget=3 * MANY, horizon=2 * MANY)))
            await stale.submit(Decide("c", "first", [0.1, 0.2]))
            await played(busy)
            with folds(database) as seen:
                answer = await stale.submit(Decide("c", "next", [0.1, 0.2]))
                near = await busy.submit(Decide("c", "near", [0.1, 0.2]))
            return answer, near, seen

    answer, near, seen = asyncio.run(play())
    assert seen.count("read") > 0
    assert "write" not in seen  # the busy one was one decision behind, and nothing was taught since
    assert answer.body["policy_version"] == near.body["policy_version"] > 0


def test_of_many_campaigns_that_others_have_left_far_behind_none_is_read_from_its_snapshot(database, monkeypatch):
    """A batch is tried again for each of them: what is cached of the others must last."""
    monkeypatch.setattr("service.engine.cache.BEHIND_ROWS_MAX", 3)
    read, from_snapshot = [], cache._from_snapshot
    monkeypatch.setattr(
        cache, "_from_snapshot", lambda *given: read.append(given[1]["campaign"]) or from_snapshot(*given)
    )
    names = [f"c{number}" for number in range(5)]
    stale, busy = (BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000) for _ in range(2))
    stale.run([Item(CreateCampaign(config(name, budget=100)), 0.0) for name in names])
    for runner, count in ((stale, 1), (busy, 9), (stale, 1)):
        read.clear()
        items = [Item(Decide(name, None, [0.1, 0.2]), 0.0) for name in names for _ in range(count)]
        runner.run(items)
    assert read == []
    assert [item.answer.body["round"] for item in items] == [10] * len(names)


@pytest.mark.usefixtures("log")
def test_what_else_is_in_the_batch_happens_once(database):
    processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000)
    commands = [CreateCampaign(config("new")), Decide("new", "d1", [0.1, 0.2]), Decide("c", "next", [0.1, 0.2])]
    items = [Item(command, 1e18) for command in commands]
    processor.run(items)
    created, new, next_ = (item.answer for item in items)
    assert created.status == 201
    assert (new.body["round"], next_.body["round"]) == (0, MANY)
    again = [Item(command, 1e18) for command in commands[1:]]
    processor.run(again)
    assert [item.answer.replayed for item in again] == [True, True]


@pytest.mark.usefixtures("log")
def test_what_a_cold_start_had_to_fold_counts_towards_the_next_snapshot(database, monkeypatch):
    """Else a process that is killed again and again would read a longer log each time."""
    learnt = int(state_of(database).learnt[0])
    monkeypatch.setattr("service.engine.cache.SNAPSHOT_OUTCOMES", learnt + 1)
    processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000)
    processor.run([Item(Decide("c", "next", [0.1, 0.2]), 0.0)])
    processor.save_due()
    assert rows(database, tables.snapshot) == []
    processor.run([Item(Feedback("c", "next", reward=1, costs={"usd": 0.5}), 0.0)])
    processor.save_due()
    assert int(state_of(database).learnt[0]) == learnt + 1
    assert len(rows(database, tables.snapshot)) == 1
