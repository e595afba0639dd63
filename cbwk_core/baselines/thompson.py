"""Linear Thompson sampling on the reward (Agrawal & Goyal 2013), blind to costs until an arm cannot be paid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from cbwk_core.arrays import Array, finite
from cbwk_core.baselines.linear import LearnerState, LinearLearner, best_column, certain
from cbwk_core.oracles.newton import linear_scores
from cbwk_core.ticket import Choice

# Constants of splitmix64 (Steele, Lea & Flood 2014): the golden ratio of 2⁶⁴ and two mixing multipliers.
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_FIRST = np.uint64(0xBF58476D1CE4E5B9)
MIX_SECOND = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, kw_only=True)
class Thompson(LinearLearner):
    """The best arm of a reward parameter drawn from N(θ̂, scale²·A⁻¹).

    The whole draw comes from the one uniform of the decision, hashed into as many as are needed. The probability
    reported is 1: exact given that draw, as the arm is certain then, but *not* the probability over draws, which has
    no closed form. Off-policy estimates must not use it. One draw costs a Cholesky factor, so m³ each round.

    >>> from cbwk_core.problem import Problem
    >>> policy = Thompson(problem=Problem.of(arms=2, dimension=2, resources=1, horizon=10, budget=5))
    >>> arms = [int(policy.decide(policy.init(), np.eye(2)[None], [u]).arm[0]) for u in np.linspace(0, 0.99, 100)]
    >>> sorted(set(arms))  # nothing is known yet: either may come
    [0, 1]
    """

    scale: float = 0.2  # the noise's standard deviation; the paper's theory asks for far more

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.scale > 0:
            raise ValueError(f"scale must be positive, got {self.scale}")

    def decide(self, state: LearnerState, features: ArrayLike, uniforms: ArrayLike) -> Choice:
        """One arm per lane; null only where no arm can be paid."""
        x = self.features(state, features)
        u = finite("uniforms", uniforms, (x.shape[0],))
        candidates = x[:, None, :] if self.model == "per_arm" else x
        theta, factor = state.oracle.theta[..., 0], np.linalg.cholesky(state.oracle.inverse)
        lanes, m, blocks = theta.shape
        normals = standard_normals(u, blocks * m).reshape(lanes, blocks, m, 1)
        drawn = theta + self.scale * np.matmul(factor, normals)[..., 0].swapaxes(1, 2)
        allowed = self.playable(state)
        column = best_column(linear_scores(drawn[..., None], candidates)[..., 0], allowed)
        predictions = self.oracle.predict(state.oracle, candidates)
        probabilities = certain(column, self.arms + 1)
        return self.answer(state, x, predictions, allowed, column, probabilities)


def standard_normals(uniforms: Array, count: int) -> Array:
    """(n, count) standard normals determined by the n uniforms: splitmix64 seeded with the bits of each.

    >>> once, again = standard_normals(np.array([0.5, 0.5]), 3)
    >>> once.shape, bool((once == again).all())
    ((3,), True)
    """
    seeds = np.ascontiguousarray(uniforms, dtype=np.float64).view(np.uint64)
    steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN_GAMMA
    bits = _mixed(seeds[:, None] + steps)
    # 52 bits and a half: strictly between 0 and 1, and exact in a float.
    return np.asarray(ndtri(((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52))


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * MIX_FIRST
    words = (words ^ (words >> np.uint64(27))) * MIX_SECOND
    return words ^ (words >> np.uint64(31))
