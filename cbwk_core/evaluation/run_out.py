"""Estimates when the budgets of a policy would have run out, and its reward until then."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array, Integers
from cbwk_core.evaluation.bootstrap import blocks, draw_counts

# The maximal number of blocks of a flight. The time of running out is interpolated within a block.
BLOCKS_MAX = 500
# The latest time of running out, as a share of the flight: a budget that lasts longer plays no part.
SHARE_MAX = 3.0
# A resource may be the first to run out if its time, less this number of standard errors, is below the earliest time
# plus the same number.
CONTENDING_ERRORS = 2.0


class Interval(NamedTuple):
    """An estimate with its interval.

    >>> Interval(0.62, lower=0.58, upper=0.66)
    Interval(value=0.62, lower=0.58, upper=0.66)
    """

    value: float
    lower: float
    upper: float


class RunOut(NamedTuple):
    """The time at which the first budget runs out.

    >>> end = RunOut(Interval(1.0, 0.9, 1.0), Interval(900.0, 850.0, 950.0), resource=None, lasts=0.8)
    >>> end.share.value, end.lasts
    (1.0, 0.8)
    """

    share: Interval  # share of the flight until then; 1 if all budgets last
    reward: Interval  # total reward until then
    resource: int | None  # the resource that runs out first; None if all budgets last
    lasts: float  # share of the bootstrap flights in which all budgets last


class _Flights(NamedTuple):
    """The paths of flights along the log: of the rounds, of the reward and of each cost."""

    paths: Array  # (flights, blocks, 2 + d), sums until the end of each block

    def ends(self, budget: Array) -> Array:
        """Return the share of the flight after which each budget is spent: (flights, d), up to `SHARE_MAX`.

        Beyond the end of the log, a flight goes on at its mean rate.
        """
        ends = np.full((self.paths.shape[0], budget.size), SHARE_MAX)
        flights, total = np.arange(self.paths.shape[0]), self.paths[:, -1, 0]
        for j, granted in enumerate(budget):
            path = self.paths[:, :, 2 + j]
            over, spent = path > granted, path[:, -1]
            first = over.argmax(axis=1)
            after, before = self.paths[flights, first], self._before(first)
            step = after[:, 2 + j] - before[:, 2 + j]
            part = (granted - before[:, 2 + j]) / np.where(step > 0.0, step, 1.0)
            inside = (before[:, 0] + part * (after[:, 0] - before[:, 0])) / total
            later = np.divide(granted, spent, out=np.full(spent.size, SHARE_MAX), where=spent * SHARE_MAX > granted)
            ends[:, j] = np.where(over.any(axis=1), np.minimum(inside, 1.0), np.clip(later, 1.0, SHARE_MAX))
        return ends

    def rewards(self, share: Array) -> Array:
        """Return the reward of each flight until that share of it: (flights,)."""
        flights, reached = np.arange(self.paths.shape[0]), share * self.paths[:, -1, 0]
        first = np.minimum((self.paths[:, :, 0] < reached[:, None]).sum(axis=1), self.paths.shape[1] - 1)
        after, before = self.paths[flights, first], self._before(first)
        rounds = after[:, 0] - before[:, 0]
        part = (reached - before[:, 0]) / np.where(rounds > 0.0, rounds, 1.0)
        return np.asarray(before[:, 1] + np.clip(part, 0.0, 1.0) * (after[:, 1] - before[:, 1]))

    def _before(self, block: Integers) -> Array:
        flights = np.arange(self.paths.shape[0])
        return np.where((block > 0)[:, None], self.paths[flights, np.maximum(block - 1, 0)], 0.0)


def run_out(
    rows: Array,
    budget: Array,
    horizon: int,
    *,
    level: float,
    replicates: int,
    rng: np.random.Generator,
    known: Array | None = None,
    segments: int = 1,
    reward_range: tuple[float, float] | None = None,
) -> RunOut:
    """Return when the budgets (d,) run out, from the estimated reward and costs of each round (n, 1 + d) in time order.

    The log represents a flight of `horizon` rounds, so each of its n rounds counts horizon / n times. The interval
    comes from flights that consist of the log's blocks, drawn with replacement and sorted by time.

    known (n, 1 + d): the part of the rows that was predicted; None if the rows are exact. The rest of the rows is noise
    around a small mean. A budget that were followed along this noise would be reached too early, so the rest is spread
    evenly over each of some `segments` of the log. The first of several estimated times is early, too, by chance;
    the estimate and the upper end are those of intersection bounds (Chernozhukov, Lee & Rosen 2013): each time counts
    with as many standard errors more as the largest error of the resources that may be the first has in half of the
    replicates (for the upper end, in all but the tail).

    reward_range: what a round can earn, 0 included. The estimates of few rounds go beyond it; the total is cut to it.

    >>> rows = np.tile([0.5, 0.25], (1000, 1))
    >>> end = run_out(rows, np.array([125.0]), 1000, level=0.95, replicates=50, rng=np.random.default_rng(1))
    >>> end.share.value, end.reward.value, end.resource
    (0.5, 250.0, 0)
    """
    scale, d = horizon / rows.shape[0], budget.size
    predicted = rows if known is None else known
    sums, rest = blocks(predicted, BLOCKS_MAX) * scale, blocks(rows - predicted, BLOCKS_MAX)[:, 1:] * scale
    knots = np.linspace(0, len(sums), min(segments, len(sums)) + 1).round().astype(np.int64)
    logged = _flown(np.ones((1, len(sums))), sums, rest, knots)
    drawn = _flown(draw_counts(len(sums), replicates, rng), sums, rest, knots)
    times, copies = logged.ends(budget)[0], drawn.ends(budget)
    errors = copies.std(axis=0)
    late = np.divide(copies - times, errors, out=np.zeros_like(copies), where=errors > 0.0)
    first = times - CONTENDING_ERRORS * errors <= (times + CONTENDING_ERRORS * errors).min()
    largest = late[:, first].max(axis=1)
    tail = (1.0 - level) / 2.0
    shift = float(np.median(largest)) * errors if known is not None and first.sum() > 1 else np.zeros(d)
    share = min(1.0, float((times + shift).min()))
    lower = min(share, float(np.quantile(copies, tail, axis=0).min()))
    upper = max(share, min(1.0, float((times + np.quantile(largest, 1.0 - tail) * errors).min())))
    shares = np.minimum((copies + shift).min(axis=1), 1.0)
    earned, rewards = float(logged.rewards(np.array([share]))[0]), drawn.rewards(shares)
    ends = np.quantile(rewards, [tail, 1.0 - tail]) + earned - np.median(rewards)
    if reward_range is not None:
        possible = horizon * np.array(reward_range)
        earned, ends = float(np.clip(earned, *share * possible)), np.clip(ends, *upper * possible)
    return RunOut(
        share=Interval(share, lower, upper),
        reward=Interval(earned, min(earned, float(ends[0])), max(earned, float(ends[1]))),
        resource=None if share >= 1.0 else int((times + shift).argmin()),
        lasts=float((shares >= 1.0).mean()),
    )


def _flown(counts: Array, sums: Array, rest: Array, knots: Integers) -> _Flights:
    """Return flights that contain each block counts (flights, blocks) times.

    sums: rounds, predicted reward and costs of each block (blocks, 2 + d). rest (blocks, 1 + d): what the estimates add
    to the predictions; it is spread over the rounds between two knots.
    """
    steps = counts[:, :, None] * sums
    for start, stop in pairwise(knots.tolist()):
        here = slice(start, stop)
        rounds = steps[:, here, 0]
        total = np.maximum(rounds.sum(axis=1), np.finfo(np.float64).tiny)
        added = (counts[:, here] @ rest[here]) / total[:, None]
        steps[:, here, 1:] += rounds[:, :, None] * added[:, None, :]
    return _Flights(steps.cumsum(axis=1))


def run_out_sentence(end: RunOut, names: Sequence[str] | None = None) -> str:
    """Return the estimate as a sentence; `names` are the names of the resources in their order.

    >>> end = RunOut(Interval(0.62, 0.58, 0.66), Interval(812.3, 790, 835), 0, 0.0)
    >>> run_out_sentence(end)
    'Under these budgets this policy would have run out of resource 0 at 62 % (58–66 %) of the flight; expected reward
    until then: 812.3 (790–835).'
    >>> large = RunOut(Interval(1, 1, 1), Interval(123456.7, 98765, 130000), None, 1.0)
    >>> run_out_sentence(large).split("; ")[1]
    'expected reward: 123,457 (98,765–130,000).'
    >>> run_out_sentence(end, ["usd"]).split(" at ")[0]
    'Under these budgets this policy would have run out of usd'
    """
    reward = f"{_figure(end.reward.value)} ({_figure(end.reward.lower)}–{_figure(end.reward.upper)})"
    if end.resource is None:
        return f"Under these budgets this policy would have lasted the flight; expected reward: {reward}."
    resource = f"resource {end.resource}" if names is None else names[end.resource]
    share = f"{100 * end.share.value:.0f} % ({100 * end.share.lower:.0f}–{100 * end.share.upper:.0f} %)"
    return (
        f"Under these budgets this policy would have run out of {resource} at {share} of the flight; "
        f"expected reward until then: {reward}."
    )


def _figure(value: float) -> str:
    """Four digits, and never an exponent of a large number."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"
