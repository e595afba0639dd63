"""What an environment is: contexts and outcomes with known means, and the value of the best static policy."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, frozen
from cbwk_core.static_optimum import static_optimum

# Contexts of a sampled optimum. Its error is that of a mean, below half a percent; its optimism, from fitting the
# policy to the sample, is of the order d/n and far below that.
CONTEXTS_SAMPLED = 10_000
# Contexts drawn at once for it: features of fifty arms in fifty dimensions stay below 10 MB.
CONTEXTS_PER_DRAW = 500


class Draw(NamedTuple):
    """Rounds of one run: what a policy sees, what it may earn and spend, and the means behind both."""

    features: Array  # (rounds, arms, m) for "shared", (rounds, m) for "per_arm"
    mean_reward: Array  # (rounds, arms)
    mean_costs: Array  # (rounds, arms, d)
    reward: Array  # (rounds, arms), realised
    costs: Array  # (rounds, arms, d), realised


class Environment(Protocol):
    """A distribution of contexts and outcomes; outcomes of all arms are drawn, so that policies can be compared."""

    @property
    def arms(self) -> int:
        """How many arms there are, without the null arm."""

    @property
    def dimension(self) -> int:
        """Length of a feature vector."""

    @property
    def resources(self) -> int:
        """How many costs an outcome has."""

    @property
    def model(self) -> str:
        """ "shared" or "per_arm": the shape of the features."""

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """The rounds start, start + 1, ...; drawing them in parts from one generator gives the same rounds."""

    def optimum(self, rho: ArrayLike) -> float:
        """The value per round of the best static policy whose mean costs are at most rho."""


class _Hashable(Environment, Protocol):
    def __hash__(self) -> int: ...


def sampled_optimum(environment: _Hashable, rho: ArrayLike, seed: int = 0, contexts: int = CONTEXTS_SAMPLED) -> float:
    """The static optimum over contexts drawn from the environment; remembered, since a large program takes a second.

    >>> from cbwk_core.simulation.environments import LinearEnvironment
    >>> environment = LinearEnvironment(arms=2, dimension=3, resources=1)
    >>> low, high = (sampled_optimum(environment, rho, contexts=100) for rho in (0.1, 0.5))
    >>> 0 < low < high < 1
    True
    """
    pace = np.broadcast_to(np.asarray(rho, dtype=np.float64), (environment.resources,))
    return _remembered_optimum(environment, tuple(pace.tolist()), seed, contexts)


@lru_cache(maxsize=256)
def _remembered_optimum(environment: _Hashable, rho: tuple[float, ...], seed: int, contexts: int) -> float:
    rng = np.random.default_rng(seed)
    rewards, costs = [], []
    for start in range(0, contexts, CONTEXTS_PER_DRAW):
        draw = environment.draw(rng, start, min(CONTEXTS_PER_DRAW, contexts - start))
        rewards.append(draw.mean_reward)
        costs.append(draw.mean_costs)
    return static_optimum(np.concatenate(rewards), np.concatenate(costs), rho).value


def bernoulli(mean: Array, uniforms: Array) -> Array:
    """0 or 1 with the given mean.

    >>> bernoulli(np.array([0.3, 0.3]), np.array([0.29, 0.31]))
    array([1., 0.])
    """
    return (uniforms < mean).astype(np.float64)


def bounded(mean: Array, uniforms: Array, noise: float) -> Array:
    """Uniform around the mean, narrowed where [0, 1] is near, so that the mean is exact without clipping.

    >>> bounded(np.array([0.5, 0.1]), np.array([1.0, 0.0]), noise=0.2)
    array([0.7, 0. ])
    """
    reach = np.minimum(noise, np.minimum(mean, 1.0 - mean))
    return np.asarray(mean + (2.0 * uniforms - 1.0) * reach)


def split_outcomes(mean: Array, outcome: Array, features: Array) -> Draw:
    """A draw from means and outcomes (rounds, arms, 1 + d) with the reward first.

    >>> split_outcomes(np.zeros((1, 2, 3)), np.ones((1, 2, 3)), np.zeros((1, 4))).costs.shape
    (1, 2, 2)
    """
    return Draw(features, mean[..., 0], mean[..., 1:], outcome[..., 0], outcome[..., 1:])


def unit_rows(array: Array) -> Array:
    """Every row, along the last axis, divided by its length.

    >>> unit_rows(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    return frozen(array / np.sqrt(np.vecdot(array, array))[..., None])
