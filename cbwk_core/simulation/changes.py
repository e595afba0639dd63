"""What changes during a flight: arms or resources that exchange their roles halfway, traffic by day and by night."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.arrays import Array
from cbwk_core.simulation.environment import CONTEXTS_PER_DRAW, CONTEXTS_SAMPLED, Draw, Environment
from cbwk_core.static_optimum import static_optimum


@dataclass(frozen=True)
class Halves:
    """An environment whose arms, or resources, take each other's place after half of the horizon.

    arms_turned: after the change arm a does what arm a - arms_turned did before. resources_turned: likewise with costs.
    The optimum is that of a policy that knows when the change comes: nobody can do better.

    >>> from cbwk_core.simulation.environments import LinearEnvironment
    >>> same = LinearEnvironment(arms=3, dimension=2, resources=2, model="per_arm")
    >>> changing = Halves(same, horizon=10, arms_turned=1)
    >>> before, after = same.draw(np.random.default_rng(0), 0, 10), changing.draw(np.random.default_rng(0), 0, 10)
    >>> bool((after.reward[4] == before.reward[4]).all()), bool((after.reward[5, 1:] == before.reward[5, :-1]).all())
    (True, True)
    """

    environment: Environment
    horizon: int
    arms_turned: int = 0
    resources_turned: int = 0

    @property
    def arms(self) -> int:
        """How many arms there are, without the null arm."""
        return self.environment.arms

    @property
    def dimension(self) -> int:
        """Length of a feature vector."""
        return self.environment.dimension

    @property
    def resources(self) -> int:
        """How many costs an outcome has."""
        return self.environment.resources

    @property
    def model(self) -> str:
        """Of the environment that changes."""
        return self.environment.model

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """The environment's rounds, the later ones turned."""
        draw = self.environment.draw(rng, start, rounds)
        late = np.arange(start, start + rounds) >= self.horizon // 2
        if not late.any():
            return draw
        return Draw(draw.features, *(self._turned(part, late) for part in draw[1:]))

    def _turned(self, values: Array, late: NDArray[np.bool_]) -> Array:
        turned = np.roll(values, self.arms_turned, axis=1)
        if values.ndim == 3:
            turned = np.roll(turned, self.resources_turned, axis=2)
        shape = (-1,) + (1,) * (values.ndim - 1)
        return np.where(late.reshape(shape), turned, values)

    def optimum(self, rho: ArrayLike) -> float:
        """Over contexts of both halves, as many of each."""
        return _optimum(self, tuple(np.broadcast_to(np.asarray(rho, dtype=np.float64), (self.resources,)).tolist()))


@lru_cache(maxsize=64)
def _optimum(environment: Halves, rho: tuple[float, ...]) -> float:
    rng, parts = np.random.default_rng(0), []
    for start in range(0, CONTEXTS_SAMPLED, CONTEXTS_PER_DRAW):
        first = 0 if start % (2 * CONTEXTS_PER_DRAW) == 0 else environment.horizon
        parts.append(environment.draw(rng, first, CONTEXTS_PER_DRAW))
    reward = np.concatenate([part.mean_reward for part in parts])
    return static_optimum(reward, np.concatenate([part.mean_costs for part in parts]), rho).value
