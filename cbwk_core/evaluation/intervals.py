"""The intervals of the three estimators: bootstrap, empirical Bernstein, and confidence sequences for adaptive logs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.evaluation.bernstein import dr_radius, ips_radius, snips_radius
from cbwk_core.evaluation.bootstrap import bca_interval, blocks, resampled
from cbwk_core.evaluation.estimators import PerEstimator, dr_rows, ips_rows, snips_ratio, snips_rows
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.outcome_model import Predicted
from cbwk_core.evaluation.sequences import asymptotic_radius, bernstein_sequence
from cbwk_core.evaluation.weights import weight_moments

# The skewness of an estimate above which bootstrap intervals of independent rounds miss too often: 25 rare events.
SKEWNESS_MAX = 0.2
# Pseudo-outcomes of each arm, with the largest residual of all arms: an arm of few outcomes may have seen no event yet.
PSEUDO_COUNT = 0.5
# Effective rounds per degree of freedom of a bootstrap interval, and the fewest degrees: a few large weights determine
# the variance of an estimate.
ROUNDS_PER_DEGREE = 10.0
FREEDOM_MIN = 5.0


class Estimate(NamedTuple):
    """The estimated mean per round of the reward, then of each cost.

    >>> estimate = Estimate(value=np.array([0.5, 0.2]), error=np.array([0.01, 0.01]),
    ...                     bootstrap=np.array([[0.48, 0.52], [0.18, 0.22]]),
    ...                     bernstein=np.array([[0.40, 0.60], [0.10, 0.30]]),
    ...                     sequence=np.array([[0.46, 0.54], [0.16, 0.24]]))
    >>> estimate.value[0], estimate.bootstrap[0]
    (np.float64(0.5), array([0.48, 0.52]))
    """

    value: Array  # (1 + d,), clipped to what the ranges of the outcomes allow
    error: Array  # (1 + d,), standard error
    bootstrap: Array  # (1 + d, 2), lower and upper end; holds `sequence` if the log is adaptive or the rows are skewed
    bernstein: Array  # (1 + d, 2), by empirical Bernstein bounds, a confidence sequence if the log is adaptive
    sequence: Array  # (1 + d, 2), the asymptotic confidence sequence


class Weighted(NamedTuple):
    """The weights of a target on a log, and the predictions for the doubly robust estimate."""

    weights: Array  # (n,)
    mass: Array  # (n,), the target's probability of real arms
    outcomes: Array  # (n, 1 + d)
    ratio: Array  # (1 + d,), `snips_ratio`
    predicted: Predicted
    fold: Integers  # (n,), of the predictions

    @classmethod
    def of(cls, log: Log, probabilities: Array, weights: Array, predicted: Predicted, fold: Integers) -> Weighted:
        """Return the weights with the ratio that normalises them."""
        outcomes = log.outcomes
        return cls(weights, probabilities.sum(axis=1), outcomes, snips_ratio(weights, outcomes), predicted, fold)

    def rows(self) -> PerEstimator:
        """Return the rows of each estimator: (n, 1 + d) each."""
        return PerEstimator(
            ips=ips_rows(self.weights, self.outcomes),
            snips=snips_rows(self.weights, self.outcomes, self.mass, self.ratio),
            dr=dr_rows(self.weights, self.outcomes, self.predicted.played, self.predicted.expected),
        )

    def known(self) -> PerEstimator:
        """Return the part of each row that does not depend on the arm drawn: 0, θ·mass and Σ_a π(a)·q_a."""
        ratio = self.mass[:, None] * self.ratio
        return PerEstimator(np.zeros_like(self.outcomes), ratio, self.predicted.expected)

    def residuals(self) -> PerEstimator:
        """Return what the weight multiplies in each row: y, y - θ and y - q."""
        return PerEstimator(self.outcomes, self.outcomes - self.ratio, self.outcomes - self.predicted.played)


class Terms(NamedTuple):
    """What the intervals depend on beside the rows."""

    ranges: Array  # (1 + d, 2), of the outcomes; every range contains 0
    possible: Array  # (1 + d, 2), of the mean outcome on the contexts of the log
    weight_max: float
    effective: float  # effective sample size
    level: float
    replicates: int
    adaptive: bool


def estimates(
    log: Log, probabilities: Array, weighted: Weighted, terms: Terms, rng: np.random.Generator
) -> list[Estimate]:
    """Return IPS, SNIPS and DR with all intervals; the bootstrap draws are the same for the three."""
    rows, drawn = weighted.rows(), _replicates(weighted, terms.replicates, rng)
    values = [each.mean(axis=0) for each in rows]
    influences = [rows.ips - values[0], _snips_influence(weighted), rows.dr - values[2]]
    sure = _sequences(weighted, rows, terms) if terms.adaptive else _radii(weighted, rows, values, terms)
    moments = _arm_moments(log, probabilities)
    spreads = [
        _spread(log, moments, *parts) for parts in zip(rows, weighted.known(), weighted.residuals(), strict=True)
    ]
    found = []
    for value, influence, replicate, bernstein, spread in zip(values, influences, drawn, sure, spreads, strict=True):
        radius = asymptotic_radius(spread.variance, terms.ranges, log.rounds, 1.0 - terms.level)
        sequence = _clipped(np.stack([value - radius, value + radius], axis=1), terms.ranges)
        ends = _bootstrap(value, replicate, influence, terms)
        bootstrap = _clipped(value[:, None] + spread.excess[:, None] * (ends - value[:, None]), terms.ranges)
        longer = np.full(value.size, terms.adaptive) | (spread.skewness > SKEWNESS_MAX)
        bootstrap = np.where(longer[:, None], _hull(bootstrap, sequence), bootstrap)
        shown = np.clip(value, terms.possible[:, 0], terms.possible[:, 1])
        point = np.stack([shown, shown], axis=1)
        error = influence.std(axis=0) / np.sqrt(log.rounds)
        intervals = [frozen(_hull(ends, point)) for ends in (bootstrap, bernstein, sequence)]
        found.append(Estimate(frozen(shown), frozen(error), *intervals))
    return found


def _clipped(ends: Array, ranges: Array) -> Array:
    return np.clip(ends, ranges[:, :1], ranges[:, 1:])


def _hull(ends: Array, other: Array) -> Array:
    """Return the shortest intervals that contain both."""
    return np.stack([np.minimum(ends[:, 0], other[:, 0]), np.maximum(ends[:, 1], other[:, 1])], axis=1)


def _radii(weighted: Weighted, rows: PerEstimator, values: list[Array], terms: Terms) -> list[Array]:
    """Return the empirical Bernstein intervals of independent rounds: (1 + d, 2) each."""
    weights, mass, outcomes, ratio, _, fold = weighted
    error, ranges = 1.0 - terms.level, terms.ranges
    radii = (
        ips_radius(rows.ips, ranges, terms.weight_max, error),
        snips_radius(weights, outcomes, mass, ratio, ranges, terms.weight_max, error),
        dr_radius(rows.dr, fold, ranges, terms.weight_max, error),
    )
    return [
        _clipped(np.stack([value - radius, value + radius], axis=1), ranges)
        for value, radius in zip(values, radii, strict=True)
    ]


def _sequences(weighted: Weighted, rows: PerEstimator, terms: Terms) -> list[Array]:
    """Return the empirical Bernstein confidence sequences: (1 + d, 2) each.

    IPS and SNIPS have the same one. For every fixed θ the rows w·(y - θ) + θ·mass are a martingale around the target's
    mean outcomes. At the lower end of the range of y they are bounded below, at the upper end above, whatever the
    weight. DR is bounded on either side only by the largest weight.
    """
    weights, mass, outcomes, *_ = weighted
    low, high = terms.ranges.T
    length, error = high - low, 1.0 - terms.level
    ends = [snips_rows(weights, outcomes, mass, edge) for edge in (low, high)]
    either = bernstein_sequence(ends[0], ends[1], terms.ranges, length, error)
    robust = bernstein_sequence(rows.dr, rows.dr, terms.ranges, (1.0 + terms.weight_max) * length, error)
    return [either, either, robust]


class _Spread(NamedTuple):
    variance: Array  # (1 + d,), of the sum of the rows
    excess: Array  # (1 + d,), by how much its root exceeds that of the rows' own variance, as a factor
    skewness: Array  # (1 + d,)


def _arm_moments(log: Log, probabilities: Array) -> tuple[Array, ...] | None:
    """Return the sums over the rounds of π²/p and of π³/p² for each arm; None if the log does not say p."""
    if log.probabilities is None:
        return None
    return tuple(weight_moments(log, probabilities, power).sum(axis=0) for power in (2, 3))


def _spread(log: Log, weight_sums: tuple[Array, ...] | None, rows: Array, known: Array, residuals: Array) -> _Spread:
    """Return the variance of the sum of the rows, at least the one that the stored probabilities imply, and its skew.

    A row is known + w·e. Given the contexts, the expectation of w²e² is Σ_a π²/p·E[e² | a]: the log stores π²/p of
    every arm, drawn or not, and the outcomes of an arm estimate its E[e²]. So a weight that was never drawn counts.
    """
    own = variance = np.square(rows - rows.mean(axis=0)).sum(axis=0)
    third = (np.abs(rows - rows.mean(axis=0)) ** 3).sum(axis=0)
    played = np.flatnonzero(log.played)
    if weight_sums is not None and played.size:
        largest = np.abs(residuals[played]).max(axis=0)
        moments = []
        for power, weights in zip((2, 3), weight_sums, strict=True):
            totals = np.stack(
                [np.bincount(log.arm[played], column, log.arms) for column in np.abs(residuals[played].T) ** power],
                axis=1,
            )
            counts = np.bincount(log.arm[played], minlength=log.arms)[:, None]
            mean = (totals + PSEUDO_COUNT * largest**power) / (counts + PSEUDO_COUNT)
            moments.append(weights @ mean)
        explained = np.square(known - known.mean(axis=0)).sum(axis=0)
        drawn = rows.shape[0] * np.square((rows - known).mean(axis=0))
        variance = np.maximum(variance, explained + moments[0] - drawn)
        third = np.maximum(third, moments[1])
    skewness = np.divide(third, variance**1.5, out=np.zeros_like(third), where=variance > 0.0)
    excess = np.sqrt(np.divide(variance, own, out=np.ones_like(own), where=own > 0.0))
    return _Spread(variance, excess, skewness)


def _replicates(weighted: Weighted, count: int, rng: np.random.Generator) -> list[Array]:
    """Return the bootstrap replicates of IPS, SNIPS and DR: (count, 1 + d) each."""
    rows, k = weighted.rows(), weighted.outcomes.shape[1]
    sums = blocks(np.concatenate([rows.ips, rows.dr, weighted.weights[:, None], weighted.mass[:, None]], axis=1))
    drawn = resampled(sums, count, rng)
    rounds, weight, mass = drawn[:, :1], drawn[:, -2:-1], drawn[:, -1:]
    ips, dr = drawn[:, 1 : 1 + k], drawn[:, 1 + k : 1 + 2 * k] / rounds
    ratio = np.divide(ips, weight, out=np.zeros_like(ips), where=weight > 0.0)
    return [ips / rounds, ratio * mass / rounds, dr]


def _snips_influence(weighted: Weighted) -> Array:
    """Return (mean mass / mean w)·w·(y - θ) + θ·(mass - mean mass), the influence of each round by the delta method."""
    weights, mass, outcomes, ratio, *_ = weighted
    scale = mass.mean() / weights.mean() if weights.any() else 0.0
    return np.asarray(scale * weights[:, None] * (outcomes - ratio) + (mass - mass.mean())[:, None] * ratio)


def _bootstrap(value: Array, replicates: Array, influence: Array, terms: Terms) -> Array:
    """Return the bias-corrected and accelerated intervals: (1 + d, 2).

    Their percentiles are expanded as a quantile of Student's t is beside one of the normal (Hesterberg 2015).
    """
    grouped = blocks(influence)[:, 1:]
    freedom = max(terms.effective / ROUNDS_PER_DEGREE, FREEDOM_MIN)
    level = float(2.0 * ndtr(stdtrit(freedom, 0.5 + 0.5 * terms.level)) - 1.0)
    ends = [bca_interval(float(value[j]), replicates[:, j], grouped[:, j], level) for j in range(value.shape[0])]
    return np.array(ends)
