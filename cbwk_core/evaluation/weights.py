"""Importance weights of a target policy on a log, and diagnostics of their reliability."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.evaluation.log import Log

# Below one of these effective sample sizes the bootstrap resamples too few relevant rounds for a reliable interval.
EFFECTIVE_MIN = 200.0
EFFECTIVE_SHARE_MIN = 0.01
# A round with a larger share of the total weight dominates the estimate.
LARGEST_SHARE_MAX = 0.05
# The expectation of the mean weight is known. More standard errors away from it, the propensities are wrong or the log
# does not support the target.
DEVIATIONS_MAX = 4.0
# Less unsupported probability moves no estimate by more than a thousandth of the range of the outcome.
UNSUPPORTED_MAX = 1e-3


class Caution(NamedTuple):
    """A reason to doubt an estimate.

    >>> Caution("largest_weight", "one round has 30% of the total weight").code
    'largest_weight'
    """

    code: str
    text: str


class Overlap(NamedTuple):
    """How well a log covers a target policy. Probabilities are means over the rounds.

    >>> log = Log.of(features=np.zeros((2, 1)), eligible=np.ones((2, 2), dtype=bool), arm=[1, 0],
    ...              propensity=[0.5, 0.5], reward=[1, 0], costs=[[1], [0]])
    >>> always = np.array([[0.0, 1.0], [0.0, 1.0]])
    >>> found = overlap(log, always, importance_weights(log, always), restricted=0.0)
    >>> found.effective, found.weight_largest, found.largest_share
    (1.0, 2.0, 1.0)
    """

    effective: float  # effective sample size, in rounds
    weight_mean: float  # mean importance weight of real arms; its expectation is `mass` - `unsupported`
    weight_error: float  # standard error of weight_mean - mass
    weight_largest: float
    largest_share: float  # the largest weight / the sum of all weights
    mass: float  # probability that the target gives to real arms
    restricted: float  # probability that the target gave to arms that were not eligible; null gets it instead
    unplayable: float  # share of rounds without any eligible arm
    unsupported: float | None  # probability that it gives to arms that the log could not draw; None if unknown


def importance_weights(log: Log, probabilities: Array) -> Array:
    """Return w = π(a | x) / p(a | x) of the logged arm, 0 for null (Horvitz & Thompson 1952): (n,).

    A null round needs no weight, because its reward and costs are 0.

    >>> log = Log.of(features=np.zeros((2, 1)), eligible=np.ones((2, 2), dtype=bool), arm=[1, -1],
    ...              propensity=[0.25, 0.5], reward=[1, 0], costs=[[1], [0]])
    >>> importance_weights(log, np.array([[0.5, 0.5], [0.5, 0.5]]))
    array([2., 0.])
    """
    drawn = probabilities[np.arange(log.rounds), log.arm]
    return np.where(log.played, drawn / log.propensity, 0.0)


def effective_sample_size(weights: Array) -> float:
    """Return (Σw)² / Σw² (Kish 1965), the number of equally weighted rounds that would be as informative.

    >>> effective_sample_size(np.array([1.0, 1.0, 0.0, 0.0])), effective_sample_size(np.zeros(3))
    (2.0, 0.0)
    """
    energy = float(weights @ weights)
    return float(weights.sum()) ** 2 / energy if energy > 0.0 else 0.0


def overlap(log: Log, probabilities: Array, weights: Array, restricted: float) -> Overlap:
    """Return the diagnostics for probabilities (n, arms) that are 0 for arms that were not eligible."""
    mass = probabilities.sum(axis=1)
    total = float(weights.sum())
    unsupported = None
    if log.probabilities is not None:
        unsupported = float((probabilities * (log.probabilities <= 0.0)).sum(axis=1).mean())
    return Overlap(
        effective=effective_sample_size(weights),
        weight_mean=float(weights.mean()),
        weight_error=float((weights - mass).std() / np.sqrt(log.rounds)),
        weight_largest=float(weights.max()),
        largest_share=float(weights.max()) / total if total > 0.0 else 0.0,
        mass=float(mass.mean()),
        restricted=restricted,
        unplayable=float((~log.eligible.any(axis=1)).mean()),
        unsupported=unsupported,
    )


def cautions(found: Overlap, rounds: int) -> tuple[Caution, ...]:
    """Return the reasons to doubt the estimates.

    >>> poor = Overlap(12.0, 0.2, 0.02, 9.0, 0.3, 1.0, 0.0, 0.0, None)
    >>> [caution.code for caution in cautions(poor, 1000)]
    ['effective_sample_size', 'largest_weight', 'weight_mean']
    """
    expected = found.mass - (found.unsupported or 0.0)
    deviation = abs(found.weight_mean - expected)
    checks = {
        "effective_sample_size": (
            found.mass > 0.0 and found.effective < max(EFFECTIVE_MIN, EFFECTIVE_SHARE_MIN * rounds),
            f"the effective sample size is only {found.effective:.0f} of {rounds} rounds",
        ),
        "largest_weight": (
            found.largest_share > LARGEST_SHARE_MAX,
            f"one round has {found.largest_share:.0%} of the total weight",
        ),
        "weight_mean": (
            deviation > DEVIATIONS_MAX * max(found.weight_error, np.finfo(np.float64).eps),
            f"the mean weight is {found.weight_mean:.4g}, but {expected:.4g} is expected: "
            f"the probabilities in the log are wrong, or the log never plays arms that this policy plays",
        ),
        "unsupported": (
            (found.unsupported or 0.0) > UNSUPPORTED_MAX,
            f"the policy gives {found.unsupported or 0.0:.1%} of its probability to arms that the log could not draw",
        ),
        "restricted": (
            found.restricted > 0.0,
            f"the policy gave {found.restricted:.1%} of its probability to ineligible arms: it plays null there",
        ),
        "unplayable": (
            found.unplayable > 0.0,
            f"no arm was eligible in {found.unplayable:.1%} of the rounds: the policy plays null there",
        ),
    }
    return tuple(Caution(code, text) for code, (holds, text) in checks.items() if holds)
