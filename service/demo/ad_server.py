"""Workers that ask for a banner for every visitor and report what came of it, late or never."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

from cbwk_client import AsyncClient, Campaign, Report
from service.demo.world import BANNERS, CAMPAIGN, World

WORKERS = 8
LOOK_SECONDS = 0.4
# Points of the curve of clicks.
POINTS_MAX = 400


class Look(NamedTuple):
    """The campaign at a moment of the run."""

    requests: int
    campaign: Campaign


@dataclass
class AdServer:
    """One run: what was played so far and what came of it."""

    world: World
    client: AsyncClient
    refused: list[Report]  # such as voids that came after the decision had expired
    done: int = 0
    clicks: float = 0.0
    expected: float = 0.0  # Σ click rates of what was shown
    plays: Counter[str] = field(default_factory=Counter)
    fallbacks: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # that each decision took
    looks: list[Look] = field(default_factory=list)
    curve: list[tuple[int, float, tuple[int, ...]]] = field(default_factory=list)  # requests, expected, plays by banner
    _due: list[tuple[int, int, str, dict[str, Any]]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=count)

    async def run(self) -> None:
        """Serve every visitor, report the rest, and wait until the holds of missing feedback have expired."""
        looking = asyncio.create_task(self._look())
        try:
            numbers = iter(range(self.world.requests))
            await asyncio.gather(*(self._work(numbers) for _ in range(min(WORKERS, self.world.requests))))
            self._report_due(None)
            await self.client.flush(30)
            while any(account.held for account in (await self._looked()).accounts):
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            looking.cancel()

    async def _work(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            self._report_due(number)
            started = perf_counter()
            decision = await self.client.decide(CAMPAIGN, self.world.visitor(number), fallback=None)
            self.seconds.append(perf_counter() - started)
            self.reasons[decision.reason] += 1
            if decision.is_fallback:
                self.fallbacks += 1
            elif decision.arm is not None:
                self._shown(number, decision.arm, decision.decision_id)
            self.done += 1
            if self.done % max(1, self.world.requests // POINTS_MAX) == 0:
                self.curve.append((self.done, self.expected, tuple(self.plays[banner] for banner in BANNERS)))

    def _shown(self, number: int, banner: str, decision_id: str) -> None:
        """Count an impression and plan its feedback."""
        said: dict[str, Any]
        if self.world.is_void(number):
            said = {"void": True}
        else:
            outcome = self.world.outcome(number, banner)
            self.plays[banner] += 1
            self.clicks += outcome.reward
            self.expected += self.world.mean_reward(number, banner)
            said = {"reward": outcome.reward, "costs": outcome.costs}
        if not self.world.is_missing(number):
            heapq.heappush(self._due, (number + self.world.delay(number), next(self._order), decision_id, said))

    def _report_due(self, number: int | None) -> None:
        """Hand over what is due before a request; without one, all of it."""
        while self._due and (number is None or self._due[0][0] <= number):
            _, _, decision_id, said = heapq.heappop(self._due)
            self.client.report(CAMPAIGN, decision_id, **said)

    async def _look(self) -> None:
        while True:
            await self._looked()
            await asyncio.sleep(LOOK_SECONDS)

    async def _looked(self) -> Campaign:
        campaign = await self.client.campaign(CAMPAIGN)
        self.looks.append(Look(self.done, campaign))
        return campaign
