"""Links σ of the generalised linear class (paper, section "Applications"): prediction = σ(φᵀθ)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbwk_core.oracle import Array


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


Link = Identity | Logistic
LINKS: dict[str, Link] = {"identity": Identity(), "logistic": Logistic()}
