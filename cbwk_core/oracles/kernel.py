"""Gaussian-kernel regression: Newton on random Fourier features (Rahimi & Recht 2007).

    k(x, y) = exp(-‖x - y‖² / (2·bandwidth²)) ≈ 2·φ(x)ᵀφ(y) - 1
    φ(x) = √½·[1, √(2/F)·cos(ω_1ᵀx), √(2/F)·sin(ω_1ᵀx), …]   with F/2 frequencies ω ~ N(0, I/bandwidth²)

The cosine and the sine of one frequency make φ(x)ᵀφ(x) exact. The constant coordinate makes constant functions linear
in φ. The factor √½ gives φ norm 1, which the bound of Newton assumes.

The frequencies come from a low-discrepancy sequence. It covers the normal distribution more evenly than random numbers,
and it is the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, frozen
from cbwk_core.oracles.newton import Newton
from cbwk_core.oracles.newton_state import NewtonState
from cbwk_core.oracles.oracle import checked_candidates, checked_rows

# Default bandwidth per √dimension. Contexts in [0, 1] are about 0.4·√dimension apart: with this bandwidth neighbours
# share most of what they learn, and opposite corners share little.
BANDWIDTH_PER_ROOT = 0.5
FIXED_POINT_BITS = 64
MANTISSA_BITS = 53


@dataclass(frozen=True)
class Kernel:
    """Configuration of the oracle.

    features: the length of the Fourier part of φ, two for each frequency; the error of k falls with its square root.
    bandwidth: the distance over which targets are similar; None selects half the square root of the dimension.
    seed: selects the section of the sequence that the frequencies come from.
    constant: the last coordinate of a context is a constant; the oracle ignores it because φ has a constant coordinate.

    >>> oracle = Kernel(dimension=1, targets=1, bandwidth=0.2, ridge=0.01)
    >>> state = oracle.update(oracle.init(), [[0.0], [0.5], [1.0]], [[0.0], [1.0], [0.0]])  # not linear in x
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
        assert self.newton.dimension == self.features + 1  # creating Newton checks the other options

    @property
    def newton(self) -> Newton:
        """The oracle that learns on φ(x)."""
        return Newton(dimension=self.features + 1, targets=self.targets, blocks=self.blocks, ridge=self.ridge)

    @property
    def parameters(self) -> int:
        """The number of parameters of one target: θ on φ(x), features + 1 of them in every block."""
        return self.newton.parameters

    def lift(self, x: Array) -> Array:
        """Return φ of contexts (..., dimension), shape (..., features + 1) and norm 1."""
        used = self.dimension - self.constant
        bandwidth = BANDWIDTH_PER_ROOT * np.sqrt(used) if self.bandwidth is None else self.bandwidth
        phase = x[..., :used] @ (normal_points(used, self.features // 2, self.seed).T / bandwidth)
        parts = [np.full((*x.shape[:-1], 1), np.sqrt(self.features / 2.0)), np.cos(phase), np.sin(phase)]
        return np.asarray(np.concatenate(parts, axis=-1) / np.sqrt(self.features))

    def init(self, lanes: int = 1) -> NewtonState:
        """Return the initial state of Newton on φ(x)."""
        return self.newton.init(lanes)

    def predict(self, state: NewtonState, features: ArrayLike) -> Array:
        """Return φ(x)ᵀθ for every candidate, shape (n, k * blocks, targets)."""
        x = checked_candidates(self, features, state.theta.shape[0])
        return self.newton.predict(state, self.lift(x))

    def spread(self, state: NewtonState, features: ArrayLike) -> Array:
        """Return the leverage of φ(x) for every candidate, shape (n, k * blocks)."""
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
        """Return the state after Newton's update with φ(x)."""
        x, y = checked_rows(self, state.theta.shape[0], features, targets)
        return self.newton.update(state, self.lift(x), y, block, weight)

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """Return Newton's bound with m = features + 1; it assumes a truth φᵀθ* with ‖θ*‖ <= 1."""
        return self.newton.error_bound(rounds, delta)

    def resize(self, state: NewtonState, blocks: int) -> NewtonState:
        """Return the state with blocks appended that have learnt nothing."""
        return self.newton.resize(state, blocks)


@lru_cache(maxsize=64)
def normal_points(dimension: int, points: int, seed: int = 0) -> Array:
    """Return evenly spread points (points, dimension) of the standard normal distribution.

    Point i is Φ⁻¹(i·α mod 1) with α_j = g^-j, where g is the root of g^(dimension + 1) = g + 1 (the golden ratio in one
    dimension). The next seed continues the sequence. Fixed-point numbers keep the sequence exact for every seed.

    >>> normal_points(1, 3).round(2).tolist()
    [[0.3], [-0.72], [1.05]]
    """
    ratio = 2.0
    for _ in range(FIXED_POINT_BITS):  # a contraction: every step halves the error at least
        ratio = (1.0 + ratio) ** (1.0 / (dimension + 1))
    scale, dropped_bits = 2**FIXED_POINT_BITS, FIXED_POINT_BITS - MANTISSA_BITS
    steps = [int(ratio ** -(j + 1) * scale) for j in range(dimension)]
    indices = range(seed * points + 1, (seed + 1) * points + 1)
    fixed = [[(i * step % scale) >> dropped_bits for step in steps] for i in indices]
    uniforms = (np.array(fixed, dtype=np.float64) + 0.5) / 2.0**MANTISSA_BITS
    # Imported here because the import is slow and only this oracle needs it.
    from scipy.special import ndtri  # noqa: PLC0415

    return frozen(np.asarray(ndtri(uniforms)))
