"""Rounds on a clock, windows by its hours and days, and the prices of their periods.

A policy in a run with windows gets what the service gives it: in `free` the least of its budget and of its windows, and
in `pace` what a decision may cost for each window to last to its end, by the traffic of the run so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.rules.pace import window_paces
from cbwk_core.rules.traffic import HOURS_PER_DAY, HOURS_PER_WEEK, MICROS_PER_HOUR, expected_rounds, no_traffic
from cbwk_core.simulation.dual_regret import sampled_means
from cbwk_core.simulation.environment import Environment
from cbwk_core.simulation.ledger import Ledger, Limits, Prices

# Traffic at night over that of the busiest hour; the range of that of a weekend's day; deviations of the logarithm from
# day to day and from hour to hour.
NIGHT, WEEKEND, DAY_NOISE, HOUR_NOISE = 0.1, (0.4, 1.0), 0.1, 0.2
WEEKEND_DAYS = (2, 3)  # of a week that begins on a Thursday, as 1970 did
CLOCK_SEED = 3_000_017
# Points of the curve of spend over price. A price between two of them gives a bound that is as good.
PRICE_POINTS = 120


class Window(NamedTuple):
    """A limit in every period of `hours` hours of the clock.

    rho: what it pays per round of even traffic, so that the limit grows with the rounds in a period.
    """

    resource: int
    hours: int
    rho: float


class Flight(NamedTuple):
    """The times of a run's rounds in microseconds; hour 0 of the clock begins a week."""

    start: int
    times: Integers  # (horizon,)


def flight(seed: int, horizon: int, days: int) -> Flight:
    """Return a flight that starts at a random hour, with random traffic by day and night, weekday and weekend.

    >>> found = flight(1, horizon=1_000, days=7)
    >>> bool((np.diff(found.times) >= 0).all()), bool(found.times[-1] - found.start <= 7 * 24 * MICROS_PER_HOUR)
    (True, True)
    """
    rng = np.random.default_rng([CLOCK_SEED, seed])
    first, peak, weekend = int(rng.integers(HOURS_PER_WEEK)), rng.uniform(0.0, HOURS_PER_DAY), rng.uniform(*WEEKEND)
    hour = first + np.arange(days * HOURS_PER_DAY)
    rate = NIGHT + (1.0 - NIGHT) * (1.0 + np.cos(2.0 * np.pi * (hour - peak) / HOURS_PER_DAY)) / 2.0
    rate *= np.where(np.isin(hour // HOURS_PER_DAY % 7, WEEKEND_DAYS), weekend, 1.0)
    by_day = np.exp(DAY_NOISE * rng.standard_normal(days + 1))[hour // HOURS_PER_DAY - first // HOURS_PER_DAY]
    rate *= by_day * np.exp(HOUR_NOISE * rng.standard_normal(hour.size))
    cumulated = np.concatenate([[0.0], rate.cumsum()])
    hours = np.interp(np.sort(rng.random(horizon)), cumulated / cumulated[-1], np.arange(hour.size + 1.0))
    return Flight(first * MICROS_PER_HOUR, ((first + hours) * MICROS_PER_HOUR).astype(np.int64))


def limits_of(windows: Sequence[Window], flights: Sequence[Flight], days: int) -> list[Limits]:
    """Return the accounts of the periods of each window in each lane's flight."""
    found, times = [], np.stack([each.times for each in flights], axis=1)
    for window in windows:
        period = times // (window.hours * MICROS_PER_HOUR)
        period -= period.min(axis=0)
        periods = int(period.max()) + 1
        amount = window.rho * len(times) * window.hours / (days * HOURS_PER_DAY)
        number = period + periods * np.arange(len(flights))
        found.append(Limits(window.resource, np.full(periods * len(flights), amount), number))
    return found


class CalendarLedger(Ledger):
    """A ledger that paces windows by the traffic so far; with `foresight` by the rounds that really come."""

    def __init__(
        self,
        budget: Array,
        windows: Sequence[Window],
        flights: Sequence[Flight],
        days: int,
        *,
        foresight: bool = False,
    ) -> None:
        super().__init__(budget, len(flights), limits_of(windows, flights, days))
        self.windows, self.foresight = windows, foresight
        self.times = np.stack([each.times for each in flights], axis=1)
        # As in the service an hour without decisions counts as seen before the first one.
        self.since = np.array([each.start for each in flights]) - MICROS_PER_HOUR
        self.counts = np.stack([no_traffic() for _ in flights])

    def offer(self, number: int) -> dict[str, Array]:
        """Return what each lane is free to hold, and what a round may cost."""
        return super().offer(number) | {"pace": self._paces(number)}

    def _paces(self, number: int) -> Array:
        pace, now, rest = np.full(self.left.shape, np.inf), self.times[number], len(self.times) - number
        for window, limits, left in zip(self.windows, self.limits, self.left_of_limits, strict=True):
            length, accounts = window.hours * MICROS_PER_HOUR, limits.number[number]
            end = (now // length + 1) * length
            amount, rounds = limits.amount[accounts], self._rounds(number, end)
            rates = window_paces(amount, left[accounts], (end - now) / length, rounds, np.full(len(now), rest))
            pace[:, window.resource] = np.minimum(pace[:, window.resource], rates)
        return pace

    def _rounds(self, number: int, ends: Integers) -> Array:
        """Return the rounds to expect before the ends of the periods, (lanes,)."""
        if self.foresight:
            return np.asarray((self.times[number:] < ends).sum(axis=0, dtype=np.float64))
        return np.asarray(expected_rounds(self.counts, self.since, self.times[number], ends))

    def book(self, number: int, costs: Array) -> None:
        """Book the costs of a round and count it in the traffic."""
        super().book(number, costs)
        hours = self.times[number] // MICROS_PER_HOUR % HOURS_PER_WEEK
        self.counts[np.arange(len(hours)), hours] += 1


def period_prices(environments: Sequence[Environment], budget: float, limits: Limits, horizon: int) -> Prices:
    """Return the prices of the program with a budget and one window of a single resource, from contexts of no run.

    Contexts have one distribution in all periods. So a period with n rounds has the price λ at which the mean spend of
    the best arms is limit/n, or 0; where these spend more than the budget in all, no price is below that of the budget.

    >>> from cbwk_core.simulation.kinds import one_resource
    >>> limits = Limits(0, np.array([10.0, 10.0]), np.array([[0]] * 90 + [[1]] * 10))
    >>> prices = period_prices([one_resource(0, 100)], 50.0, limits, 100)
    >>> bool(prices.limits[0][0] > 0.0), float(prices.limits[0][1]), float(prices.budget[0, 0])
    (True, 0.0, 0.0)
    """
    of_budget, of_limits = np.zeros((len(environments), 1)), np.zeros(len(limits.amount))
    for lane, environment in enumerate(environments):
        grid, spend = _cached_spend_curve(cast(Any, environment), horizon)
        accounts, rounds = np.unique(limits.number[:, lane], return_counts=True)
        each = np.interp(-limits.amount[accounts] / rounds, -spend, grid)
        totals = np.interp(np.maximum(each, grid[:, None]), grid, spend) @ rounds
        of_budget[lane] = np.interp(-budget, -totals, grid) if totals[0] > budget else 0.0
        of_limits[accounts] = np.maximum(each - of_budget[lane], 0.0)
    return Prices(of_budget, [of_limits])


def even_paces(limits: Limits, budget: float) -> Array:
    """Return what a round may cost by the rounds of its own period, and of the horizon: (horizon, lanes, 1).

    >>> even_paces(Limits(0, np.array([4.0, 4.0]), np.array([[0], [0], [1]])), budget=9.0).ravel()
    array([2., 2., 3.])
    """
    rounds = np.bincount(limits.number.ravel(), minlength=len(limits.amount))
    paces = np.minimum(limits.amount / np.maximum(rounds, 1), budget / len(limits.number))
    return np.asarray(paces[limits.number][..., None])


@lru_cache(maxsize=256)
def _cached_spend_curve(environment: Any, horizon: int) -> tuple[Array, Array]:
    """Return prices and the mean spend of the best arms at each, which never grows: (PRICE_POINTS,) each."""
    rewards, costs = sampled_means(environment, horizon)
    if costs.shape[2] != 1:
        raise ValueError(f"windows are priced for one resource, got {costs.shape[2]}")
    cost, context = costs[..., 0], np.arange(len(costs))
    grid = np.linspace(0.0, float(np.quantile((rewards / np.maximum(cost, 1e-12)).max(axis=1), 0.999)), PRICE_POINTS)
    spend = np.empty(PRICE_POINTS)
    for point, price in enumerate(grid):
        worth = rewards - price * cost
        best = worth.argmax(axis=1)
        spend[point] = (cost[context, best] * (worth[context, best] > 0.0)).mean()
    return frozen(grid), frozen(np.minimum.accumulate(spend))
