"""Clients that decide and report: late, twice, in halves, too much, or not at all. The history has every call."""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.faults.history import MICROS, Call, History, micros_of
from tests.faults.wire import Wire

Windows = Mapping[str, Mapping[str, float]]

TTL_SECONDS = 2
# What a request declares as its max cost at most; every arm of every campaign may cost more.
OWN_COST_MAX = 0.2
# The pause of a client after a refusal or a lost connection.
PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Habits:
    """The share of decisions, or of calls, with each irregularity."""

    missing: float = 0.3  # never reported
    excessive: float = 0.05  # a cost above the hold
    void: float = 0.05
    apart: float = 0.3  # reward and costs in separate calls
    duplicate: float = 0.1  # a report sent twice
    delayed: float = 0.3  # a report sent later, after others, perhaps after the expiry
    delay_seconds_max: float = 1.5 * TTL_SECONDS
    batch: float = 0.05  # several decisions in one call
    hang_up: float = 0.0  # the client does not wait for the answer
    elsewhere: float = 0.0  # a report sent to another server than the decision
    own_costs: float = 0.1  # a request that brings max costs


def campaign(name: str, *, budget: float, windows: Windows | None = None, **changes: Any) -> dict[str, Any]:
    """Return a campaign with two arms, two resources, a context of two numbers, and short-lived holds.

    `windows` has the limits of each resource by period.
    """
    limited = {
        resource: {"windows": [{"period": period, "limit": limit} for period, limit in limits.items()]}
        for resource, limits in (windows or {}).items()
    }
    return {
        "id": name,
        "arms": [{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.4}}],
        "resources": [
            {"id": "usd", "budget": budget, "max_cost": 1} | limited.get("usd", {}),
            {"id": "impressions", "budget": budget * 2, "max_cost": 1} | limited.get("impressions", {}),
        ],
        "horizon": 1_000_000,
        "context": {"dimension": 2},
        "feedback": {"ttl_seconds": TTL_SECONDS},
        "seed": 11,
    } | changes


@dataclass
class Load:
    """Clients that send requests about some campaigns to the ports of some servers."""

    history: History
    ports: Sequence[int]
    campaigns: list[str]
    seed: int
    habits: Habits = field(default_factory=Habits)
    label: str = "d"  # the first characters of its decision ids
    # What the clients of campaigns in shadow mode play.
    baselines: dict[str, Sequence[str | None]] = field(default_factory=dict)
    pause_seconds: float = 0.0  # between the calls of a client
    _numbers: Any = field(default_factory=count)
    is_running: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, clients: int) -> None:
        """Start the clients."""
        self.is_running = True
        for number in range(clients):
            wires = [Wire(port) for port in self.ports]
            wires.insert(0, wires.pop(number % len(wires)))
            self._tasks.append(asyncio.create_task(self._work(wires, random.Random(f"{self.seed}:{number}"))))

    async def stop(self) -> None:
        """Stop every client after its current call."""
        self.is_running = False
        await asyncio.gather(*self._tasks)
        self._tasks.clear()
        self.seed += 1

    async def abandon(self) -> None:
        """Cancel every client, also during a call."""
        self.is_running = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _work(self, wires: list[Wire], chance: random.Random) -> None:
        try:
            await self._decide_and_report(wires, chance)
        finally:
            for wire in wires:
                wire.cut()

    async def _decide_and_report(self, wires: list[Wire], chance: random.Random) -> None:
        """Ask the first of the servers for decisions and report about them, sometimes to another server."""
        later: list[tuple[float, int, dict[str, Any]]] = []
        while self.is_running:
            now = time.monotonic()
            if later and later[0][0] <= now:
                _, _, body = heapq.heappop(later)
                elsewhere = self.habits.elsewhere and chance.random() < self.habits.elsewhere
                await self._call(chance.choice(wires) if elsewhere else wires[0], "/feedback", body, chance)
                continue
            for body in await self._decide(wires[0], chance):
                delay = chance.random() * self.habits.delay_seconds_max if chance.random() < self.habits.delayed else 0
                heapq.heappush(later, (now + delay, next(self._numbers), body))
                if chance.random() < self.habits.duplicate:
                    again = now + delay * chance.choice((1, 2))
                    heapq.heappush(later, (again, next(self._numbers), body))
            await asyncio.sleep(self.pause_seconds)

    async def _call(self, wire: Wire, path: str, body: dict[str, Any], chance: random.Random) -> Call:
        call = Call(path, body, 0.0)
        self.history.calls.append(call)
        if chance.random() < self.habits.hang_up:
            await wire.hang_up_on(call, bytes_sent=chance.choice((None, None, 200)))
            return call
        await wire.ask(call)
        if not call.is_definite:
            await asyncio.sleep(PAUSE_SECONDS)
        return call

    async def _decide(self, wire: Wire, chance: random.Random) -> list[dict[str, Any]]:
        """Request one decision or several; returns the reports to send about them."""
        name = chance.choice(self.campaigns)
        batch = chance.random() < self.habits.batch
        items: list[dict[str, Any]] = [
            {"decision_id": f"{self.label}{next(self._numbers)}", "context": [chance.random(), chance.random()]}
            for _ in range(chance.randint(2, 5) if batch else 1)
        ]
        if name in self.baselines:
            items = [item | {"baseline_arm": chance.choice(self.baselines[name])} for item in items]
        items = [item | self._own_costs(chance) for item in items]
        body = {"campaign_id": name, "items": items} if batch else {"campaign_id": name, **items[0]}
        call = await self._call(wire, "/decide/batch" if batch else "/decide", body, chance)
        if call.status != 200:
            return []
        answers = call.json["decisions"] if batch else [call.json]
        return [report for answer in answers if answer["arm"] for report in self._reports(answer, chance)]

    def _own_costs(self, chance: random.Random) -> dict[str, Any]:
        """Return the max costs that a request brings, for all arms or for one."""
        if chance.random() >= self.habits.own_costs:
            return {}
        cost = {"usd": chance.randint(1, int(OWN_COST_MAX * MICROS)) / MICROS}
        return {"max_cost": cost} if chance.random() < 0.5 else {"max_costs": {"a": cost}}

    def _reports(self, answer: dict[str, Any], chance: random.Random) -> list[dict[str, Any]]:
        """Return the reports of a client about one decision."""
        decision = {"campaign_id": answer["campaign_id"], "decision_id": answer["decision_id"]}
        habits = self.habits
        if chance.random() < habits.missing:
            return []
        if chance.random() < habits.void:
            return [decision | {"void": True}]
        held = {name: micros_of(amount) for name, amount in answer["hold"].items()}
        costs = {name: chance.randint(0, amount) for name, amount in held.items()}
        if chance.random() < habits.excessive:
            name = chance.choice(sorted(held))
            costs[name] = held[name] + chance.randint(1, MICROS)
        halves: list[dict[str, Any]] = [
            {"costs": {name: amount / MICROS for name, amount in costs.items()}},
            {"reward": chance.choice((0.0, 0.25, 1.0))},
        ]
        if chance.random() >= habits.apart:
            return [decision | halves[0] | halves[1]]
        chance.shuffle(halves)
        if chance.random() < 0.2:  # the second report repeats the first half
            halves[1] = halves[0] | halves[1]
        return [decision | half for half in halves]
