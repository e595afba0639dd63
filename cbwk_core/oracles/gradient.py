"""Projected online gradient descent (Foster & Rakhlin 2020, Proposition 2).

    g = (σ(φᵀθ) - y) φ,   θ ← Proj(θ - g / √t)   with t the number of updates of the block, including this one

An update costs O(m), where Newton needs O(m²). The error grows with √T instead of ln T.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, folded, frozen
from cbwk_core.oracles.links import LINKS, Link
from cbwk_core.oracles.newton_state import linear_scores
from cbwk_core.oracles.oracle import check_sizes, checked_candidates, checked_growth, checked_update


class GradientState(NamedTuple):
    """What the oracle has learnt.

    >>> oracle = Gradient(dimension=2, targets=1)
    >>> oracle.update(oracle.init(), [[0.6, 0.0]], [[1.0]]).theta.ravel()
    array([0.6, 0. ])
    """

    theta: Array  # (lanes, m, blocks, targets)
    updates: Integers  # (lanes, blocks)

    def with_theta(self, theta: Array) -> GradientState:
        """Return the state with this θ."""
        return self._replace(theta=frozen(theta))

    def of_targets(self, chosen: slice) -> GradientState:
        """Return the state of an oracle for these targets alone."""
        return self._replace(theta=frozen(self.theta[..., chosen].copy()))


@dataclass(frozen=True)
class Gradient:
    """Configuration of the oracle; θ of every target stays in the Euclidean ball of `radius`.

    >>> oracle = Gradient(dimension=2, targets=1)
    >>> state = oracle.update(oracle.init(), [[0.6, 0.0]], [[1.0]])  # θ = 0 + (1 - 0)·0.6 / √1
    >>> oracle.predict(state, np.array([[[1.0, 0.0]]])).round(3)
    array([[[0.6]]])
    """

    dimension: int
    targets: int
    blocks: int = 1
    link: str = "identity"
    radius: float = 1.0

    def __post_init__(self) -> None:
        if self.link not in LINKS:
            raise ValueError(f"link must be one of {sorted(LINKS)}, got {self.link!r}")
        check_sizes(self)
        if not self.radius > 0:
            raise ValueError(f"radius must be positive, got {self.radius}")

    @property
    def sigma(self) -> Link:
        """The link function."""
        return LINKS[self.link]

    @property
    def parameters(self) -> int:
        """The number of parameters of one target: θ of every block."""
        return self.dimension * self.blocks

    def init(self, lanes: int = 1) -> GradientState:
        """Return the state with θ = 0 in every lane and block."""
        return GradientState(
            theta=frozen(np.zeros((lanes, self.dimension, self.blocks, self.targets))),
            updates=frozen(np.zeros((lanes, self.blocks), dtype=np.int64)),
        )

    def predict(self, state: GradientState, features: ArrayLike) -> Array:
        """Return σ(φᵀθ) for every candidate, shape (n, k * blocks, targets)."""
        return self.predict_unchecked(state, checked_candidates(self, features, state.theta.shape[0]))

    def predict_unchecked(self, state: GradientState, x: Array) -> Array:
        """`predict` for features that the caller has checked."""
        scores = linear_scores(state.theta, x)
        return scores if self.link == "identity" else self.sigma.mean(scores)

    def spread(self, state: GradientState, features: ArrayLike) -> None:
        """Return None: without a Gram matrix there is no leverage."""
        del state, features

    def update(
        self,
        state: GradientState,
        features: ArrayLike,
        targets: ArrayLike,
        block: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> GradientState:
        """Learn the rows in order by the formula of the module."""
        return self.update_unchecked(
            state, *checked_update(self, state.theta.shape[0], features, targets, block, weight)
        )

    def update_unchecked(
        self, state: GradientState, x: Array, y: Array, block: Integers | None, weight: Array
    ) -> GradientState:
        """`update` for rows that the caller has checked."""
        lanes, learns = state.theta.shape[0], weight > 0
        index = np.zeros(x.shape[0], dtype=np.int64) if block is None else block
        theta, updates = state.theta.copy(), state.updates.copy()
        for rows in folded(x.shape[0], lanes):
            lane = np.flatnonzero(learns[rows])
            if lane.size:
                row, at = rows.start + lane, index[rows][lane]
                updates[lane, at] += 1
                theta[lane, :, at] = self._step(theta[lane, :, at], x[row], y[row], updates[lane, at])
        return GradientState(frozen(theta), frozen(updates))

    def _step(self, theta: Array, x: Array, y: Array, t: Integers) -> Array:
        """Return θ (lanes, m, targets) after one row per lane: x (lanes, m), y (lanes, targets)."""
        error = self.sigma.mean(np.matmul(x[:, None, :], theta)[:, 0]) - y
        moved = theta - x[:, :, None] * (error / np.sqrt(t)[:, None])[:, None, :]
        norm = np.sqrt(np.sum(moved * moved, axis=1, keepdims=True))
        return np.where(norm > self.radius, moved * (self.radius / np.maximum(norm, self.radius)), moved)

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """Return (4R² + 2z²)·√(blocks·T) + ln(1/δ)/(2c); with one block, the identity and R = 1, 12√T + ½·ln(1/δ).

        The bound holds with probability 1 - δ. Let s = φᵀ(θ_t - θ*), e the error of a prediction, ξ the noise,
        z = e - ξ the residual, and ‖φ‖ <= 1. Steps 1/√t in a ball of diameter 2R give
        Σ 2zs <= (2R)²√T + Σ z²/√t <= (4R² + 2z²)√T, where |z| <= 1 + R for a linear prediction in [-R, R] and |z| <= 1
        for a logistic one. The noise lies in an interval of length 1 (variance proxy ¼) and the slope is at least c, so
        Σ 2ξs <= c Σ s² + ln(1/δ)/(2c) <= Σ es + ln(1/δ)/(2c). Subtracting leaves Σ es on the left, and es >= e² because
        the slope is at most 1. Over blocks, Σ √T_b <= √(blocks·T) by Cauchy-Schwarz.
        """
        residual = 1.0 if self.link == "logistic" else 1.0 + self.radius
        steps = (4.0 * self.radius**2 + 2.0 * residual**2) * np.sqrt(self.blocks * rounds)
        return float(steps + np.log(1.0 / delta) / (2.0 * self.sigma.least_slope(self.radius)))

    def resize(self, state: GradientState, blocks: int) -> GradientState:
        """Return the state with blocks appended that have learnt nothing."""
        added = checked_growth(self, blocks)
        if not added:
            return state
        more = replace(self, blocks=added).init(state.theta.shape[0])
        return GradientState(
            theta=frozen(np.concatenate([state.theta, more.theta], axis=2)),
            updates=frozen(np.concatenate([state.updates, more.updates], axis=1)),
        )
