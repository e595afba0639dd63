"""Link functions σ of the generalised linear class (paper, section "Applications"): prediction = σ(φᵀθ)."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from cbwk_core.arrays import Array

# Newton's method doubles the number of correct digits in every step, so a result this close is accurate to rounding.
IMPLICIT_TOLERANCE = 1e-9
IMPLICIT_STEPS_MAX = 100


@dataclass(frozen=True)
class Identity:
    """The link of the linear class: σ(z) = z.

    >>> float(Identity().mean(0.3)), Identity().least_slope(1.0)
    (0.3, 1.0)
    """

    def mean(self, score: Array | float) -> Array:
        """Return σ(z)."""
        return np.asarray(score, dtype=np.float64)

    def slope(self, score: Array) -> Array:
        """Return σ'(z)."""
        return np.ones_like(score)

    def least_slope(self, radius: float) -> float:
        """Return the smallest slope on [-radius, radius], the constant c of Newtonized GLMtron."""
        del radius
        return 1.0


@dataclass(frozen=True)
class Logistic:
    """The link of the logistic class: σ(z) = 1 / (1 + e⁻ᶻ), computed without overflow.

    >>> float(Logistic().mean(0.0)), float(Logistic().mean(-1000.0))
    (0.5, 0.0)
    """

    def mean(self, score: Array | float) -> Array:
        """Return σ(z)."""
        small = np.exp(-np.abs(score))  # at most 1 for either sign of the score
        return np.asarray(np.where(np.asarray(score) >= 0.0, 1.0, small) / (1.0 + small))

    def slope(self, score: Array) -> Array:
        """Return σ'(z) = σ(z)(1 - σ(z))."""
        mean = self.mean(score)
        return mean * (1.0 - mean)

    def least_slope(self, radius: float) -> float:
        """Return the smallest slope on [-radius, radius]; σ' falls with |z|, so this is the slope at the radius."""
        return float(self.slope(np.asarray(radius)))


def implicit_score(score: float, leverage: float, target: float) -> float:
    """Return the root z of z = score + leverage·(target - σ(z)) for the logistic σ: the score after an implicit step.

    The function z - leverage·(target - σ(z)) increases in z; it is convex below 0 and concave above. Newton's method
    therefore converges monotonically from 0, or from the score if the row moves the score away from 0. It needs about
    ln(leverage) steps; if the iteration stopped earlier, the step of θ would only be shorter.

    >>> z = implicit_score(-4.0, 6.5, 1.0)  # a click, a prediction of 2 % and few earlier outcomes
    >>> round(z, 3), round(-4.0 + 6.5 * (1.0 - 1.0 / (1.0 + exp(-z))), 3)
    (-0.287, -0.287)
    """
    z = score if (target - _logistic(score)) * score >= 0.0 else 0.0
    for _ in range(IMPLICIT_STEPS_MAX):
        mean = _logistic(z)
        step = (z - score - leverage * (target - mean)) / (1.0 + leverage * mean * (1.0 - mean))
        z -= step
        if abs(step) <= IMPLICIT_TOLERANCE * (1.0 + abs(z)):
            break
    return z


def _logistic(score: float) -> float:
    """Return the logistic σ of one Python float."""
    small = exp(-abs(score))
    return (1.0 if score >= 0.0 else small) / (1.0 + small)


Link = Identity | Logistic
LINKS: dict[str, Link] = {"identity": Identity(), "logistic": Logistic()}


def implicit_scores(score: Array, leverage: Array, y: Array) -> Array:
    """Return `implicit_score` of one row per lane, computed one by one: the same bits for any number of lanes."""
    ravelled = (np.ravel(part).tolist() for part in (score, leverage, y))
    return np.reshape([implicit_score(*row) for row in zip(*ravelled, strict=True)], score.shape)
