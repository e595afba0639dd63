"""The cached sums of segments are the sums of the log, however it grows and in whatever order it is read."""

import asyncio
import json
from itertools import count

import pytest
from sqlalchemy import event

from service.engine import prune as pruning
from service.engine.commands import CreateCampaign
from service.reads import log_sums
from service.reads.shared import stored_campaign
from service.store import tables
from service.store.opening_balance import opening_of
from tests.service.engine.campaigns import config, rows, running
from tests.service.engine.histories import lived


@pytest.fixture
def live(database):
    """Continues the history of a campaign at every call."""
    numbers = count()

    async def play():
        async with running(database) as engine:
            if not rows(database, tables.campaign):
                terms = {"late_window_seconds": 0}
                await engine.submit(CreateCampaign(config(budget=60, horizon=300, feedback=terms)))
            await lived(engine, numbers=numbers, rounds=1)

    return lambda: asyncio.run(play())


def read_sums(database):
    with database.read() as connection:
        stored = stored_campaign(connection, "c")
        return log_sums.log_sums(connection, stored, opening_of(connection, stored.campaign.number))


def summed(database, bits):
    """The segments, computed row by row."""
    decisions, outcomes = rows(database, tables.decision), rows(database, tables.outcome)
    arms = {row["sequence"]: row["arm_id"] for row in decisions}
    found, priced = {}, set()
    for row in decisions:
        segment = found.setdefault(row["sequence"] >> bits, log_sums.Segment({}, {}))
        one = log_sums.DecisionSums(1, row["sequence"], row["decided_at"])
        before = segment.decisions.get(row["arm_id"])
        segment.decisions[row["arm_id"]] = one if before is None else before.plus(one)
    for row in sorted(outcomes, key=lambda row: row["sequence"]):
        segment = found.setdefault(row["sequence"] >> bits, log_sums.Segment({}, {}))
        taught = None if row["taught"] is None else json.loads(row["taught"])[0]
        spent = (0, 0) if row["spent"] is None else tuple(json.loads(row["spent"]))
        first = row["spent"] is not None and row["decision"] not in priced
        priced |= {row["decision"]} if first else set()
        one = log_sums.OutcomeSums(
            row["sequence"], row["at"], int(taught is not None), taught or 0.0, int(first), spent
        )
        arm = arms[row["decision"]]
        segment.outcomes[arm] = segment.outcomes[arm].plus(one) if arm in segment.outcomes else one
    return found


def assert_true(database, found):
    expected = summed(database, found.bits)
    for index, segment in enumerate(found.segments):
        same = expected.get(index, log_sums.Segment({}, {}))
        assert segment.decisions == same.decisions
        assert {arm: one._replace(reward=0.0) for arm, one in segment.outcomes.items()} == {
            arm: one._replace(reward=0.0) for arm, one in same.outcomes.items()
        }
        assert {arm: one.reward for arm, one in segment.outcomes.items()} == pytest.approx(
            {arm: one.reward for arm, one in same.outcomes.items()}
        )
    assert max(expected, default=0) < len(found.segments)


@pytest.mark.parametrize("segments_max", [3, 1_000])
def test_sums_are_right_while_the_log_grows_and_after_pruning(database, live, monkeypatch, segments_max):
    monkeypatch.setattr(log_sums, "SEGMENTS_MAX", segments_max)
    monkeypatch.setattr(log_sums, "NUMBERS_PER_STATEMENT", 16)
    for _ in range(3):
        live()
        found = read_sums(database)
        assert len(found.segments) <= segments_max
        assert_true(database, found)
    pruning.prune(database, pruning.prunable(database, 1, 2**62), actor="test", advanced=lambda *_: None)
    assert_true(database, read_sums(database))
    live()
    assert_true(database, read_sums(database))


def test_only_the_end_of_the_log_is_read_again(database, live, monkeypatch):
    monkeypatch.setattr(log_sums, "SEGMENTS_MAX", 20)
    asked = []
    read = log_sums._read
    monkeypatch.setattr(log_sums, "_read", lambda *args: asked.append(args[3]) or read(*args))
    live()
    first = read_sums(database)
    assert asked.pop() == 0
    assert read_sums(database) == first
    assert asked == [len(first.segments) - 1] or asked == []


def test_the_cache_stays_within_its_limit(database, live, monkeypatch):
    live()
    monkeypatch.setattr(log_sums, "SUMS_MAX", 3)
    assert_true(database, read_sums(database))
    assert_true(database, read_sums(database))
    with database.read() as connection:
        cache = log_sums._caches[connection.engine]
    assert cache.get((1, 0)) is None


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_segment_is_found_by_its_numbers_and_a_decision_by_its_own(database, live):
    live()
    steps = []

    def explain(connection, cursor, statement, parameters, *_):
        if "segment" in statement:
            driver = connection.connection.driver_connection
            steps.extend(row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

    with database.read() as connection:
        event.listen(connection.engine, "before_cursor_execute", explain)
        log_sums._read(connection, stored_campaign(connection, "c"), 2, 3, 5)
        event.remove(connection.engine, "before_cursor_execute", explain)
    searches = [step for step in steps if step.startswith("SEARCH")]
    assert len(searches) == 4
    assert not any(step.startswith("SCAN") for step in steps)
    by_numbers = "(campaign=? AND sequence>? AND sequence<?)"
    assert sum(by_numbers in step for step in searches) == 2
    assert any("earlier USING INDEX ix_outcome_campaign_decision" in step for step in searches)
