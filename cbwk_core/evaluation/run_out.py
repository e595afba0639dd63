"""Estimates when the budgets of a policy would have run out, and its reward until then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array, Integers
from cbwk_core.evaluation.bootstrap import blocks, draw_counts

# The maximal number of blocks of a flight. The time of running out is interpolated within a block.
BLOCKS_MAX = 500


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


class _Ends(NamedTuple):
    share: Array  # (flights,)
    reward: Array  # (flights,)
    resource: Integers  # (flights,), -1 if all budgets last


def run_out(
    rows: Array, budget: Array, horizon: int, *, level: float, replicates: int, rng: np.random.Generator
) -> RunOut:
    """Return when the budgets (d,) run out, from the estimated reward and costs of each round (n, 1 + d) in time order.

    The log represents a flight of `horizon` rounds, so each of its n rounds counts horizon / n times. The interval
    comes from flights that consist of the log's blocks, drawn with replacement and sorted by time.

    >>> rows = np.tile([0.5, 0.25], (1000, 1))
    >>> end = run_out(rows, np.array([125.0]), 1000, level=0.95, replicates=50, rng=np.random.default_rng(1))
    >>> end.share.value, end.reward.value, end.resource
    (0.5, 250.0, 0)
    """
    sums = blocks(rows, BLOCKS_MAX) * (horizon / rows.shape[0])
    logged = _ends(np.ones((1, sums.shape[0])), sums, budget)
    drawn = _ends(draw_counts(sums.shape[0], replicates, rng), sums, budget)
    tails = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    resource = int(logged.resource[0])
    return RunOut(
        share=Interval(float(logged.share[0]), *np.quantile(drawn.share, tails).tolist()),
        reward=Interval(float(logged.reward[0]), *np.quantile(drawn.reward, tails).tolist()),
        resource=None if resource < 0 else resource,
        lasts=float((drawn.resource < 0).mean()),
    )


def _ends(counts: Array, sums: Array, budget: Array) -> _Ends:
    """Return the ends of flights that contain each block counts (flights, blocks) times; sums: (blocks, 2 + d)."""
    steps = counts[:, :, None] * sums
    paths = steps.cumsum(axis=1)
    flights = np.arange(counts.shape[0])
    total = paths[:, -1, 0]
    share, reward = np.ones(flights.size), paths[:, -1, 1].copy()
    resource = np.full(flights.size, -1)
    for j, granted in enumerate(budget):
        over = paths[:, :, 2 + j] > granted
        first = over.argmax(axis=1)
        after, step = paths[flights, first], steps[flights, first]
        spent = step[:, 2 + j]
        part = (after[:, 2 + j] - granted) / np.where(spent > 0.0, spent, 1.0)
        ended = (after[:, 0] - part * step[:, 0]) / total
        sooner = over.any(axis=1) & (ended < share)
        share = np.where(sooner, ended, share)
        reward = np.where(sooner, after[:, 1] - part * step[:, 1], reward)
        resource = np.where(sooner, j, resource)
    return _Ends(share, reward, resource)


def run_out_sentence(end: RunOut, names: Sequence[str] | None = None) -> str:
    """Return the estimate as a sentence; `names` are the names of the resources in their order.

    >>> end = RunOut(Interval(0.62, 0.58, 0.66), Interval(812.3, 790, 835), 0, 0.0)
    >>> run_out_sentence(end)
    'Under these budgets this policy would have run out of resource 0 at 62 % (58–66 %) of the flight; expected reward
    until then: 812.3 (790–835).'
    >>> run_out_sentence(end, ["usd"]).split(" at ")[0]
    'Under these budgets this policy would have run out of usd'
    """
    reward = f"{end.reward.value:.4g} ({end.reward.lower:.4g}–{end.reward.upper:.4g})"
    if end.resource is None:
        return f"Under these budgets this policy would have lasted the flight; expected reward: {reward}."
    resource = f"resource {end.resource}" if names is None else names[end.resource]
    share = f"{100 * end.share.value:.0f} % ({100 * end.share.lower:.0f}–{100 * end.share.upper:.0f} %)"
    return (
        f"Under these budgets this policy would have run out of {resource} at {share} of the flight; "
        f"expected reward until then: {reward}."
    )
