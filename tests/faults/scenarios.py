"""Short scenarios on a real database; each returns its findings, none if the service is correct."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg

from service.engine.batch import BatchRunner
from service.engine.commands import (
    Answer,
    Command,
    CreateCampaign,
    CreatePortfolio,
    Decide,
    Feedback,
    Item,
    PatchCampaign,
)
from service.fault import Point
from service.store.database import Database
from tests.faults.administered import administered
from tests.faults.books import read_books, read_both
from tests.faults.engines import engine_set
from tests.faults.hangups import feedback
from tests.faults.history import MICROS
from tests.faults.kills import kills
from tests.faults.machine import run_machine
from tests.faults.processes import Testbed
from tests.faults.replicas import replicas
from tests.faults.report import Row
from tests.faults.window_checker import window_findings
from tests.service import test_access as access
from tests.service.databases import Clock, ClockedDatabase
from tests.service.engine.campaigns import config
from tests.service.http_client import served

SEQUENCES = 80
WAIT_SECONDS_MAX = 5.0
DAY = 86_400 * MICROS
DAY_PASSED = Clock.micros % DAY + MICROS  # from a moment before the day of the clocks to their time
HIDDEN = ("POST /decide", "POST /feedback", "GET /campaigns/{campaign_id}", "PATCH /campaigns/{campaign_id}")


def model(testbed: Testbed, dialect: str) -> list[str]:
    """Run the state machine with the same sequences every time."""
    with testbed.database(dialect) as url, engine_set(url) as engines:
        return run_machine(engines, SEQUENCES, repeatable=True)


def intruder(testbed: Testbed, dialect: str) -> list[str]:
    """Another session tries to change what a batch has read, before the batch writes."""
    entered: list[bool] = []
    with testbed.database(dialect) as url, Database.open(url) as database:

        def reached(point: Point) -> None:
            if point == "before-insert":
                entered.append(_enters(url))

        processor = _processor(database, reached)
        wrong = _wrong(_asked(processor, CreateCampaign(config())), _asked(processor, Decide("c", "d1", [0.5, 0.5])))
        assert entered, "no batch reached the point"
        return wrong + ["another session could write to a campaign that a batch had read"] * any(entered)


def _enters(url: str) -> bool:
    """Whether another session can lock the campaign without waiting."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.execute("UPDATE account SET spent = spent")
            connection.execute("COMMIT")
            return True
    with psycopg.connect(url) as session:
        try:
            session.execute("SELECT 1 FROM campaign_state FOR UPDATE NOWAIT")
        except psycopg.errors.LockNotAvailable:
            return False
        return True


def overtaken(testbed: Testbed, dialect: str) -> list[str]:
    """Two replicas decide for one campaign at the same time: the second begins just before the first commits."""
    return _overtaken(testbed, dialect, [CreateCampaign(config())], "c")


def overtaken_portfolio(testbed: Testbed, dialect: str) -> list[str]:
    """The same, for two campaigns of one portfolio."""
    portfolio = {"id": "acme", "resources": [{"id": "usd", "budget": 10, "windows": []}], "timezone": "UTC"}
    members = [CreateCampaign(config(name, portfolio="acme")) for name in ("c", "d")]
    return _overtaken(testbed, dialect, [CreatePortfolio(portfolio), *members], "d")


def _overtaken(testbed: Testbed, dialect: str, made: Sequence[Command], other_campaign: str) -> list[str]:
    with (
        testbed.database(dialect) as url,
        Database.open(url) as one,
        Database.open(url) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        second = _processor(other, None)
        later: list[Any] = []

        def reached(point: Point) -> None:
            if point == "before-commit" and not later:
                later.append(thread.submit(_asked, second, Decide(other_campaign, "d2", [0.5, 0.5])))
                _until_waiting(url, later[0])

        first = _processor(one, reached)
        answers = [_asked(first, command) for command in (*made, Decide("c", "d1", [0.5, 0.5]))]
        wrong = _wrong(*answers, later[0].result())
        books, portfolios = read_both(url)
        held = sum(row.hold[0] for one in books.values() for row in one.decisions if row.hold)
        account = next(iter((portfolios or books).values())).accounts[0]
        return wrong + [f"held {account.held}, but decisions hold {held}"] * (account.held != held)


def _until_waiting(url: str, running: Any) -> None:
    """Until the other session waits for a lock, or is through without."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(url, autocommit=True) as session:
        while not running.done() and session.execute(waiting).fetchone() == (0,):
            assert time.monotonic() < deadline, "the other replica neither waits nor ends"
            time.sleep(0.002)


def paused_arm(testbed: Testbed, dialect: str) -> list[str]:
    """One replica pauses an arm; another one, which knows the campaign from before, must not play it."""
    with testbed.database(dialect) as url, Database.open(url) as one, Database.open(url) as other:
        first, second = _processor(one, None), _processor(other, None)
        pause = PatchCampaign("c", {"arms": [{"id": "a", "status": "paused"}]})
        before = [_asked(first, CreateCampaign(config())), _asked(second, Decide("c", "d1", [0.5, 0.5]))]
        answers = [*before, _asked(first, pause), _asked(second, Decide("c", "d2", [0.5, 0.5], ("b",)))]
        played = [row.arm for row in read_books(url)["c"].decisions if row.decision_id == "d2"]
        return _wrong(*answers) + ["a paused arm is played"] * (played != [None])


def days(testbed: Testbed, dialect: str) -> list[str]:
    """Two replicas decide on three days; on the third the transaction of one began the day before."""
    clocks = Clock(), Clock()
    body = config()
    body["resources"][0] |= {"windows": [{"period": "day", "limit": 8}, {"period": "hour", "limit": 4}]}
    with (
        testbed.database(dialect) as url,
        ClockedDatabase.with_clock(url, clocks[0]) as one,
        ClockedDatabase.with_clock(url, clocks[1]) as other,
    ):
        first, second = _processor(one, None), _processor(other, None)
        answers = [_asked(first, CreateCampaign(body))]
        for day in range(3):
            clocks[0].micros = clocks[1].micros = Clock.micros + day * DAY
            clocks[1].micros -= DAY_PASSED * (day == 2)
            turns = (first, second) if day == 2 else (second, first)
            answers += [_asked(one, Decide("c", f"d{day}-{at}", [0.5, 0.5])) for at, one in enumerate(turns)]
        answers.append(_asked(second, Feedback("c", "d0-0", 1.0, {"usd": 0.25, "impressions": 1})))
        books = read_books(url)["c"]
        return _wrong(*answers) + [str(finding) for finding in window_findings(books, {}, [])]


def scopes(testbed: Testbed, dialect: str) -> list[str]:
    """What `test_access` says of keys that are limited to another campaign."""
    with testbed.database(dialect) as url, Database.open(url) as database, served(database) as client:
        for name in ("c", "other"):
            client("POST", "/campaigns", json=access.without_defaults(config(name)))
        client("POST", "/decide", json=access.DECIDE)
        try:
            for endpoint in HIDDEN:
                access.test_an_endpoint_answers_every_kind_of_key_as_the_table_says(endpoint, client, database)
        except AssertionError:
            return [f"{endpoint}: keys of another campaign are answered otherwise than the table says"]
        return []


def killed(testbed: Testbed, dialect: str) -> list[str]:
    """kill -9 eight times under load, while hours and days end.

    On a busy machine a third of them come between an answer and the next transaction.
    """
    return _found(kills, testbed, dialect, 8)


def crowd(testbed: Testbed, dialect: str) -> list[str]:
    """Three replicas under load, two of them killed once."""
    return _found(replicas, testbed, dialect, 2)


def changed(testbed: Testbed, dialect: str) -> list[str]:
    """Three replicas whose campaigns are changed and pruned under load, each of two killed once."""
    return _found(administered, testbed, dialect, 2)


def reports(testbed: Testbed, dialect: str) -> list[str]:
    """Irregular feedback under load."""
    return _found(feedback, testbed, dialect, 200)


def _found(fault: Callable[..., Awaitable[Row]], testbed: Testbed, dialect: str, injections: int) -> list[str]:
    async def tried() -> Row:
        return await fault(testbed, dialect, injections, lambda: None)

    row = asyncio.run(tried())
    counted = ", ".join(f"{kind} {number}" for kind, number in row.findings.items())
    return [counted, *row.details] if counted else []


def _processor(database: Database, reached: Callable[[Point], None] | None) -> BatchRunner:
    return BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000, reached=reached)


def _asked(processor: BatchRunner, command: Command) -> Item:
    item = Item(command, float("inf"))
    processor.run([item])
    return item


def _wrong(*items: Item) -> list[str]:
    return [f"{item.command}: {item.answer!r}" for item in items if not isinstance(item.answer, Answer)]
