"""A start on a long log is as fast as on an empty one, after a stop and after a kill."""

from __future__ import annotations

import os
import resource
import signal
import time
from typing import NamedTuple

import numpy as np
import pytest

from cbwk_core.simulation import LinearEnvironment
from service.engine.batch import BatchRunner
from service.engine.commands import CreateCampaign, Decide, Feedback, Item
from service.reads import campaign, verify
from service.store.database import Database
from tests.service.engine.campaigns import config
from tests.service.http_calls import calls, decide_body
from tests.service.server_process import running_server

pytestmark = pytest.mark.slow

# CBWK_TEST_LOG_DECISIONS=200000 measures the promised times; it needs an idle machine.
DECISIONS = int(os.environ.get("CBWK_TEST_LOG_DECISIONS", "2000"))
PROMISED = "CBWK_TEST_LOG_DECISIONS" in os.environ
BATCH = 1_000
READY_SECONDS_MAX = 2.0
STOP_SECONDS_MAX = 5.0
# CPU time, for a log of any length.
LOG_SECONDS_MAX = 0.7


class LongLog:
    """Decisions and outcomes made by the engine in large transactions."""

    def __init__(self, database):
        self.processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=5_000)
        environment = LinearEnvironment(arms=2, dimension=2, resources=1, model="per_arm", seed=5)
        self.draw = environment.draw(np.random.default_rng(5), 0, DECISIONS)

    def create(self):
        """Create the campaign, with budget and time left after the log."""
        horizon = 2 * DECISIONS
        self.run([CreateCampaign(config(budget=0.8 * horizon, horizon=horizon))])

    def run(self, commands):
        items = [Item(command, time.monotonic() + 60, together=1) for command in commands]
        self.processor.run(items)
        assert not any(isinstance(item.answer, Exception | None) for item in items), items[0].answer
        return [item.answer.body for item in items]

    def write(self, numbers):
        """Decide and report a batch of rounds; null decisions have no report."""
        contexts = self.draw.features[numbers.start : numbers.stop].tolist()
        decided = self.run(
            [Decide("c", f"d{number}", context) for number, context in zip(numbers, contexts, strict=True)]
        )
        reports = []
        for number, decision in zip(numbers, decided, strict=True):
            if decision["arm"] is not None:
                arm = ("a", "b").index(decision["arm"])
                reward, cost = self.draw.reward[number, arm], self.draw.costs[number, arm, 0]
                reports.append(Feedback("c", f"d{number}", float(reward), {"usd": float(cost)}))
        self.run(reports)
        return len(reports)


def write_long_log(url):
    """Write the worst log that a kill can leave: nearly enough outcomes for another snapshot."""
    with Database.open(url, statement_timeout_ms=60_000, idle_in_transaction_timeout_ms=60_000) as database:
        log = LongLog(database)
        played = sum(log.write(range(start, start + BATCH)) for start in range(0, DECISIONS - BATCH, BATCH))
        log.processor.save_all()
        played += log.write(range(DECISIONS - BATCH, DECISIONS - 1))
    assert played > 0.9 * DECISIONS


class Start(NamedTuple):
    """Seconds until the process was ready and until its first decision, and its CPU time until it was ended."""

    ready_seconds: float
    decided_seconds: float
    processor_seconds: float

    @classmethod
    def of(cls, url, end=signal.SIGKILL):
        """Start a process, let it decide and learn, and end it."""
        before, started = children_seconds(), time.monotonic()
        with running_server(database_url=url) as server, calls(server) as client:
            assert client.get("/readyz").status_code == 200
            ready = time.monotonic() - started
            name = f"after-{started}"
            assert client.post("/decide", json=decide_body(name)).status_code == 200
            decided = time.monotonic() - started
            report = {"campaign_id": "c", "decision_id": name, "reward": 0.5, "costs": {}}
            assert client.post("/feedback", json=report).status_code == 200
            server.process.send_signal(end)
            server.process.wait(STOP_SECONDS_MAX)
        return cls(ready, decided, children_seconds() - before)


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_start_on_a_long_log_takes_no_longer_than_on_an_empty_one(migrated_url, capsys):
    with Database.open(migrated_url) as database:
        LongLog(database).create()
    empty = Start.of(migrated_url)
    write_long_log(migrated_url)
    starts = {"after a kill": Start.of(migrated_url, signal.SIGTERM)}
    if PROMISED:
        starts["after a stop"] = Start.of(migrated_url)
        with capsys.disabled():
            print(f"\nan empty database: {empty}")
            print("\n".join(f"{DECISIONS} decisions, {when}: {start}" for when, start in starts.items()))
    with Database.open(migrated_url, statement_timeout_ms=60_000) as database, database.read() as connection:
        assert verify(connection, "c")["ok"]
        assert campaign(connection, "c")["round"] == DECISIONS + len(starts)
    for start in starts.values():
        assert start.processor_seconds < empty.processor_seconds + LOG_SECONDS_MAX
        assert start.decided_seconds < READY_SECONDS_MAX or not PROMISED
