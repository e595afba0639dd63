"""Off-policy evaluation: what another policy would have earned and spent on the rounds of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, broadcast, finite, frozen
from cbwk_core.evaluation.bernstein import dr_radius, ips_radius, snips_radius
from cbwk_core.evaluation.bootstrap import bca_interval, blocks, resampled
from cbwk_core.evaluation.estimators import Rows, dr_rows, ips_rows, snips_ratio, snips_rows
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.outcome_model import OutcomeModel, Predicted, cross_fit, fold_of, predict_rows, reduced
from cbwk_core.evaluation.parallel import Progress
from cbwk_core.evaluation.run_out import RunOut, run_out
from cbwk_core.evaluation.targets import Target, restrict
from cbwk_core.evaluation.weights import Caution, Overlap, cautions, importance_weights, overlap

RESTRICTION = (
    "The policy is restricted to the arms that were eligible in each logged round: "
    "where it would have played another arm, it plays null."
)
# What `progress` counts to, and how much of it each part of the work is: a target that learns takes longest.
PROGRESS_TOTAL = 1000
_PARTS = {"target": (0, 600), "fit": (600, 700), "predict": (700, 900)}


class Estimate(NamedTuple):
    """Mean per round of the reward and then each cost, all (1 + d,) or, with lower and upper end, (1 + d, 2)."""

    value: Array
    error: Array  # standard error
    bootstrap: Array
    bernstein: Array


@dataclass(frozen=True)
class Evaluation:
    """The answer: three estimates, how well the log covers the policy, and what to be careful about."""

    rounds: int
    level: float
    ips: Estimate
    snips: Estimate
    dr: Estimate
    overlap: Overlap
    weight_max: float  # bound on weights that empirical Bernstein took
    weight_max_from: str  # "given", "probabilities" of the log, or the largest "seen", which proves nothing
    cautions: tuple[Caution, ...]
    run_out: RunOut | None  # where budgets were given
    restriction: str = RESTRICTION


class _Ask(NamedTuple):
    """The checked arguments."""

    ranges: Array  # (1 + d, 2), from at most 0 to at least 0
    level: float
    replicates: int
    budget: Array | None
    horizon: int


class _Weighted(NamedTuple):
    """A target on a log."""

    weights: Array  # (n,)
    mass: Array  # (n,)
    outcomes: Array  # (n, 1 + d)
    ratio: Array  # (1 + d,)


def evaluate(
    log: Log,
    target: Target,
    *,
    rng: np.random.Generator,
    model: OutcomeModel | ArrayLike | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    max_cost: ArrayLike = 1.0,
    weight_max: float | None = None,
    budget: ArrayLike | None = None,
    horizon: int | None = None,
    level: float = 0.95,
    replicates: int = 2000,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Estimate reward and costs per round of a target policy.

    model: how outcomes are predicted for the doubly robust estimate, or predictions (n, arms, 1 + d) made from others.
    reward_range, max_cost: what outcomes can be, for empirical Bernstein; weight_max: a bound on π/p if one is known.
    budget: per resource or one for all, for the time at which the policy would have run out, of a flight of `horizon`
    rounds (as many as the log has, if not given). jobs: see `in_parallel`. progress: told (done, PROGRESS_TOTAL).

    >>> from cbwk_core.evaluation import Uniform
    >>> rng = np.random.default_rng(1)
    >>> arm = rng.integers(2, size=1000)
    >>> log = Log.of(features=np.ones((1000, 1)), eligible=np.ones((1000, 2), dtype=bool), arm=arm,
    ...              propensity=np.full(1000, 0.5), reward=arm, costs=0.25 + 0.5 * arm[:, None])
    >>> found = evaluate(log, Uniform(), rng=rng, budget=250.0)
    >>> found.dr.value.round(2), round(found.run_out.share.value, 1), found.cautions
    (array([0.5, 0.5]), 0.5, ())
    """
    ask = _checked(log, reward_range, max_cost, budget, horizon, level, replicates)
    kept = restrict(target.probabilities(log, _part(progress, "target")), log)
    weights, outcomes = importance_weights(log, kept.probabilities), log.outcomes
    weighted = _Weighted(weights, kept.probabilities.sum(axis=1), outcomes, snips_ratio(weights, outcomes))
    predicted, fold = _predictions(log, kept.probabilities, model, ask.ranges, jobs, progress)
    rows = Rows(
        ips=ips_rows(weights, outcomes),
        snips=snips_rows(weights, outcomes, weighted.mass, weighted.ratio),
        dr=dr_rows(weights, outcomes, predicted.played, predicted.expected),
    )
    bound, bound_from = _weight_bound(log, kept.probabilities, weights, weight_max)
    error = 1.0 - ask.level
    radii = Rows(
        ips=ips_radius(rows.ips, ask.ranges, bound, error),
        snips=snips_radius(weights, outcomes, weighted.mass, weighted.ratio, ask.ranges, bound, error),
        dr=dr_radius(rows.dr, fold, ask.ranges, bound, error),
    )
    estimates = _estimates(rows, weighted, radii, ask, rng)
    covered = overlap(log, kept.probabilities, weights, kept.moved)
    end = None
    if ask.budget is not None:
        end = run_out(rows.dr, ask.budget, ask.horizon, level=ask.level, replicates=ask.replicates, rng=rng)
    if progress is not None:
        progress(PROGRESS_TOTAL, PROGRESS_TOTAL)
    return Evaluation(
        rounds=log.rounds,
        level=ask.level,
        ips=estimates[0],
        snips=estimates[1],
        dr=estimates[2],
        overlap=covered,
        weight_max=bound,
        weight_max_from=bound_from,
        cautions=cautions(covered, log.rounds),
        run_out=end,
    )


def _checked(
    log: Log,
    reward_range: tuple[float, float],
    max_cost: ArrayLike,
    budget: ArrayLike | None,
    horizon: int | None,
    level: float,
    replicates: int,
) -> _Ask:
    low, high = finite("reward_range", reward_range, (2,)).tolist()
    most = broadcast("max_cost", max_cost, (log.resources,))
    if not low < high or most.min() <= 0.0:
        raise ValueError(f"reward_range and max_cost must not be empty, got {low}..{high} and {most.tolist()}")
    ranges = np.stack([np.append(low, np.zeros(log.resources)), np.append(high, most)], axis=1)
    outcomes = log.outcomes[log.played]
    for name, (least, largest), values in zip(
        ["reward", *(f"cost {j}" for j in range(log.resources))], ranges.tolist(), outcomes.T, strict=True
    ):
        if values.size and not (least <= values.min() and values.max() <= largest):
            raise ValueError(f"{name} must lie in {least:g}..{largest:g}, got {values.min():g}..{values.max():g}")
    ranges[:, 0], ranges[:, 1] = np.minimum(ranges[:, 0], 0.0), np.maximum(ranges[:, 1], 0.0)
    granted = None if budget is None else broadcast("budget", budget, (log.resources,))
    if granted is not None and granted.min() < 0.0:
        raise ValueError(f"budget must not be negative, got {granted.min()}")
    flight = log.rounds if horizon is None else horizon
    for what, size in (("horizon", flight), ("replicates", replicates)):
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"{what} must be a whole number of at least 1, got {size!r}")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")
    return _Ask(frozen(ranges), level, int(replicates), granted, int(flight))


def _part(progress: Progress | None, name: str) -> Progress | None:
    """The reports of one part of the work as reports of the whole."""
    if progress is None:
        return None
    start, stop = _PARTS[name]
    return lambda done, total: progress(start + (stop - start) * done // max(total, 1), PROGRESS_TOTAL)


def _predictions(
    log: Log,
    probabilities: Array,
    model: OutcomeModel | ArrayLike | None,
    ranges: Array,
    jobs: int | None,
    progress: Progress | None,
) -> tuple[Predicted, Integers]:
    """What the model says of each round, and which rounds share a fit."""
    if model is not None and not isinstance(model, OutcomeModel):
        given = finite("predictions", model, (log.rounds, log.arms, 1 + log.resources))
        clipped = np.clip(given, ranges[:, 0], ranges[:, 1])
        return reduced(clipped, log.arm, probabilities), np.zeros(log.rounds, dtype=np.int64)
    chosen = OutcomeModel() if model is None else model
    unit = np.abs(ranges).max(axis=1)
    fitted = cross_fit(log, chosen, unit, jobs=jobs, progress=_part(progress, "fit"))
    part = _part(progress, "predict")
    return predict_rows(log, fitted, probabilities, ranges, jobs=jobs, progress=part), fold_of(log.rounds, chosen.folds)


def _weight_bound(log: Log, probabilities: Array, weights: Array, given: float | None) -> tuple[float, str]:
    """A bound on the weights: the caller's, that of every arm the log could have drawn, or the largest seen."""
    largest = float(weights.max())
    if given is not None:
        if not largest <= given < np.inf:
            raise ValueError(f"weight_max must be finite and at least the largest weight, {largest}, got {given!r}")
        return float(given), "given"
    if log.probabilities is None:
        return largest, "seen"
    possible = log.probabilities > 0.0
    ratios = np.divide(probabilities, log.probabilities, out=np.zeros_like(probabilities), where=possible)
    return max(float(ratios.max()), largest), "probabilities"


def _estimates(rows: Rows, weighted: _Weighted, radii: Rows, ask: _Ask, rng: np.random.Generator) -> list[Estimate]:
    """IPS, SNIPS and DR with both intervals, all from the same draws."""
    k = weighted.outcomes.shape[1]
    sums = blocks(np.concatenate([rows.ips, rows.dr, weighted.weights[:, None], weighted.mass[:, None]], axis=1))
    drawn = resampled(sums, ask.replicates, rng)
    count, weight, mass = drawn[:, :1], drawn[:, -2:-1], drawn[:, -1:]
    ips, dr = drawn[:, 1 : 1 + k], drawn[:, 1 + k : 1 + 2 * k] / count
    ratio = np.divide(ips, weight, out=np.zeros_like(ips), where=weight > 0.0)
    values = [each.mean(axis=0) for each in rows]
    influences = [rows.ips - values[0], _snips_influence(weighted), rows.dr - values[2]]
    replicates = [ips / count, ratio * mass / count, dr]
    return [
        _estimate(value, influence, replicate, radius, ask)
        for value, influence, replicate, radius in zip(values, influences, replicates, radii, strict=True)
    ]


def _snips_influence(weighted: _Weighted) -> Array:
    """(mean mass / mean w)·w·(y - θ) + θ·(mass - mean mass): the ratio's derivative by each round (delta method)."""
    weights, mass, outcomes, ratio = weighted
    scale = mass.mean() / weights.mean() if weights.any() else 0.0
    return np.asarray(scale * weights[:, None] * (outcomes - ratio) + (mass - mass.mean())[:, None] * ratio)


def _estimate(value: Array, influence: Array, replicates: Array, radius: Array, ask: _Ask) -> Estimate:
    grouped = blocks(influence)[:, 1:]
    intervals = [
        bca_interval(float(value[j]), replicates[:, j], grouped[:, j], ask.level) for j in range(value.shape[0])
    ]
    # The truth lies in the range, so what a bound adds beyond it says nothing.
    ends = np.stack([value - radius, value + radius], axis=1)
    bernstein = np.clip(ends, ask.ranges[:, :1], ask.ranges[:, 1:])
    error = influence.std(axis=0) / np.sqrt(influence.shape[0])
    return Estimate(frozen(value), frozen(error), frozen(np.array(intervals)), frozen(bernstein))
