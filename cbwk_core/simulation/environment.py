"""The protocol of an environment: contexts and outcomes with known means, and the value of the best static policy."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, frozen
from cbwk_core.static_optimum import static_optimum

# Contexts of a sampled optimum. The sampling error is below half a percent. The program fits its policy to the sample,
# which adds a bias of order d/n, far below that.
CONTEXTS_SAMPLED = 10_000
# Contexts per draw of a sampled optimum: the features of fifty arms in fifty dimensions stay below 10 MB.
CONTEXTS_PER_DRAW = 500


class Draw(NamedTuple):
    """Consecutive rounds of one run: features, mean outcomes and realised outcomes of all arms.

    >>> from cbwk_core.simulation import LinearEnvironment
    >>> draw = LinearEnvironment(arms=3, dimension=5, resources=2).draw(np.random.default_rng(0), start=0, rounds=10)
    >>> draw.features.shape, draw.reward.shape, draw.costs.shape
    ((10, 3, 5), (10, 3), (10, 3, 2))
    """

    features: Array  # (rounds, arms, m) for "shared", (rounds, m) for "per_arm"
    mean_reward: Array  # (rounds, arms)
    mean_costs: Array  # (rounds, arms, d)
    reward: Array  # (rounds, arms), realised
    costs: Array  # (rounds, arms, d), realised


class Environment(Protocol):
    """A distribution of contexts and outcomes.

    A draw contains the outcomes of all arms, so two policies can be compared on the same rounds. A new environment
    needs the members below and no base class.

    >>> from cbwk_core.simulation import PaperEnvironment
    >>> environment: Environment = PaperEnvironment(m=10, arms=3)
    >>> environment.arms, environment.resources, environment.model
    (3, 4, 'shared')
    """

    @property
    def arms(self) -> int:
        """Number of arms, without the null arm."""

    @property
    def dimension(self) -> int:
        """Length of a feature vector."""

    @property
    def resources(self) -> int:
        """Number of resources: the costs of one outcome."""

    @property
    def model(self) -> str:
        """ "shared" or "per_arm": the shape of the features."""

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return the rounds start, start + 1, ...; several short draws from one generator give the same rounds."""

    def optimum(self, rho: ArrayLike) -> float:
        """Return the value per round of the best static policy whose mean costs are at most rho."""


class _HashableEnvironment(Environment, Protocol):
    def __hash__(self) -> int: ...


def sampled_optimum(
    environment: _HashableEnvironment, rho: ArrayLike, seed: int = 0, contexts: int = CONTEXTS_SAMPLED
) -> float:
    """Return the static optimum over contexts drawn from the environment.

    The result is cached, because a large linear program takes a second.

    >>> from cbwk_core.simulation.environments import LinearEnvironment
    >>> environment = LinearEnvironment(arms=2, dimension=3, resources=1)
    >>> low, high = (sampled_optimum(environment, rho, contexts=100) for rho in (0.1, 0.5))
    >>> 0 < low < high < 1
    True
    """
    rho_of_each = np.broadcast_to(np.asarray(rho, dtype=np.float64), (environment.resources,))
    return _cached_optimum(environment, tuple(rho_of_each.tolist()), seed, contexts)


@lru_cache(maxsize=256)
def _cached_optimum(environment: _HashableEnvironment, rho: tuple[float, ...], seed: int, contexts: int) -> float:
    rng = np.random.default_rng(seed)
    rewards, costs = [], []
    for start in range(0, contexts, CONTEXTS_PER_DRAW):
        draw = environment.draw(rng, start, min(CONTEXTS_PER_DRAW, contexts - start))
        rewards.append(draw.mean_reward)
        costs.append(draw.mean_costs)
    return static_optimum(np.concatenate(rewards), np.concatenate(costs), rho).value


def bernoulli_outcomes(mean: Array, uniforms: Array) -> Array:
    """Return outcomes of 0 or 1 with the given means.

    >>> bernoulli_outcomes(np.array([0.3, 0.3]), np.array([0.29, 0.31]))
    array([1., 0.])
    """
    return (uniforms < mean).astype(np.float64)


def bounded_outcomes(mean: Array, uniforms: Array, noise: float) -> Array:
    """Return outcomes that are uniform within `noise` of their mean.

    The interval is narrower where the mean is near 0 or 1, so outcomes stay in [0, 1] and their mean is exact.

    >>> bounded_outcomes(np.array([0.5, 0.1]), np.array([1.0, 0.0]), noise=0.2)
    array([0.7, 0. ])
    """
    reach = np.minimum(noise, np.minimum(mean, 1.0 - mean))
    return np.asarray(mean + (2.0 * uniforms - 1.0) * reach)


def split_outcomes(mean: Array, outcome: Array, features: Array) -> Draw:
    """Return the draw with the given means and outcomes, (rounds, arms, 1 + d) each, the reward first.

    >>> split_outcomes(np.zeros((1, 2, 3)), np.ones((1, 2, 3)), np.zeros((1, 4))).costs.shape
    (1, 2, 2)
    """
    return Draw(features, mean[..., 0], mean[..., 1:], outcome[..., 0], outcome[..., 1:])


def unit_rows(array: Array) -> Array:
    """Return the array with every row (last axis) divided by its length.

    >>> unit_rows(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    return frozen(array / np.sqrt(np.vecdot(array, array))[..., None])
