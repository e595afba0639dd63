"""Off-policy evaluation: estimates the reward and the costs of another policy on the rounds of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, broadcast, finite, frozen
from cbwk_core.evaluation.bernstein import dr_radius, ips_radius, snips_radius
from cbwk_core.evaluation.bootstrap import bca_interval, blocks, resampled
from cbwk_core.evaluation.estimators import PerEstimator, dr_rows, ips_rows, snips_ratio, snips_rows
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.outcome_model import (
    OutcomeModel,
    Predicted,
    cross_fit,
    fold_of,
    played_and_expected,
    predict_rows,
)
from cbwk_core.evaluation.parallel import Progress
from cbwk_core.evaluation.run_out import RunOut, run_out
from cbwk_core.evaluation.targets import Target, restrict
from cbwk_core.evaluation.weights import Caution, Overlap, cautions, importance_weights, overlap

# What a reader of the estimates must know. The service shows this text with the result.
RESTRICTION = (
    "The policy is restricted to the arms that were eligible in each logged round: "
    "where it would have played another arm, it plays null."
)
# The last count of `progress`, and the counts of each phase. The phase "target" is long if the target learns.
PROGRESS_TOTAL = 1000
_PHASES = {"target": (0, 600), "fit": (600, 700), "predict": (700, 900)}


class Estimate(NamedTuple):
    """The estimated mean per round of the reward, then of each cost.

    >>> estimate = Estimate(value=np.array([0.5, 0.2]), error=np.array([0.01, 0.01]),
    ...                     bootstrap=np.array([[0.48, 0.52], [0.18, 0.22]]),
    ...                     bernstein=np.array([[0.40, 0.60], [0.10, 0.30]]))
    >>> estimate.value[0], estimate.bootstrap[0]
    (np.float64(0.5), array([0.48, 0.52]))
    """

    value: Array  # (1 + d,)
    error: Array  # (1 + d,), standard error
    bootstrap: Array  # (1 + d, 2), lower and upper end of the interval
    bernstein: Array  # (1 + d, 2), the same by empirical Bernstein bounds


@dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`: three estimates, how well the log covers the policy, and reasons to doubt.

    >>> from cbwk_core.evaluation import FixedArm
    >>> log = Log.of(features=np.ones((4, 1)), eligible=np.ones((4, 2), dtype=bool), arm=[0, 1, 0, 1],
    ...              propensity=[0.5] * 4, reward=[0, 1, 0, 1], costs=[[0.5]] * 4)
    >>> found = evaluate(log, FixedArm(1), rng=np.random.default_rng(1), replicates=10)
    >>> found.snips.value, [caution.code for caution in found.cautions]
    (array([1. , 0.5]), ['effective_sample_size', 'largest_weight'])
    """

    rounds: int
    level: float
    ips: Estimate
    snips: Estimate
    dr: Estimate
    overlap: Overlap
    weight_max: float  # the bound on weights in the empirical Bernstein bounds
    weight_max_from: str  # its source: "given", "probabilities" of the log, or the largest "seen", which is no proof
    cautions: tuple[Caution, ...]
    run_out: RunOut | None  # None without budgets
    restriction: str = RESTRICTION


class _Settings(NamedTuple):
    """The checked arguments of `evaluate`."""

    ranges: Array  # (1 + d, 2), of the reward and the costs; every range contains 0
    level: float
    replicates: int
    budget: Array | None
    horizon: int


class _Weighted(NamedTuple):
    """The weights of a target on a log."""

    weights: Array  # (n,)
    mass: Array  # (n,), the target's probability of real arms
    outcomes: Array  # (n, 1 + d)
    ratio: Array  # (1 + d,), `snips_ratio`


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
    """Return estimates of the reward and the costs per round of a target policy.

    model: the outcome model of the doubly robust estimate, or predictions (n, arms, 1 + d) from other data.
    reward_range, max_cost: the ranges of the outcomes. weight_max: a bound on π/p, if one is known.
    budget: per resource or one for all, to estimate when a flight of `horizon` rounds runs out of it. Without `horizon`
    the flight has the rounds of the log. jobs: see `in_parallel`. progress: called with (done, PROGRESS_TOTAL).

    >>> from cbwk_core.evaluation import Uniform
    >>> rng = np.random.default_rng(1)
    >>> arm = rng.integers(2, size=1000)
    >>> log = Log.of(features=np.ones((1000, 1)), eligible=np.ones((1000, 2), dtype=bool), arm=arm,
    ...              propensity=np.full(1000, 0.5), reward=arm, costs=0.25 + 0.5 * arm[:, None])
    >>> found = evaluate(log, Uniform(), rng=rng, budget=250.0)
    >>> found.dr.value.round(2), round(found.run_out.share.value, 1), found.cautions
    (array([0.5, 0.5]), 0.5, ())
    """
    settings = _checked(log, reward_range, max_cost, budget, horizon, level, replicates)
    probabilities, moved = restrict(target.probabilities(log, _phase_progress(progress, "target")), log)
    weights, outcomes = importance_weights(log, probabilities), log.outcomes
    weighted = _Weighted(weights, probabilities.sum(axis=1), outcomes, snips_ratio(weights, outcomes))
    predicted, fold = _predictions(log, probabilities, model, settings.ranges, jobs, progress)
    rows = PerEstimator(
        ips=ips_rows(weights, outcomes),
        snips=snips_rows(weights, outcomes, weighted.mass, weighted.ratio),
        dr=dr_rows(weights, outcomes, predicted.played, predicted.expected),
    )
    bound, bound_from = _weight_bound(log, probabilities, weights, weight_max)
    ranges, level, replicates = settings.ranges, settings.level, settings.replicates
    error = 1.0 - level
    radii = PerEstimator(
        ips=ips_radius(rows.ips, ranges, bound, error),
        snips=snips_radius(weights, outcomes, weighted.mass, weighted.ratio, ranges, bound, error),
        dr=dr_radius(rows.dr, fold, ranges, bound, error),
    )
    estimates = _estimates(rows, weighted, radii, settings, rng)
    covered = overlap(log, probabilities, weights, moved)
    end = None
    if settings.budget is not None:
        end = run_out(rows.dr, settings.budget, settings.horizon, level=level, replicates=replicates, rng=rng)
    if progress is not None:
        progress(PROGRESS_TOTAL, PROGRESS_TOTAL)
    return Evaluation(
        rounds=log.rounds,
        level=level,
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
) -> _Settings:
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
    return _Settings(frozen(ranges), level, int(replicates), granted, int(flight))


def _phase_progress(progress: Progress | None, phase: str) -> Progress | None:
    """Return a function that reports the progress of one phase as progress of the evaluation."""
    if progress is None:
        return None
    start, stop = _PHASES[phase]
    return lambda done, total: progress(start + (stop - start) * done // max(total, 1), PROGRESS_TOTAL)


def _predictions(
    log: Log,
    probabilities: Array,
    model: OutcomeModel | ArrayLike | None,
    ranges: Array,
    jobs: int | None,
    progress: Progress | None,
) -> tuple[Predicted, Integers]:
    """Return the predictions for each round, and the fold of each round."""
    if model is not None and not isinstance(model, OutcomeModel):
        given = finite("predictions", model, (log.rounds, log.arms, 1 + log.resources))
        clipped = np.clip(given, ranges[:, 0], ranges[:, 1])
        return played_and_expected(clipped, log.arm, probabilities), np.zeros(log.rounds, dtype=np.int64)
    configuration = OutcomeModel() if model is None else model
    unit = np.abs(ranges).max(axis=1)
    fitted = cross_fit(log, configuration, unit, jobs=jobs, progress=_phase_progress(progress, "fit"))
    report = _phase_progress(progress, "predict")
    predicted = predict_rows(log, fitted, probabilities, ranges, jobs=jobs, progress=report)
    return predicted, fold_of(log.rounds, configuration.folds)


def _weight_bound(log: Log, probabilities: Array, weights: Array, given: float | None) -> tuple[float, str]:
    """Return a bound on the weights and its source; see `Evaluation.weight_max_from`."""
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


def _estimates(
    rows: PerEstimator, weighted: _Weighted, radii: PerEstimator, settings: _Settings, rng: np.random.Generator
) -> list[Estimate]:
    """Return IPS, SNIPS and DR with both intervals, from the same bootstrap draws."""
    k = weighted.outcomes.shape[1]
    sums = blocks(np.concatenate([rows.ips, rows.dr, weighted.weights[:, None], weighted.mass[:, None]], axis=1))
    drawn = resampled(sums, settings.replicates, rng)
    count, weight, mass = drawn[:, :1], drawn[:, -2:-1], drawn[:, -1:]
    ips, dr = drawn[:, 1 : 1 + k], drawn[:, 1 + k : 1 + 2 * k] / count
    ratio = np.divide(ips, weight, out=np.zeros_like(ips), where=weight > 0.0)
    values = [each.mean(axis=0) for each in rows]
    influences = [rows.ips - values[0], _snips_influence(weighted), rows.dr - values[2]]
    replicates = [ips / count, ratio * mass / count, dr]
    return [
        _estimate(value, influence, replicate, radius, settings)
        for value, influence, replicate, radius in zip(values, influences, replicates, radii, strict=True)
    ]


def _snips_influence(weighted: _Weighted) -> Array:
    """Return (mean mass / mean w)·w·(y - θ) + θ·(mass - mean mass), the influence of each round by the delta method."""
    weights, mass, outcomes, ratio = weighted
    scale = mass.mean() / weights.mean() if weights.any() else 0.0
    return np.asarray(scale * weights[:, None] * (outcomes - ratio) + (mass - mass.mean())[:, None] * ratio)


def _estimate(value: Array, influence: Array, replicates: Array, radius: Array, settings: _Settings) -> Estimate:
    grouped = blocks(influence)[:, 1:]
    intervals = [
        bca_interval(float(value[j]), replicates[:, j], grouped[:, j], settings.level) for j in range(value.shape[0])
    ]
    # The expectation lies in the range of the outcome, so the interval is cut there.
    ends = np.stack([value - radius, value + radius], axis=1)
    bernstein = np.clip(ends, settings.ranges[:, :1], settings.ranges[:, 1:])
    error = influence.std(axis=0) / np.sqrt(influence.shape[0])
    return Estimate(frozen(value), frozen(error), frozen(np.array(intervals)), frozen(bernstein))
