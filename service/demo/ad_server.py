"""A simulated ad server: requests a banner for every visitor and reports outcomes, late or never."""

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
SAMPLE_SECONDS = 0.4
# Points of the curve of clicks.
POINTS_MAX = 400


class Sample(NamedTuple):
    """The campaign after a number of requests."""

    requests: int
    campaign: Campaign


@dataclass
class AdServer:
    """One run, with its counts so far."""

    world: World
    client: AsyncClient
    refused: list[Report]  # for instance voids of expired decisions
    done: int = 0
    clicks: float = 0.0
    expected: float = 0.0  # Σ click rates of the shown banners
    plays: Counter[str] = field(default_factory=Counter)
    fallbacks: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # latency of each decision
    samples: list[Sample] = field(default_factory=list)
    curve: list[tuple[int, float, tuple[int, ...]]] = field(default_factory=list)  # requests, expected, plays by banner
    _due: list[tuple[int, int, str, dict[str, Any]]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=count)

    async def run(self) -> None:
        """Serves every visitor, reports all outcomes, and waits until holds without feedback have expired."""
        sampling = asyncio.create_task(self._sample_forever())
        try:
            numbers = iter(range(self.world.requests))
            await asyncio.gather(*(self._serve(numbers) for _ in range(min(WORKERS, self.world.requests))))
            self._report_due(None)
            await self.client.flush(30)
            while any(account.held for account in (await self._sample()).accounts):
                await asyncio.sleep(SAMPLE_SECONDS)
        finally:
            sampling.cancel()

    async def _serve(self, numbers: Iterator[int]) -> None:
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
        """Counts an impression and schedules its feedback."""
        report: dict[str, Any]
        if self.world.is_void(number):
            report = {"void": True}
        else:
            outcome = self.world.outcome(number, banner)
            self.plays[banner] += 1
            self.clicks += outcome.reward
            self.expected += self.world.mean_reward(number, banner)
            report = {"reward": outcome.reward, "costs": outcome.costs}
        if not self.world.is_missing(number):
            heapq.heappush(self._due, (number + self.world.delay(number), next(self._order), decision_id, report))

    def _report_due(self, number: int | None) -> None:
        """Reports feedback due before a request, or all of it without one."""
        while self._due and (number is None or self._due[0][0] <= number):
            _, _, decision_id, report = heapq.heappop(self._due)
            self.client.report(CAMPAIGN, decision_id, **report)

    async def _sample_forever(self) -> None:
        while True:
            await self._sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _sample(self) -> Campaign:
        campaign = await self.client.campaign(CAMPAIGN)
        self.samples.append(Sample(self.done, campaign))
        return campaign
