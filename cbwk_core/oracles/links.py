"""Links σ of the generalised linear class (paper, section "Applications"): prediction = σ(φᵀθ)."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from cbwk_core.arrays import Array

# Newton's method doubles its digits at every step: one more after this is exact.
IMPLICIT_TOLERANCE = 1e-9
IMPLICIT_STEPS_MAX = 100


@dataclass(frozen=True)
class Identity:
    """σ(z) = z: the linear class.

    >>> float(Identity().mean(0.3)), Identity().least_slope(1.0)
    (0.3, 1.0)
    """

    def mean(self, score: Array | float) -> Array:
        """σ(z)."""
        return np.asarray(score, dtype=np.float64)

    def slope(self, score: Array) -> Array:
        """σ'(z)."""
        return np.ones_like(score)

    def least_slope(self, radius: float) -> float:
        """The c of Newtonized GLMtron: the least slope on [-radius, radius]."""
        del radius
        return 1.0


@dataclass(frozen=True)
class Logistic:
    """σ(z) = 1 / (1 + e⁻ᶻ), computed without overflow.

    >>> float(Logistic().mean(0.0)), float(Logistic().mean(-1000.0))
    (0.5, 0.0)
    """

    def mean(self, score: Array | float) -> Array:
        """σ(z)."""
        small = np.exp(-np.abs(score))  # at most 1, whatever the sign
        return np.asarray(np.where(np.asarray(score) >= 0.0, 1.0, small) / (1.0 + small))

    def slope(self, score: Array) -> Array:
        """σ'(z) = σ(z)(1 - σ(z))."""
        mean = self.mean(score)
        return mean * (1.0 - mean)

    def least_slope(self, radius: float) -> float:
        """The c of Newtonized GLMtron: σ' falls with |z|, so its least value is at the edge."""
        return float(self.slope(np.asarray(radius)))


def implicit_score(score: float, leverage: float, target: float) -> float:
    """The z with z = score + leverage·(target - σ(z)), for the logistic σ: where a row takes the score it finds.

    z - leverage·(target - σ(z)) rises in z, is convex below 0 and concave above, so Newton's method goes straight to
    the root from 0, or from the score if the row pushes it away from 0. It is then about as many steps as ln(leverage);
    a step cut off there would only be shorter.

    >>> z = implicit_score(-4.0, 6.5, 1.0)  # a click where 2 % was predicted, and little known
    >>> round(z, 3), round(-4.0 + 6.5 * (1.0 - 1.0 / (1.0 + exp(-z))), 3)
    (-0.287, -0.287)
    """
    z = score if (target - _mean(score)) * score >= 0.0 else 0.0
    for _ in range(IMPLICIT_STEPS_MAX):
        mean = _mean(z)
        step = (z - score - leverage * (target - mean)) / (1.0 + leverage * mean * (1.0 - mean))
        z -= step
        if abs(step) <= IMPLICIT_TOLERANCE * (1.0 + abs(z)):
            break
    return z


def _mean(score: float) -> float:
    """The logistic σ of one plain float."""
    small = exp(-abs(score))
    return (1.0 if score >= 0.0 else small) / (1.0 + small)


Link = Identity | Logistic
LINKS: dict[str, Link] = {"identity": Identity(), "logistic": Logistic()}
