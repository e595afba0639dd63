"""What a transaction has left is not read again by the next one, unless somebody else may have written since."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from service.engine.batch import BatchRunner
from service.engine.changes import Changes
from service.engine.commands import CreateCampaign, Decide, Expire, Feedback, Item, SetStatus
from service.metrics import Metrics
from service.store import locking, tables
from tests.service.engine.campaigns import accounts, config, rows, running

only_sqlite = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


@pytest.fixture
def states_read(monkeypatch):
    """The campaigns whose state was read, statement by statement."""
    read = []
    states = locking.states

    def noted(connection, numbers, *, lock, **more):
        read.append(list(numbers))
        return states(connection, numbers, lock=lock, **more)

    monkeypatch.setattr(locking, "states", noted)
    return read


def play(database, *steps):
    """Make a campaign and carry out commands, or functions between them, one after the other; the answers."""

    async def run():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config()))
            await engine.submit(Decide("c", "first", [0.3, 0.6]))
            return [step() if callable(step) else await engine.submit(step) for step in steps]

    return asyncio.run(run())


@only_sqlite
def test_states_and_accounts_that_only_the_engine_has_written_are_not_read_again(database, states_read):
    before = []
    play(
        database,
        lambda: before.extend(states_read),
        Decide("c", "second", [0.1, 0.2]),
        Feedback("c", "first", void=True),
        SetStatus("c", "pause"),
        SetStatus("c", "resume"),
        Decide("c", "third", [0.1, 0.2]),
    )
    assert before
    assert states_read == before


@only_sqlite
def test_what_another_connection_has_written_counts(database):
    def empty():
        with closing(sqlite3.connect(database.path)) as other, other:
            other.execute("UPDATE account SET spent = granted - held WHERE resource = 0")

    before, _, after = play(database, Decide("c", "second", [0.1, 0.2]), empty, Decide("c", "third", [0.1, 0.2]))
    assert before.body["reason"] == "policy"
    assert after.body["reason"] == "budget_exhausted"


@only_sqlite
def test_what_another_part_of_the_process_has_written_counts(database):
    def pause():
        with database.write() as connection:
            connection.exec_driver_sql("UPDATE campaign_state SET status = 'paused'")

    _, after = play(database, pause, Decide("c", "second", [0.1, 0.2]))
    assert after.body["reason"] == "paused"


def test_a_transaction_that_was_given_up_leaves_nothing_behind(database, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("not written")

    async def run():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(budget=3)))
            first = await engine.submit(Decide("c", "first", [0.3, 0.6]))
            with monkeypatch.context() as broken_for_now:
                broken_for_now.setattr(Changes, "write", broken)
                for _ in range(5):
                    with pytest.raises(RuntimeError, match="not written"):
                        await engine.submit(Decide("c", "lost", [0.3, 0.6]))
            return first, await engine.submit(Decide("c", "second", [0.3, 0.6]))

    first, second = asyncio.run(run())
    assert second.body["reason"] == "policy"
    assert second.body["round"] == first.body["round"] + 1


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_that_fails_leaves_nothing_remembered_of_it_whether_it_happened_or_not(
    database, monkeypatch, happened
):
    writer = database.writer
    commit = writer._commit

    def failing(connection):
        if happened:
            commit(connection)
        raise RuntimeError("nobody knows")

    async def run():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(budget=10)))
            first = await engine.submit(Decide("c", "first", [0.3, 0.6]))
            with monkeypatch.context() as failing_for_now:
                failing_for_now.setattr(writer, "_commit", failing)
                with pytest.raises(RuntimeError, match="nobody knows"):
                    await engine.submit(Decide("c", "unknown", [0.3, 0.6]))
            return first, await engine.submit(Decide("c", "second", [0.3, 0.6]))

    first, second = asyncio.run(run())
    assert second.body["round"] == first.body["round"] + 1 + happened
    assert accounts(database) == (10_000_000, (2 + happened) * 1_000_000, 0, 0)


def test_after_a_failure_behind_a_commit_the_next_transaction_goes_on_from_what_was_committed(database, monkeypatch):
    """An expiry names no campaign, so whoever cleans up after it does not know which ones it has moved."""
    metrics = Metrics()
    processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000, metrics=metrics)

    def run(*commands):
        items = [Item(command, 0.0) for command in commands]
        processor.run(items)
        return [item.answer for item in items]

    run(CreateCampaign(config(budget=10, feedback={"ttl_seconds": 1})))
    run(*(Decide("c", f"d{each}", [0.5, 0.5]) for each in range(3)))
    now = database.writer.now_micros
    monkeypatch.setattr(database.writer, "now_micros", lambda: now() + 10_000_000)
    with monkeypatch.context() as spoilt:
        spoilt.setattr(metrics, "batch_size", None)
        (answer,) = run(Expire())
    assert answer.body == {"expired": 3}  # it was committed, so that is what is said
    assert accounts(database) == (10_000_000, 0, 3_000_000, 0)
    run(Decide("c", "next", [0.5, 0.5]))
    assert accounts(database) == (10_000_000, 1_000_000, 3_000_000, 0)
    numbers = [row["sequence"] for table in (tables.decision, tables.outcome) for row in rows(database, table)]
    assert len(set(numbers)) == len(numbers) == 7


@only_sqlite
def test_nothing_is_believed_of_how_any_campaign_was_left_after_a_failure(database, states_read, monkeypatch):
    metrics = Metrics()
    processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000, metrics=metrics)
    commands = [CreateCampaign(config("a")), CreateCampaign(config("b")), Decide("a", "1", [0.5, 0.5])]
    for command in (*commands, Decide("b", "1", [0.5, 0.5]), Decide("b", "2", [0.5, 0.5])):
        processor.run([Item(command, 0.0)])
    assert states_read == [[1], [2]]
    with monkeypatch.context() as spoilt:
        spoilt.setattr(metrics, "batch_size", None)
        processor.run([Item(Feedback("a", "1", void=True), 0.0)])
    processor.run([Item(Decide("b", "3", [0.5, 0.5]), 0.0)])
    assert states_read == [[1], [2], [2]]
