"""Replicas behind HAProxy, and behind the client with several addresses: one is killed, or frozen, under load."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx

from cbwk_client import AsyncClient, CbwkError, Terms
from cbwk_client.replicas import ranked
from tests.faults.history import Call, History
from tests.faults.load import Load, campaign
from tests.faults.processes import Server, Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, new_trial, ready
from tests.faults.wire import ANSWER_SECONDS_MAX, Wire
from tests.service.haproxy import MISSING, Balancer, new_balancer
from tests.service.http_client import ADMIN_KEY

CAMPAIGNS = [f"home-{number}" for number in range(9)]
CLIENTS = 9
# A campaign is answered again within this time; what a busy machine may add to it.
RECOVERY_SECONDS_MAX, SLACK_SECONDS = 2.0, 4.0
LOCK_MS, IDLE_MS = 300, 3_000
FROZEN_SECONDS = 3.0
FREEZE_EVERY = 10  # the first of ten faults is SIGSTOP, the others are kill -9
BEHIND_HAPROXY = "replica behind HAProxy killed or frozen"
BEHIND_CLIENT = "replica behind the client killed or frozen"


class _Recorded(httpx.AsyncHTTPTransport):
    """A transport that writes every attempt of a client into the history."""

    def __init__(self, history: History, **options: Any) -> None:
        super().__init__(**options)
        self._history = history

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one attempt and record its answer."""
        call = Call(request.url.path, _body(request), time.monotonic(), port=request.url.port or 0)
        self._history.calls.append(call)
        response = await super().handle_async_request(request)
        answer = await response.aread()
        call.status, call.answer, call.answered_at = response.status_code, answer, time.monotonic()
        call.replayed = response.headers.get("idempotent-replayed") == "true"
        return response


def _body(request: httpx.Request) -> dict[str, Any]:
    return Call("", {}, 0.0, answer=request.content).json or {}


class Callers:
    """Tasks that decide and report through one client with several addresses, one campaign each."""

    def __init__(self, trial: Trial, urls: list[str]) -> None:
        self._trial, self._urls = trial, urls
        self._numbers = count()
        self._tasks: list[asyncio.Task[None]] = []
        self.is_running = False
        self.made: list[tuple[float, float, str, bool]] = []  # when it began and ended, the campaign, whether answered

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the tasks inside the block."""
        self.is_running = True
        async with AsyncClient(self._urls, ADMIN_KEY, terms=Terms(feedback_seconds=10)) as client:
            await client._http.aclose()
            client._http = _Recorded(self._trial.history, trust_env=False)
            self._tasks = [asyncio.create_task(self._work(client, name)) for name in CAMPAIGNS]
            try:
                yield
            finally:
                self.is_running = False
                await asyncio.gather(*self._tasks)

    async def _work(self, client: AsyncClient, name: str) -> None:
        while self.is_running:
            began = time.monotonic()
            decision_id = f"m{next(self._numbers)}"
            try:
                # With an id of its own and no fallback the client voids nothing.
                decision = await client.decide(name, [0.3, 0.6], decision_id=decision_id, seconds=10)
                if decision.needs_feedback:
                    await client.feedback(name, decision_id, reward=1.0, costs={"usd": 0.25, "impressions": 1.0})
            except CbwkError:
                self.made.append((began, time.monotonic(), name, False))
            else:
                self.made.append((began, time.monotonic(), name, True))
            await asyncio.sleep(0.005)


async def behind_haproxy(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Kill or freeze one of three replicas; callers without retries ask HAProxy."""
    if MISSING:
        return Row(BEHIND_HAPROXY, dialect, 0, 0, {}, skipped=MISSING)
    async with _three(testbed, dialect, seed=31) as trial:
        with new_balancer({"cbwk": [server.port for server in trial.servers]}) as balancer:
            load = Load(trial.history, [balancer.port], list(CAMPAIGNS), 31, label="h")
            trial.loads.append(load)
            homes = await _homes(trial, balancer)
            load.start(CLIENTS)
            kills: list[tuple[float, float, float]] = []
            for number in range(injections):
                before = time.monotonic()
                await asyncio.sleep(trial.chance.uniform(0.3, 0.8))
                server = trial.servers[number % len(trial.servers)]
                since, ended = await _strike(trial, server, number)
                await _until_answered(trial, server, number, homes, since)
                await asyncio.to_thread(balancer.wait_until_up)
                if number % FREEZE_EVERY:
                    kills.append((before, since, ended))
                progress()
            await load.stop()
            failed, under_way = _failed(trial, balancer.port, kills)
            note = (
                f"three replicas; kill -9: {failed} calls failed of {under_way} under way on all three, none that was "
                f"sent later; one of {FREEZE_EVERY} faults is SIGSTOP for {FROZEN_SECONDS:.0f} s"
            )
            return await trial.verdict(BEHIND_HAPROXY, dialect, note=note)


async def behind_client(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Kill or freeze one of three replicas; callers use the client with the three addresses."""
    async with _three(testbed, dialect, seed=32) as trial:
        urls = {f"http://127.0.0.1:{server.port}": server for server in trial.servers}
        homes = {name: urls[ranked(name, list(urls))[0]] for name in CAMPAIGNS}
        callers = Callers(trial, list(urls))
        async with callers.running():
            for number in range(injections):
                await asyncio.sleep(trial.chance.uniform(0.3, 0.8))
                server = trial.servers[number % len(trial.servers)]
                since, _ = await _strike(trial, server, number)
                await _until_answered(trial, server, number, homes, since)
                progress()
        failed = [each for each in callers.made if not each[3]]
        if failed:
            trial.note("refused", f"{len(failed)} of {len(callers.made)} calls failed at the caller: {failed[:3]}")
        slowest = max(ended - began for began, ended, *_ in callers.made)
        note = (
            f"three replicas; {len(callers.made)} decisions with their reports, none failed at the caller, the slowest "
            f"took {slowest:.2f} s; one of {FREEZE_EVERY} faults is SIGSTOP for {FROZEN_SECONDS:.0f} s"
        )
        return await trial.verdict(BEHIND_CLIENT, dialect, note=note)


@asynccontextmanager
async def _three(testbed: Testbed, dialect: str, *, seed: int) -> AsyncIterator[Trial]:
    settings: dict[str, Any] = {
        "lock_timeout_ms": LOCK_MS,
        "idle_in_transaction_timeout_ms": IDLE_MS,
        "statement_timeout_ms": IDLE_MS,
    }
    async with new_trial(testbed, dialect, seed=seed, servers=3, **settings) as trial:
        for name in CAMPAIGNS:
            await trial.create(campaign(name, budget=1_000_000, feedback={"ttl_seconds": 600}))
        yield trial


async def _strike(trial: Trial, server: Server, number: int) -> tuple[float, float]:
    """Kill the server and start it again, or freeze it; return when that began and when it was done."""
    assert server.child is not None
    since = time.monotonic()
    if number % FREEZE_EVERY:
        server.kill()
    else:
        server.child.send(signal.SIGSTOP)
    ended = time.monotonic()
    trial.injections += 1
    return since, ended


def _failed(trial: Trial, port: int, kills: list[tuple[float, float, float]]) -> tuple[int, int]:
    """Return how many calls failed at the caller, and how many were under way, at all kills; no later one may fail.

    A kill has the time at which its replica was well before, and those at which the kill began and was done.
    """
    failed = under_way = 0
    calls = [call for call in trial.history.calls if call.port == port]
    for before, since, ended in kills:
        for call in calls:
            if not before - ANSWER_SECONDS_MAX < call.sent_at < ended + RECOVERY_SECONDS_MAX:
                continue
            is_lost = call.sent_at >= before and (call.status is None or call.status >= 500)
            failed += is_lost
            under_way += call.sent_at < ended and (is_lost or (call.answered_at or 0.0) >= since)
            if is_lost and call.sent_at >= ended:
                trial.note("refused", f"a call sent after the kill: {call.status} {(call.answer or b'')[:100]!r}")
    return failed, under_way


async def _homes(trial: Trial, balancer: Balancer) -> dict[str, Server]:
    """Return the replica that HAProxy prefers for each campaign."""
    homes = {}
    wire = Wire(balancer.port)
    for name in CAMPAIGNS:
        before = await asyncio.to_thread(balancer.answered)
        call = Call("/decide", {"campaign_id": name, "decision_id": f"first-{name}", "context": [0.3, 0.6]}, 0.0)
        trial.history.calls.append(call)
        await wire.ask(call)
        after = await asyncio.to_thread(balancer.answered)
        (home,) = [at for at, server in enumerate(after) if after[server] > before[server]]
        homes[name] = trial.servers[home]
    wire.cut()
    return homes


async def _until_answered(trial: Trial, server: Server, number: int, homes: dict[str, Server], since: float) -> None:
    """Wait until every campaign was answered, those of other replicas in time; then bring the server back."""
    frozen = number % FREEZE_EVERY == 0
    soon = RECOVERY_SECONDS_MAX + SLACK_SECONDS
    limits = {name: soon + (2 * IDLE_MS + LOCK_MS) / 1000 * (frozen and home is server) for name, home in homes.items()}
    waiting = set(CAMPAIGNS)
    while waiting and time.monotonic() < since + max(limits.values()):
        for call in trial.history.calls[-500:]:
            name = call.body.get("campaign_id", "")
            if name in waiting and call.port != server.port and call.sent_at >= since and call.is_acknowledged:
                waiting.remove(name)
                seconds = (call.answered_at or since) - since
                trial.recoveries.append(seconds)
                if seconds > limits[name]:
                    trial.note("late", f"{name} was answered {seconds:.2f} s after fault {number}")
        await asyncio.sleep(0.01)
    for name in waiting:
        trial.note("late", f"{name} is not answered {limits[name]:.1f} s after fault {number}")
    assert server.child is not None
    if frozen:
        await asyncio.sleep(max(0.0, since + FROZEN_SECONDS - time.monotonic()))
        server.child.send(signal.SIGCONT)
    else:
        server.start()
    await ready(server)
