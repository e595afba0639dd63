"""Replicas behind HAProxy, and behind the client with several addresses: one is killed, or frozen, under load."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
import psycopg

from cbwk_client import AsyncClient, CbwkError, Terms
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
LOCK_MS, IDLE_MS = 300, 3_000
# A campaign is answered again within this time; one that a frozen replica has locked, within the other one.
RECOVERY_SECONDS_MAX = 2.0
LOCKED_SECONDS_MAX = IDLE_MS / 1000 + 1.0
# Where every answer takes long, recovery takes longer by the slowest answer of the second before, and by this at most.
USUAL_SECONDS_MAX = 1.0
# HAProxy may send a request on a standing connection before it has read that the killed replica has closed it.
NOTICED_SECONDS_MAX = 0.25
LOCKED_LOOKS, LOOK_SECONDS = 8, 0.03
GIVEN_UP_SECONDS = 20.0
FROZEN_SECONDS = 3.0
FREEZE_EVERY = 10  # the first of ten faults is SIGSTOP, the others are kill -9
BEHIND_HAPROXY = "replica behind HAProxy killed or frozen"
BEHIND_CLIENT = "replica behind the client killed or frozen"
_FREE = (
    "SELECT campaign.id FROM campaign_state JOIN campaign ON campaign.number = campaign_state.campaign"
    " FOR UPDATE OF campaign_state SKIP LOCKED"
)


@dataclass(frozen=True)
class _Fault:
    """One replica is killed or frozen."""

    number: int
    server: Server
    is_freeze: bool
    before: float  # when every replica was well
    since: float
    ended: float
    usual: float  # seconds of the slowest answer just before
    locked: frozenset[str]  # campaigns that the frozen replica keeps locked

    def seconds_max(self, campaign_id: str) -> float:
        """Return how long the campaign may be without an answer."""
        return (LOCKED_SECONDS_MAX if campaign_id in self.locked else RECOVERY_SECONDS_MAX) + self.usual


@dataclass
class _Silences:
    """The longest time without an answer of a campaign, by what had happened."""

    longest: dict[str, float] = field(default_factory=dict)

    def add(self, fault: _Fault, campaign_id: str, seconds: float) -> None:
        """Take in the time of one campaign after one fault."""
        kind = "after kill -9" if not fault.is_freeze else "after SIGSTOP"
        if fault.is_freeze:
            kind += ", locked by the frozen replica" if campaign_id in fault.locked else ", not locked"
        self.longest[kind] = max(seconds, self.longest.get(kind, 0.0))

    def __str__(self) -> str:
        return "; ".join(f"{kind} {seconds:.2f} s" for kind, seconds in sorted(self.longest.items()))


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
            faults, silences = list[_Fault](), _Silences()
            for number in range(injections):
                fault = await _strike(trial, number)
                faults.append(fault)
                await _until_answered(trial, fault, silences)
                await asyncio.to_thread(balancer.wait_until_up)
                progress()
            await load.stop()
            failed = _failed(trial, balancer.port, faults, homes)
            note = (
                f"three replicas, {_counted(faults)}; kill -9: {failed}; longest time without an answer of a campaign: "
                f"{silences}"
            )
            return await trial.verdict(BEHIND_HAPROXY, dialect, note=note)


async def behind_client(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Kill or freeze one of three replicas; callers use the client with the three addresses."""
    async with _three(testbed, dialect, seed=32) as trial:
        callers = Callers(trial, [f"http://127.0.0.1:{server.port}" for server in trial.servers])
        faults, silences = list[_Fault](), _Silences()
        async with callers.running():
            for number in range(injections):
                fault = await _strike(trial, number)
                faults.append(fault)
                await _until_answered(trial, fault, silences)
                progress()
        failed = [each for each in callers.made if not each[3]]
        if failed:
            trial.note("refused", f"{len(failed)} of {len(callers.made)} calls failed at the caller: {failed[:3]}")
        slowest = max(ended - began for began, ended, *_ in callers.made)
        note = (
            f"three replicas, {_counted(faults)}; {len(failed)} of {len(callers.made)} decisions with their reports "
            f"failed at the caller, the slowest took {slowest:.2f} s; longest time without an answer of a campaign: "
            f"{silences}"
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


async def _strike(trial: Trial, number: int) -> _Fault:
    """Wait a while under load, then kill or freeze one of the servers."""
    before, server, is_freeze = time.monotonic(), trial.servers[number % len(trial.servers)], number % FREEZE_EVERY == 0
    await asyncio.sleep(trial.chance.uniform(0.3, 0.8))
    assert server.child is not None
    since = time.monotonic()
    if is_freeze:
        server.child.send(signal.SIGSTOP)
    else:
        server.kill()
    ended = time.monotonic()
    trial.injections += 1
    locked = await asyncio.to_thread(_locked, trial.url) if is_freeze else frozenset[str]()
    return _Fault(number, server, is_freeze, before, since, ended, _usual_seconds(trial, since), locked)


def _usual_seconds(trial: Trial, since: float) -> float:
    """Return the time of the slowest answer of the last second."""
    ends = [(call.sent_at, call.answered_at) for call in trial.history.calls[-2_000:] if call.is_acknowledged]
    took = [at - sent_at for sent_at, at in ends if at is not None and since - 1.0 < at <= since]
    return min(USUAL_SECONDS_MAX, max(took, default=0.0))


def _locked(url: str) -> frozenset[str]:
    """Return the campaigns that are locked whenever one looks: by the frozen replica."""
    free = set[str]()
    with psycopg.connect(url) as connection:
        for _ in range(LOCKED_LOOKS):
            free.update(row[0] for row in connection.execute(_FREE))
            connection.rollback()
            time.sleep(LOOK_SECONDS)
    return frozenset(CAMPAIGNS) - free


def _counted(faults: list[_Fault]) -> str:
    frozen = [fault for fault in faults if fault.is_freeze]
    locking = sum(bool(fault.locked) for fault in frozen)
    return f"{len(faults) - len(frozen)} kills and {len(frozen)} freezes, {locking} of them inside a transaction"


def _failed(trial: Trial, port: int, faults: list[_Fault], homes: dict[str, Server]) -> str:
    """Return in words how many calls failed at the caller at kills, and how many were under way on the killed replica.

    What fails must have been sent to the killed replica, before the kill or before HAProxy had noticed it.
    """
    failed = under_way = late = 0
    calls = [call for call in trial.history.calls if call.port == port]
    for fault, end in zip(faults, [*(fault.before for fault in faults[1:]), math.inf], strict=True):
        if fault.is_freeze:
            continue
        for call in calls:
            if not fault.before - ANSWER_SECONDS_MAX < call.sent_at < end:
                continue
            is_lost = call.sent_at >= fault.before and _has_failed(call)
            is_late = call.sent_at >= fault.ended
            at_home = homes.get(call.body.get("campaign_id", "")) is fault.server
            failed += is_lost
            late += is_lost and is_late
            under_way += at_home and not is_late and (is_lost or (call.answered_at or 0.0) >= fault.since)
            if is_lost and not (at_home and call.sent_at < fault.ended + NOTICED_SECONDS_MAX):
                where = f"to {'the killed' if at_home else 'another'} replica"
                when = f"{call.sent_at - fault.ended:+.3f} s after kill {fault.number}"
                trial.note("refused", f"sent {where} {when}: {call.status} {(call.answer or b'')[:100]!r}")
    return (
        f"{failed} calls failed, {late} of them sent within {NOTICED_SECONDS_MAX} s after the kill; "
        f"{under_way} were under way on the killed replicas"
    )


def _has_failed(call: Call) -> bool:
    """Whether the caller got no answer of a replica: none at all, or one of HAProxy."""
    return call.status is None or (call.status >= 500 and b"urn:cbwk:problem" not in (call.answer or b""))


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


async def _until_answered(trial: Trial, fault: _Fault, silences: _Silences) -> None:
    """Wait until every campaign was answered by another replica, in time; then bring the server back."""
    server, since, waiting = fault.server, fault.since, set(CAMPAIGNS)
    while waiting and time.monotonic() < since + GIVEN_UP_SECONDS:
        for call in trial.history.calls[-500:]:
            name = call.body.get("campaign_id", "")
            if name in waiting and call.port != server.port and call.sent_at >= since and call.is_acknowledged:
                waiting.remove(name)
                seconds = (call.answered_at or since) - since
                trial.recoveries.append(seconds)
                silences.add(fault, name, seconds)
                if seconds > fault.seconds_max(name):
                    what = f"{seconds:.2f} s after fault {fault.number}, at most {fault.seconds_max(name):.2f} s"
                    trial.note("late", f"{name} was answered {what}")
        await asyncio.sleep(0.01)
    for name in waiting:
        trial.note("late", f"{name} is not answered {GIVEN_UP_SECONDS:.0f} s after fault {fault.number}")
    assert server.child is not None
    if fault.is_freeze:
        await asyncio.sleep(max(0.0, since + FROZEN_SECONDS - time.monotonic()))
        server.child.send(signal.SIGCONT)
    else:
        server.start()
    await ready(server)
