"""Importance weights of a target policy on a log, and diagnostics of their reliability."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.evaluation.log import Log

# Below this effective sample size the intervals rest on too few rounds.
EFFECTIVE_MIN = 200.0
# The same for rounds in which the target plays a real arm: where it mostly plays null, few rounds count.
EFFECTIVE_PLAYED_MIN = 50.0
# A round with a larger share of the total weight dominates the estimate.
LARGEST_SHARE_MAX = 0.05
# The expectation of the mean weight is known. Farther away from it, the propensities are wrong or the log does not
# support the target. By Bernstein's inequality (for martingales: Freedman 1975) a right log deviates by more than
# √(2x)·standard error + x/3·largest possible weight / n with a probability of 2·exp(-x): seven in ten thousand.
DEVIATION_EXPONENT = 8.0
# Less unsupported probability moves no estimate by more than a thousandth of the range of the outcome.
UNSUPPORTED_MAX = 1e-3
# Less probability that goes to null moves no estimate by more than a hundredth of the range of the outcome.
MOVED_MAX = 0.01


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

    effective: float  # effective sample size, in rounds: exact if the log has all probabilities, else Kish's
    weight_mean: float  # mean importance weight of real arms; its expectation is `mass` - `unsupported`
    weight_error: float  # standard error of weight_mean - mass, exact if the log has all probabilities
    weight_largest: float
    largest_share: float  # the largest weight / the sum of all weights
    mass: float  # probability that the target gives to real arms
    restricted: float  # probability that the target gave to arms that were not eligible; null gets it instead
    unplayable: float  # share of rounds without any eligible arm
    unsupported: float | None  # probability that it gives to arms that the log could not draw; None if unknown
    weight_possible: float | None = None  # the largest π/p of any arm in any round; None if unknown
    effective_played: float | None = None  # effective, of the rounds in which the target plays a real arm


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

    It knows the weights that were drawn only. An arm that the log hardly ever plays has a large weight that is not
    among them, so this is for logs without probabilities; see `exact_effective_size`.

    >>> effective_sample_size(np.array([1.0, 1.0, 0.0, 0.0])), effective_sample_size(np.zeros(3))
    (2.0, 0.0)
    """
    energy = float(weights @ weights)
    return float(weights.sum()) ** 2 / energy if energy > 0.0 else 0.0


def weight_moments(log: Log, probabilities: Array, power: int = 2) -> Array:
    """Return Σ_a π(a)^k / p(a)^(k-1) by arm and round, the expectations of w^k given the context: (n, arms).

    Arms that the log could not draw count as 0. The log must have all probabilities.

    >>> log = Log.of(features=np.zeros((1, 1)), eligible=np.ones((1, 2), dtype=bool), arm=[0], propensity=[0.8],
    ...              reward=[1], costs=[[1]], probabilities=[[0.8, 0.2]])
    >>> weight_moments(log, np.array([[0.5, 0.5]])).round(4)
    array([[0.3125, 1.25  ]])
    """
    assert log.probabilities is not None
    possible = (log.probabilities > 0.0) & (probabilities > 0.0)
    ratio = np.divide(probabilities, log.probabilities, out=np.zeros_like(probabilities), where=possible)
    return np.asarray(probabilities * ratio ** (power - 1))


def exact_effective_size(squares: Array) -> float:
    """Return n / mean of Σ_a π²/p, from `weight_moments`, at most n; 0 for a policy that only plays null.

    Σ_a π²/p is the expected square of the weight in a round, whatever arm was drawn. With weights of mean 1 it is what
    Kish's size estimates.

    >>> exact_effective_size(np.array([[0.0, 4.0], [0.0, 4.0]])), exact_effective_size(np.zeros((2, 1)))
    (0.5, 0.0)
    """
    rounds, energy = squares.shape[0], float(squares.sum(axis=1).mean())
    return min(float(rounds), rounds / energy) if energy > 0.0 else 0.0


def overlap(log: Log, probabilities: Array, weights: Array, restricted: float) -> Overlap:
    """Return the diagnostics for probabilities (n, arms) that are 0 for arms that were not eligible."""
    mass, rounds, total = probabilities.sum(axis=1), log.rounds, float(weights.sum())
    unsupported = possible = None
    effective = played = effective_sample_size(weights)
    variance = float(np.square(weights - mass).mean() - (weights - mass).mean() ** 2)
    if log.probabilities is not None:
        drawable = probabilities * (log.probabilities > 0.0)
        unsupported = float((mass - drawable.sum(axis=1)).mean())
        squares = weight_moments(log, probabilities)
        effective = exact_effective_size(squares)
        energy = float(squares.sum(axis=1).mean())
        played = rounds * float(drawable.sum(axis=1).mean()) ** 2 / energy if energy > 0.0 else 0.0
        variance = float((squares.sum(axis=1) - drawable.sum(axis=1) ** 2).mean())
        ratios = np.divide(squares, probabilities, out=np.zeros_like(squares), where=probabilities > 0.0)
        possible = max(float(ratios.max()), float(weights.max()))
    return Overlap(
        effective=effective,
        weight_mean=float(weights.mean()),
        weight_error=float(np.sqrt(max(variance, 0.0) / rounds)),
        weight_largest=float(weights.max()),
        largest_share=float(weights.max()) / total if total > 0.0 else 0.0,
        mass=float(mass.mean()),
        restricted=restricted,
        unplayable=float((~log.eligible.any(axis=1)).mean()),
        unsupported=unsupported,
        weight_possible=possible,
        effective_played=played,
    )


def cautions(found: Overlap, rounds: int) -> tuple[Caution, ...]:
    """Return the reasons to doubt the estimates.

    >>> poor = Overlap(12.0, 0.2, 0.02, 9.0, 0.3, 1.0, 0.0, 0.0, None)
    >>> [caution.code for caution in cautions(poor, 1000)]
    ['effective_sample_size', 'largest_weight', 'weight_mean']
    """
    expected = found.mass - (found.unsupported or 0.0)
    deviation = abs(found.weight_mean - expected)
    largest = found.weight_largest if found.weight_possible is None else found.weight_possible
    by_chance = np.sqrt(2.0 * DEVIATION_EXPONENT) * found.weight_error + DEVIATION_EXPONENT / 3.0 * largest / rounds
    played = found.effective if found.effective_played is None else found.effective_played
    few = found.effective < EFFECTIVE_MIN or played < EFFECTIVE_PLAYED_MIN
    checks = {
        "effective_sample_size": (
            found.mass > 0.0 and few,
            f"the effective sample size is only {min(found.effective, played):.3g} of {rounds:,} rounds",
        ),
        "largest_weight": (
            found.largest_share > LARGEST_SHARE_MAX,
            f"one round has {found.largest_share:.0%} of the total weight",
        ),
        "weight_mean": (
            deviation > max(by_chance, np.finfo(np.float64).eps),
            f"the mean weight is {found.weight_mean:.4g}, but {expected:.4g} is expected: "
            f"the probabilities in the log are wrong, or the log hardly ever plays arms that this policy plays",
        ),
        "unsupported": (
            (found.unsupported or 0.0) > UNSUPPORTED_MAX,
            f"the policy gives {found.unsupported or 0.0:.1%} of its probability to arms that the log could not draw",
        ),
        "restricted": (
            found.restricted > MOVED_MAX,
            f"the policy gave {found.restricted:.1%} of its probability to ineligible arms: it plays null there",
        ),
        "unplayable": (
            found.unplayable > MOVED_MAX,
            f"no arm was eligible in {found.unplayable:.1%} of the rounds: the policy plays null there",
        ),
    }
    return tuple(Caution(code, text) for code, (holds, text) in checks.items() if holds)
