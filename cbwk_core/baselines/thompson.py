"""Linear Thompson sampling on the reward (Agrawal & Goyal 2013). It ignores costs until it cannot pay an arm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from cbwk_core.arrays import Array, finite
from cbwk_core.baselines.linear import LearnerState, LinearLearner, best_column, one_hot
from cbwk_core.oracles.newton_state import linear_scores
from cbwk_core.ticket import Choice

# Constants of splitmix64 (Steele, Lea & Flood 2014): the golden ratio of 2⁶⁴ and two mixing multipliers.
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_FIRST = np.uint64(0xBF58476D1CE4E5B9)
MIX_SECOND = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, kw_only=True)
class Thompson(LinearLearner):
    """Plays the best arm of a reward parameter drawn from N(θ̂, scale²·A⁻¹).

    The one uniform of the decision determines the whole draw (`standard_normals`). The policy reports probability 1.
    That is exact given the draw, but it is *not* the probability over all draws, which has no closed form. Off-policy
    estimates must not use it. A draw needs a Cholesky factor, which takes O(m³) in each round.

    >>> from cbwk_core.problem import Problem
    >>> policy = Thompson(problem=Problem.of(arms=2, dimension=2, resources=1, horizon=10, budget=5))
    >>> arms = [int(policy.decide(policy.init(), np.eye(2)[None], [u]).arm[0]) for u in np.linspace(0, 0.99, 100)]
    >>> sorted(set(arms))  # before any outcome both arms are possible
    [0, 1]
    """

    scale: float = 0.2  # standard deviation of the noise; the theory requires a much larger one

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.scale > 0:
            raise ValueError(f"scale must be positive, got {self.scale}")

    def decide(self, state: LearnerState, features: ArrayLike, uniforms: ArrayLike) -> Choice:
        """Return one arm per lane; null only in a lane that cannot pay any arm."""
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
        probabilities = one_hot(column, self.arms + 1)
        return self.answer(state, x, predictions, allowed, column, probabilities)


def standard_normals(uniforms: Array, count: int) -> Array:
    """Return (n, count) standard normals: the bits of each uniform seed one splitmix64 generator.

    >>> first, second = standard_normals(np.array([0.5, 0.5]), 3)
    >>> first.shape, bool((first == second).all())
    ((3,), True)
    """
    seeds = np.ascontiguousarray(uniforms, dtype=np.float64).view(np.uint64)
    steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN_GAMMA
    bits = _mix(seeds[:, None] + steps)
    # 52 bits plus a half are exact in a float and lie strictly between 0 and 1.
    return np.asarray(ndtri(((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52))


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output function of splitmix64 for each word."""
    words = (words ^ (words >> np.uint64(30))) * MIX_FIRST
    words = (words ^ (words >> np.uint64(27))) * MIX_SECOND
    return words ^ (words >> np.uint64(31))
