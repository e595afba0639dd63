"""Importance weights of a target policy on a log, and how far they can be trusted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.evaluation.log import Log

# Below these an interval says little: the bootstrap has too few rounds that matter to resample.
EFFECTIVE_MIN = 200.0
EFFECTIVE_SHARE_MIN = 0.01
# One round that is more than this share of all weight decides the estimate by itself.
LARGEST_SHARE_MAX = 0.05
# The mean weight has a known expectation; so many standard errors from it, propensities or support are off.
DEVIATIONS_MAX = 4.0
# Less mass than this without support moves no estimate by more than a thousandth of the outcome's range.
UNSUPPORTED_MAX = 1e-3


class Caution(NamedTuple):
    """A reason to doubt an estimate."""

    code: str
    text: str


class Overlap(NamedTuple):
    """How well a log covers a target policy; masses and shares are means over the rounds."""

    effective: float  # effective sample size, in rounds
    weight_mean: float  # of the importance weights of real arms; expected: `mass` less `unsupported`
    weight_error: float  # standard error of weight_mean minus mass
    weight_largest: float
    largest_share: float  # of the largest weight in the sum of all
    mass: float  # the target's probability of real arms
    restricted: float  # probability it had given to arms that were not eligible, played as null instead
    unplayable: float  # share of rounds without any eligible arm
    unsupported: float | None  # probability it gives to arms the log could not have drawn; None where that is not known


def importance_weights(log: Log, probabilities: Array) -> Array:
    """w = π(a | x) / p(a | x) of the arm played, 0 for null (Horvitz & Thompson 1952): (n,).

    A null round needs no weight: its reward and costs are 0, whatever its probability.

    >>> log = Log.of(features=np.zeros((2, 1)), eligible=np.ones((2, 2), dtype=bool), arm=[1, -1],
    ...              propensity=[0.25, 0.5], reward=[1, 0], costs=[[1], [0]])
    >>> importance_weights(log, np.array([[0.5, 0.5], [0.5, 0.5]]))
    array([2., 0.])
    """
    drawn = probabilities[np.arange(log.rounds), log.arm]
    return np.where(log.played, drawn / log.propensity, 0.0)


def effective_sample_size(weights: Array) -> float:
    """(Σw)² / Σw² (Kish 1965): how many equally weighted rounds would be as good.

    >>> effective_sample_size(np.array([1.0, 1.0, 0.0, 0.0])), effective_sample_size(np.zeros(3))
    (2.0, 0.0)
    """
    energy = float(weights @ weights)
    return float(weights.sum()) ** 2 / energy if energy > 0.0 else 0.0


def overlap(log: Log, probabilities: Array, weights: Array, restricted: float) -> Overlap:
    """All of it, for probabilities (n, arms) that are already restricted to the eligible arms."""
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
    """What a reader of the estimates must know.

    >>> poor = Overlap(12.0, 0.2, 0.02, 9.0, 0.3, 1.0, 0.0, 0.0, None)
    >>> [caution.code for caution in cautions(poor, 1000)]
    ['effective_sample_size', 'largest_weight', 'weight_mean']
    """
    expected = found.mass - (found.unsupported or 0.0)
    away = abs(found.weight_mean - expected)
    told = {
        "effective_sample_size": (
            found.mass > 0.0 and found.effective < max(EFFECTIVE_MIN, EFFECTIVE_SHARE_MIN * rounds),
            f"the estimates rest on {found.effective:.0f} effective rounds of {rounds}",
        ),
        "largest_weight": (
            found.largest_share > LARGEST_SHARE_MAX,
            f"one round carries {found.largest_share:.0%} of all weight",
        ),
        "weight_mean": (
            away > DEVIATIONS_MAX * max(found.weight_error, np.finfo(np.float64).eps),
            f"weights average {found.weight_mean:.4g} where {expected:.4g} is expected: "
            f"the log's probabilities are wrong, or it never plays what this policy would",
        ),
        "unsupported": (
            (found.unsupported or 0.0) > UNSUPPORTED_MAX,
            f"{found.unsupported or 0.0:.1%} of the policy's probability is on arms the log could not have drawn",
        ),
        "restricted": (
            found.restricted > 0.0,
            f"{found.restricted:.1%} of the policy's probability was on arms not eligible then: it plays null there",
        ),
        "unplayable": (
            found.unplayable > 0.0,
            f"in {found.unplayable:.1%} of the rounds no arm was eligible: the policy plays null there",
        ),
    }
    return tuple(Caution(code, text) for code, (holds, text) in told.items() if holds)
