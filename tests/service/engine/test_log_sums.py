"""Sums over the log, kept leaf by leaf, are those of the log itself, however it grows and whoever reads it when."""

import asyncio
import json
from itertools import count

import pytest
from sqlalchemy import event

from service.engine import prune as pruning
from service.engine.commands import CreateCampaign
from service.reads import log_sums as leaves
from service.reads.shared import seen
from service.store import tables
from service.store.opening_balance import opening_of
from tests.service.engine.campaigns import config, rows, running
from tests.service.engine.histories import lived


@pytest.fixture
def live(database):
    """Goes on with a campaign's life, every time it is called."""
    numbers = count()

    async def play():
        async with running(database) as engine:
            if not rows(database, tables.campaign):
                terms = {"late_window_seconds": 0}
                await engine.submit(CreateCampaign(config(budget=60, horizon=300, feedback=terms)))
            await lived(engine, numbers=numbers, rounds=1)

    return lambda: asyncio.run(play())


def looked_at(database):
    with database.read() as connection:
        one = seen(connection, "c")
        return leaves.leaves_of(connection, one, opening_of(connection, one.campaign.number))


def added_up(database, bits):
    """The leaves, computed row by row."""
    decisions, outcomes = rows(database, tables.decision), rows(database, tables.outcome)
    arms = {row["sequence"]: row["arm_id"] for row in decisions}
    found, priced = {}, set()
    for row in decisions:
        leaf = found.setdefault(row["sequence"] >> bits, leaves.Leaf({}, {}))
        one = leaves.Decided(1, row["sequence"], row["decided_at"])
        before = leaf.decided.get(row["arm_id"])
        leaf.decided[row["arm_id"]] = one if before is None else before.plus(one)
    for row in sorted(outcomes, key=lambda row: row["sequence"]):
        leaf = found.setdefault(row["sequence"] >> bits, leaves.Leaf({}, {}))
        taught = None if row["taught"] is None else json.loads(row["taught"])[0]
        spent = (0, 0) if row["spent"] is None else tuple(json.loads(row["spent"]))
        first = row["spent"] is not None and row["decision"] not in priced
        priced |= {row["decision"]} if first else set()
        one = leaves.Settled(row["sequence"], row["at"], int(taught is not None), taught or 0.0, int(first), spent)
        arm = arms[row["decision"]]
        leaf.settled[arm] = leaf.settled[arm].plus(one) if arm in leaf.settled else one
    return found


def assert_true(database, found):
    expected = added_up(database, found.bits)
    for index, leaf in enumerate(found.leaves):
        same = expected.get(index, leaves.Leaf({}, {}))
        assert leaf.decided == same.decided
        assert {arm: one._replace(reward=0.0) for arm, one in leaf.settled.items()} == {
            arm: one._replace(reward=0.0) for arm, one in same.settled.items()
        }
        assert {arm: one.reward for arm, one in leaf.settled.items()} == pytest.approx(
            {arm: one.reward for arm, one in same.settled.items()}
        )
    assert max(expected, default=0) < len(found.leaves)


@pytest.mark.parametrize("leaves_max", [3, 1_000])
def test_leaves_are_true_while_the_log_grows_and_after_some_of_it_was_pruned(database, live, monkeypatch, leaves_max):
    monkeypatch.setattr(leaves, "LEAVES_MAX", leaves_max)
    monkeypatch.setattr(leaves, "NUMBERS_PER_STATEMENT", 16)
    for _ in range(3):
        live()
        found = looked_at(database)
        assert len(found.leaves) <= leaves_max
        assert_true(database, found)
    pruning.prune(database, pruning.prunable(database, 1, 2**62), actor="test", advanced=lambda *_: None)
    assert_true(database, looked_at(database))
    live()
    assert_true(database, looked_at(database))


def test_only_the_end_of_the_log_is_read_again(database, live, monkeypatch):
    monkeypatch.setattr(leaves, "LEAVES_MAX", 20)
    asked = []
    read = leaves._read
    monkeypatch.setattr(leaves, "_read", lambda *args: asked.append(args[3]) or read(*args))
    live()
    first = looked_at(database)
    assert asked.pop() == 0
    assert looked_at(database) == first
    assert asked == [len(first.leaves) - 1] or asked == []


def test_no_more_is_remembered_than_there_is_room_for(database, live, monkeypatch):
    live()
    monkeypatch.setattr(leaves, "SUMS_MAX", 3)
    assert_true(database, looked_at(database))
    assert_true(database, looked_at(database))
    with database.read() as connection:
        memory = leaves._memories[connection.engine]
    assert memory.recall((1, 0)) is None


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_leaf_is_found_by_its_numbers_and_a_decision_by_its_own(database, live):
    live()
    steps = []

    def explain(connection, cursor, statement, parameters, *_):
        if "leaf" in statement:
            driver = connection.connection.driver_connection
            steps.extend(row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

    with database.read() as connection:
        event.listen(connection.engine, "before_cursor_execute", explain)
        leaves._read(connection, seen(connection, "c"), 2, 3, 5)
        event.remove(connection.engine, "before_cursor_execute", explain)
    searches = [step for step in steps if step.startswith("SEARCH")]
    assert len(searches) == 4
    assert not any(step.startswith("SCAN") for step in steps)
    by_numbers = "(campaign=? AND sequence>? AND sequence<?)"
    assert sum(by_numbers in step for step in searches) == 2
    assert any("earlier USING INDEX ix_outcome_campaign_decision" in step for step in searches)
