"""Several processes on one PostgreSQL: one killed again and again, one frozen inside its transaction."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter, defaultdict
from typing import Any

import psycopg

from tests.faults.history import Call
from tests.faults.processes import Ground, Server
from tests.faults.report import Progress, Row
from tests.faults.trial import FREE, LOOSE, Trial, ready, trial
from tests.faults.wire import Wire

CLIENTS = 9
CONTEXTS = ((0.1, 0.9), (0.5, 0.5), (0.8, 0.3))
LOCK_MS = 300
IDLE_MS = 1_500
STATEMENT_MS = 1_500
# What a busy machine may add to a timeout before it is held against the service.
SLACK_SECONDS = 2.5
FROZEN_SECONDS_MAX = 20.0


async def replicas(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """Three processes serve the same campaigns; every second or so one is killed and started again."""
    async with trial(ground, dialect, seed=9, servers=3) as one:
        for number in range(injections):
            if number % 5 == 0:
                await one.load.stop()
                await one.tighten(number)
                one.load.start(CLIENTS)
            await asyncio.sleep(one.chance.uniform(0.2, 1.5))
            server = one.servers[number % len(one.servers)]
            since = time.monotonic()
            server.kill()
            one.injections += 1
            server.start()
            await one.recovered(server, since)
            progress()
        await one.load.stop()
        compared = await _agreement(one)
        note = f"three processes; their predictions compared in {compared} places, equal bit for bit"
        return await one.verdict("replicas, one killed after another", dialect, note=note)


async def _agreement(one: Trial) -> int:
    """Ask every replica what it predicts; those that have learnt as much must predict the same."""
    seen: dict[Any, list[Any]] = defaultdict(list)
    for turn in range(3):
        for name in (LOOSE, FREE):
            for context in CONTEXTS:
                for server in one.servers:
                    answer = await _explained(one, server, name, context, f"e{turn}-{server.port}-{context[0]}")
                    told = [(arm["id"], arm["reward"], arm["cost"]) for arm in answer["arms"]]
                    seen[name, context, answer["policy_version"]].append(told)
    compared = 0
    for (name, context, version), told in seen.items():
        compared += len(told) >= len(one.servers)
        if any(other != told[0] for other in told):
            one.note("replicas differ", f"{name} {context} after {version} outcomes: {told}")
    if compared == 0:
        one.note("unclear", "no two replicas were asked after the same number of outcomes")
    return compared


async def _explained(one: Trial, server: Server, name: str, context: tuple[float, ...], decision_id: str) -> Any:
    body = {"campaign_id": name, "decision_id": decision_id, "context": list(context), "explain": True}
    call = Call("/decide", body, 0.0)
    one.history.calls.append(call)
    wire = Wire(server.port)
    await wire.ask(call)
    wire.cut()
    assert call.status == 200, call.answer
    return call.json


async def frozen(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """One of two replicas is stopped with a campaign's row locked; the other goes on, then the first is continued."""
    settings = {
        "lock_timeout_ms": LOCK_MS,
        "idle_in_transaction_timeout_ms": IDLE_MS,
        "statement_timeout_ms": STATEMENT_MS,
    }
    timeout = (IDLE_MS + STATEMENT_MS + LOCK_MS) / 1000
    disturbed: list[float] = []
    async with trial(ground, dialect, seed=10, servers=2, **settings) as one:
        here, there = one.servers
        loads = [
            one.more_load(here, LOOSE, "h"),
            one.more_load(there, LOOSE, "t"),
            one.more_load(there, FREE, "f"),
        ]
        for number in range(injections):
            here.kill()
            point = ("after-insert", "before-commit", "before-insert", None)[number % 4]
            here.start(**({"fault_point": f"{point}:{one.chance.randint(4, 25)}:stop"} if point else {}))
            await ready(here)
            for load in loads:
                load.start(3)
            if point is None:  # anywhere: in the middle of a statement, of a commit, between two transactions
                await asyncio.sleep(one.chance.uniform(0.2, 1.0))
                assert here.child is not None
                here.child.send(signal.SIGSTOP)
            stopped_at = await _until_stopped(here)
            one.injections += 1
            back = await _first(one, there, LOOSE, stopped_at)
            one.recoveries.append(back - stopped_at)
            if back - stopped_at > timeout + SLACK_SECONDS:
                one.note("late", f"the campaign was away for {back - stopped_at:.2f} s")
            disturbed.append(_slowest(one, there, FREE, stopped_at, back))
            assert here.child is not None
            here.child.send(signal.SIGCONT)
            await _first(one, here, LOOSE, time.monotonic())
            for load in loads:
                await load.stop()
            progress()
        one.expect_running()
        note = (
            f"recovery of the locked campaign, whose timeouts come to {timeout} s; another campaign of the other "
            f"replica waited {max(disturbed):.2f} s at the most"
        )
        return await one.verdict("replica frozen in its transaction", dialect, note=note)


async def _until_stopped(server: Server) -> float:
    deadline = time.monotonic() + FROZEN_SECONDS_MAX
    assert server.child is not None
    while not server.child.is_stopped():
        assert time.monotonic() < deadline, "the replica did not come to its point"
        await asyncio.sleep(0.005)
    return time.monotonic()


async def _first(one: Trial, server: Server, name: str, since: float) -> float:
    """When a call about a campaign that was sent after a moment was first acknowledged by a server."""
    deadline = time.monotonic() + FROZEN_SECONDS_MAX
    while True:
        for call in one.history.calls:
            mine = call.port == server.port and call.body.get("campaign_id") == name
            if mine and call.sent_at > since and call.is_acknowledged:
                return call.answered_at or 0.0
        if time.monotonic() > deadline:
            raise AssertionError(f"{name} does not come back: {_situation(one, server, since)}")
        await asyncio.sleep(0.02)


def _situation(one: Trial, server: Server, since: float) -> str:
    """What the server answered meanwhile, what it logged, and what the database's sessions do."""
    answers = Counter(
        (call.status, (call.answer or b"")[:60])
        for call in one.history.calls
        if call.port == server.port and call.sent_at > since
    )
    with psycopg.connect(one.url) as connection:
        sessions = connection.execute(
            "SELECT pid, state, wait_event, left(query, 40), now() - state_change, pg_blocking_pids(pid)"
            " FROM pg_stat_activity WHERE datname = current_database()"
        ).fetchall()
    return f"{answers} {server.log.read_text()[-1000:]} {sessions}"


def _slowest(one: Trial, server: Server, name: str, since: float, until: float) -> float:
    """How long the slowest call about a campaign took meanwhile; one refused is one disturbed."""
    slowest = 0.0
    for call in one.history.calls:
        mine = call.port == server.port and call.body.get("campaign_id") == name
        if mine and since < call.sent_at and call.answered_at is not None and call.answered_at < until:
            slowest = max(slowest, call.answered_at - call.sent_at)
            if call.status == 503:
                one.note("disturbed", f"another campaign was refused: {call.answer!r}")
    return slowest
