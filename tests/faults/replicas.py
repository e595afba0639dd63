"""Several processes on one PostgreSQL: one is killed repeatedly, or one is frozen inside its transaction."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter, defaultdict
from typing import Any

import psycopg

from tests.faults.history import Call
from tests.faults.processes import Server, Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import FREE, LOOSE, Trial, new_trial, ready
from tests.faults.wire import Wire

CLIENTS = 9
CONTEXTS = ((0.1, 0.9), (0.5, 0.5), (0.8, 0.3))
LOCK_MS = 300
IDLE_MS = 1_500
STATEMENT_MS = 1_500
# The delay that a busy machine may add to a timeout.
SLACK_SECONDS = 2.5
FROZEN_SECONDS_MAX = 20.0


async def replicas(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Three processes serve the same campaigns; about every second one of them is killed and restarted."""
    async with new_trial(testbed, dialect, seed=9, clocked=True, servers=3) as trial:
        await trial.add_kinds()
        for number in range(injections):
            if number % 5 == 0:
                await trial.load.stop()
                await trial.tighten(number)
                trial.load.start(CLIENTS)
            trial.pass_time()
            await asyncio.sleep(trial.chance.uniform(0.2, 1.5))
            server = trial.servers[number % len(trial.servers)]
            since = time.monotonic()
            server.kill()
            trial.injections += 1
            server.start()
            await trial.recovered(server, since)
            progress()
        await trial.load.stop()
        compared = await _agreement(trial)
        note = f"three processes; their predictions compared in {compared} places, equal bit for bit"
        return await trial.verdict("replicas, one killed after another", dialect, note=note)


async def _agreement(trial: Trial) -> int:
    """Compare the predictions of the replicas: after the same number of outcomes they must be equal."""
    seen: dict[Any, list[Any]] = defaultdict(list)
    for turn in range(3):
        for name in (LOOSE, FREE):
            for context in CONTEXTS:
                for server in trial.servers:
                    answer = await _explained(trial, server, name, context, f"e{turn}-{server.port}-{context[0]}")
                    prediction = [(arm["id"], arm["reward"], arm["cost"]) for arm in answer["arms"]]
                    seen[name, context, answer["policy_version"]].append(prediction)
    compared = 0
    for (name, context, version), predictions in seen.items():
        compared += len(predictions) >= len(trial.servers)
        if any(other != predictions[0] for other in predictions):
            trial.note("replicas differ", f"{name} {context} after {version} outcomes: {predictions}")
    if compared == 0:
        trial.note("unclear", "no two replicas had learnt from the same number of outcomes")
    return compared


async def _explained(trial: Trial, server: Server, name: str, context: tuple[float, ...], decision_id: str) -> Any:
    body = {"campaign_id": name, "decision_id": decision_id, "context": list(context), "explain": True}
    call = Call("/decide", body, 0.0)
    trial.history.calls.append(call)
    wire = Wire(server.port)
    await wire.ask(call)
    wire.cut()
    assert call.status == 200, call.answer
    return call.json


async def frozen(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Stop one of two replicas while it holds a campaign's row lock; the other continues, then the first does."""
    settings = {
        "lock_timeout_ms": LOCK_MS,
        "idle_in_transaction_timeout_ms": IDLE_MS,
        "statement_timeout_ms": STATEMENT_MS,
    }
    timeout = (IDLE_MS + STATEMENT_MS + LOCK_MS) / 1000
    disturbed: list[float] = []
    async with new_trial(testbed, dialect, seed=10, servers=2, **settings) as trial:
        here, there = trial.servers
        loads = [
            trial.more_load(here, LOOSE, "h"),
            trial.more_load(there, LOOSE, "t"),
            trial.more_load(there, FREE, "f"),
        ]
        for number in range(injections):
            here.kill()
            point = ("after-insert", "before-commit", "before-insert", None)[number % 4]
            here.start(**({"fault_point": f"{point}:{trial.chance.randint(4, 25)}:stop"} if point else {}))
            await ready(here)
            for load in loads:
                load.start(3)
            if point is None:  # at any moment: within a statement, within a commit, between two transactions
                await asyncio.sleep(trial.chance.uniform(0.2, 1.0))
                assert here.child is not None
                here.child.send(signal.SIGSTOP)
            stopped_at = await _until_stopped(here)
            trial.injections += 1
            back = await _first(trial, there, LOOSE, stopped_at)
            trial.recoveries.append(back - stopped_at)
            if back - stopped_at > timeout + SLACK_SECONDS:
                trial.note("late", f"the campaign was unavailable for {back - stopped_at:.2f} s")
            disturbed.append(_slowest(trial, there, FREE, stopped_at, back))
            assert here.child is not None
            here.child.send(signal.SIGCONT)
            await _first(trial, here, LOOSE, time.monotonic())
            for load in loads:
                await load.stop()
            progress()
        trial.expect_running()
        note = (
            f"recovery of the locked campaign, whose timeouts add up to {timeout} s; another campaign of the other "
            f"replica waited {max(disturbed):.2f} s at the most"
        )
        return await trial.verdict("replica frozen in its transaction", dialect, note=note)


async def _until_stopped(server: Server) -> float:
    deadline = time.monotonic() + FROZEN_SECONDS_MAX
    assert server.child is not None
    while not server.child.is_stopped():
        assert time.monotonic() < deadline, "the replica did not reach its point"
        await asyncio.sleep(0.005)
    return time.monotonic()


async def _first(trial: Trial, server: Server, name: str, since: float) -> float:
    """Return when the server first acknowledged a call about the campaign that was sent after `since`."""
    deadline = time.monotonic() + FROZEN_SECONDS_MAX
    while True:
        for call in trial.history.calls:
            mine = call.port == server.port and call.body.get("campaign_id") == name
            if mine and call.sent_at > since and call.is_acknowledged:
                return call.answered_at or 0.0
        if time.monotonic() > deadline:
            raise AssertionError(f"{name} is not available again: {_situation(trial, server, since)}")
        await asyncio.sleep(0.02)


def _situation(trial: Trial, server: Server, since: float) -> str:
    """Return the server's answers since then, the end of its log, and the database's sessions."""
    answers = Counter(
        (call.status, (call.answer or b"")[:60])
        for call in trial.history.calls
        if call.port == server.port and call.sent_at > since
    )
    with psycopg.connect(trial.url) as connection:
        sessions = connection.execute(
            "SELECT pid, state, wait_event, left(query, 40), now() - state_change, pg_blocking_pids(pid)"
            " FROM pg_stat_activity WHERE datname = current_database()"
        ).fetchall()
    return f"{answers} {server.log.read_text()[-1000:]} {sessions}"


def _slowest(trial: Trial, server: Server, name: str, since: float, until: float) -> float:
    """Return the duration of the slowest call about a campaign in a period; a refused call is a finding."""
    slowest = 0.0
    for call in trial.history.calls:
        mine = call.port == server.port and call.body.get("campaign_id") == name
        if mine and since < call.sent_at and call.answered_at is not None and call.answered_at < until:
            slowest = max(slowest, call.answered_at - call.sent_at)
            if call.status == 503:
                trial.note("disturbed", f"another campaign was refused: {call.answer!r}")
    return slowest
