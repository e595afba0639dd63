"""Gaussian-kernel regression: random Fourier features (Rahimi & Recht 2007) under Newton.

    k(x, y) = exp(-‖x - y‖² / (2·bandwidth²)) ≈ 2·φ(x)ᵀφ(y) - 1
    φ(x) = √½·[1, √(2/F)·cos(ω_1ᵀx), √(2/F)·sin(ω_1ᵀx), …]   with F/2 frequencies ω ~ N(0, I/bandwidth²)

A cosine and a sine of the same frequency make φ(x)ᵀφ(x) exact, and the constant coordinate lets constants be expressed;
the factor √½ gives φ the norm 1 that Newton's bound takes for granted.

The frequencies come from a low-discrepancy sequence, which covers the normal distribution more evenly than chance and
is the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, frozen
from cbwk_core.oracles.newton import Newton, NewtonState
from cbwk_core.oracles.oracle import checked_candidates, checked_rows

# Default bandwidth per √dimension: contexts scaled to [0, 1] lie about 0.4·√dimension apart, so that neighbours share
# most of what they learn and opposite corners little.
BANDWIDTH_PER_ROOT = 0.5
FIXED_POINT_BITS = 64
MANTISSA_BITS = 53


@dataclass(frozen=True)
class Kernel:
    """Configuration of the oracle.

    features: length of the Fourier part of φ, two for each frequency; the error of k falls with its square root.
    bandwidth: distance over which targets are alike; None takes half the square root of the dimension.
    seed: which stretch of the sequence the frequencies are taken from.
    constant: the last coordinate of a context is a constant; φ has its own, so this one is left out.

    >>> oracle = Kernel(dimension=1, targets=1, bandwidth=0.2, ridge=0.01)
    >>> state = oracle.update(oracle.init(), [[0.0], [0.5], [1.0]], [[0.0], [1.0], [0.0]])  # no line does this
    >>> oracle.predict(state, np.array([[0.0], [0.5], [1.0]]))[:, 0, 0].round(1)
    array([0., 1., 0.])
    """

    dimension: int
    targets: int
    blocks: int = 1
    features: int = 100
    bandwidth: float | None = None
    ridge: float = 1.0
    seed: int = 0
    constant: bool = False

    def __post_init__(self) -> None:
        if self.features < 2 or self.features % 2:
            raise ValueError(f"features must be an even number, a cosine and a sine each, got {self.features}")
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise ValueError(f"bandwidth must be positive, got {self.bandwidth}")
        if self.dimension - self.constant < 1:
            raise ValueError(f"dimension must leave a coordinate beside the constant, got {self.dimension}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        assert self.newton.dimension == self.features + 1  # and Newton checks what is left

    @property
    def newton(self) -> Newton:
        """The oracle that learns on lifted features."""
        return Newton(dimension=self.features + 1, targets=self.targets, blocks=self.blocks, ridge=self.ridge)

    def lift(self, x: Array) -> Array:
        """φ of contexts (..., dimension): (..., features + 1), of norm 1."""
        used = self.dimension - self.constant
        bandwidth = BANDWIDTH_PER_ROOT * np.sqrt(used) if self.bandwidth is None else self.bandwidth
        phase = x[..., :used] @ (normal_points(used, self.features // 2, self.seed).T / bandwidth)
        parts = [np.full((*x.shape[:-1], 1), np.sqrt(self.features / 2.0)), np.cos(phase), np.sin(phase)]
        return np.asarray(np.concatenate(parts, axis=-1) / np.sqrt(self.features))

    def init(self, lanes: int = 1) -> NewtonState:
        """Newton's state on lifted features."""
        return self.newton.init(lanes)

    def predict(self, state: NewtonState, features: ArrayLike) -> Array:
        """φ(x)ᵀθ for every candidate: (n, k * blocks, targets)."""
        x = checked_candidates(self, features, state.theta.shape[0])
        return self.newton.predict(state, self.lift(x))

    def spread(self, state: NewtonState, features: ArrayLike) -> Array:
        """The leverage of the lifted candidates: (n, k * blocks)."""
        x = checked_candidates(self, features, state.theta.shape[0])
        return self.newton.spread(state, self.lift(x))

    def update(
        self,
        state: NewtonState,
        features: ArrayLike,
        targets: ArrayLike,
        block: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> NewtonState:
        """Newton's update with lifted features."""
        x, y = checked_rows(self, state.theta.shape[0], features, targets)
        return self.newton.update(state, self.lift(x), y, block, weight)

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """Newton's bound with m = features + 1, for a truth φᵀθ* with ‖θ*‖ <= 1."""
        return self.newton.error_bound(rounds, delta)

    def resize(self, state: NewtonState, blocks: int) -> NewtonState:
        """Append blocks that know nothing."""
        return self.newton.resize(state, blocks)


@lru_cache(maxsize=64)
def normal_points(dimension: int, points: int, seed: int = 0) -> Array:
    """Evenly spread points (points, dimension) of the standard normal distribution; the next ones for the next seed.

    Point i is Φ⁻¹(i·α mod 1) with α_j = g^-j and g the root of g^(dimension + 1) = g + 1, the golden ratio in one
    dimension. Fixed-point numbers keep the sequence exact for any seed.

    >>> normal_points(1, 3).round(2).tolist()
    [[0.3], [-0.72], [1.05]]
    """
    ratio = 2.0
    for _ in range(FIXED_POINT_BITS):  # a contraction: the error falls at least by half in each step
        ratio = (1.0 + ratio) ** (1.0 / (dimension + 1))
    scale, surplus = 2**FIXED_POINT_BITS, FIXED_POINT_BITS - MANTISSA_BITS
    steps = [int(ratio ** -(j + 1) * scale) for j in range(dimension)]
    stretch = range(seed * points + 1, (seed + 1) * points + 1)
    fixed = [[(i * step % scale) >> surplus for step in steps] for i in stretch]
    uniforms = (np.array(fixed, dtype=np.float64) + 0.5) / 2.0**MANTISSA_BITS
    # Takes long to import, and only this oracle needs it.
    from scipy.special import ndtri  # noqa: PLC0415

    return frozen(np.asarray(ndtri(uniforms)))
