"""Off-policy evaluation: estimates the reward and the costs of another policy on the rounds of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, broadcast, finite, frozen
from cbwk_core.evaluation.adaptivity import ADAPTIVE, FIXED, is_adaptive
from cbwk_core.evaluation.intervals import Estimate, Terms, Weighted, estimates
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.outcome_model import (
    OutcomeModel,
    Predicted,
    cross_fit,
    fold_of,
    played_and_expected,
    predict_forward,
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
# The time of running out follows the estimated costs in segments of the log with about this effective sample size.
SEGMENT_EFFECTIVE = 400.0
SEGMENTS_MAX = 10
# The last count of `progress`, and the counts of each phase. The phase "target" is long if the target learns.
PROGRESS_TOTAL = 1000
_PHASES = {"target": (0, 600), "fit": (600, 700), "predict": (700, 900), "forward": (600, 900)}


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
    adaptive: bool  # whether the intervals are those for a log whose policy learnt
    validity: str  # which estimators and intervals stay valid
    restriction: str = RESTRICTION


class _Settings(NamedTuple):
    """The checked arguments of `evaluate`."""

    ranges: Array  # (1 + d, 2), of the reward and the costs; every range contains 0
    played_ranges: Array  # (1 + d, 2), of the reward and the costs of a real arm
    level: float
    replicates: int
    budget: Array | None
    horizon: int


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
    adaptive: bool | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Return estimates of the reward and the costs per round of a target policy.

    model: the outcome model of the doubly robust estimate, or predictions (n, arms, 1 + d) from other data.
    reward_range, max_cost: the ranges of the outcomes. weight_max: a bound on π/p, if one is known.
    budget: per resource or one for all, to estimate when a flight of `horizon` rounds runs out of it. Without `horizon`
    the flight has the rounds of the log. adaptive: whether the log's policy learnt from its outcomes, so that only
    confidence sequences hold; None finds out from the stored probabilities (`is_adaptive`).
    jobs: see `in_parallel`. progress: called with (done, PROGRESS_TOTAL).

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
    learns = is_adaptive(log) if adaptive is None else adaptive
    probabilities, moved = restrict(target.probabilities(log, _phase_progress(progress, "target")), log)
    weights = importance_weights(log, probabilities)
    predicted, fold = _predictions(log, probabilities, model, settings.ranges, learns, jobs, progress)
    weighted = Weighted.of(log, probabilities, weights, predicted, fold)
    bound, bound_from = _weight_bound(log, probabilities, weights, weight_max)
    possible = weighted.mass.mean() * settings.played_ranges
    covered = overlap(log, probabilities, weights, moved)
    terms = Terms(settings.ranges, possible, bound, covered.effective, level, settings.replicates, learns)
    ips, snips, dr = estimates(log, probabilities, weighted, terms, rng)
    end = _run_out(weighted, settings, covered.effective, rng)
    if progress is not None:
        progress(PROGRESS_TOTAL, PROGRESS_TOTAL)
    return Evaluation(
        rounds=log.rounds,
        level=level,
        ips=ips,
        snips=snips,
        dr=dr,
        overlap=covered,
        weight_max=bound,
        weight_max_from=bound_from,
        cautions=cautions(covered, log.rounds),
        run_out=end,
        adaptive=learns,
        validity=ADAPTIVE if learns else FIXED,
    )


def _run_out(weighted: Weighted, settings: _Settings, effective: float, rng: np.random.Generator) -> RunOut | None:
    """Return when the budgets run out, by the doubly robust estimate; None without budgets."""
    if settings.budget is None:
        return None
    return run_out(
        weighted.rows().dr,
        settings.budget,
        settings.horizon,
        level=settings.level,
        replicates=settings.replicates,
        rng=rng,
        known=weighted.predicted.expected,
        segments=int(np.clip(effective // SEGMENT_EFFECTIVE, 1, SEGMENTS_MAX)),
        reward_range=(float(settings.ranges[0, 0]), float(settings.ranges[0, 1])),
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
    played_ranges = ranges.copy()
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
    return _Settings(frozen(ranges), frozen(played_ranges), level, int(replicates), granted, int(flight))


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
    adaptive: bool,
    jobs: int | None,
    progress: Progress | None,
) -> tuple[Predicted, Integers]:
    """Return predictions and the fold of each round; those of an adaptive log come from earlier rounds only."""
    if model is not None and not isinstance(model, OutcomeModel):
        given = finite("predictions", model, (log.rounds, log.arms, 1 + log.resources))
        clipped = np.clip(given, ranges[:, 0], ranges[:, 1])
        return played_and_expected(clipped, log.arm, probabilities), np.zeros(log.rounds, dtype=np.int64)
    configuration = OutcomeModel() if model is None else model
    unit = np.abs(ranges).max(axis=1)
    if adaptive:
        forward = predict_forward(
            log, configuration, unit, probabilities, ranges, progress=_phase_progress(progress, "forward")
        )
        return forward, np.zeros(log.rounds, dtype=np.int64)
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
