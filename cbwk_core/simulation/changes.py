"""An environment that changes at half of the horizon: arms or resources exchange their roles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.arrays import Array
from cbwk_core.simulation.environment import CONTEXTS_PER_DRAW, CONTEXTS_SAMPLED, Draw, Environment
from cbwk_core.static_optimum import static_optimum


@dataclass(frozen=True)
class MidpointChange:
    """An environment whose arms or resources exchange their roles after half of the horizon.

    arm_shift: in the second half, arm a behaves as arm a - arm_shift behaved in the first half (modulo the arms).
    resource_shift: the same for the costs of the resources.

    >>> from cbwk_core.simulation.environments import LinearEnvironment
    >>> constant = LinearEnvironment(arms=3, dimension=2, resources=2, model="per_arm")
    >>> changing = MidpointChange(constant, horizon=10, arm_shift=1)
    >>> before, after = constant.draw(np.random.default_rng(0), 0, 10), changing.draw(np.random.default_rng(0), 0, 10)
    >>> bool((after.reward[4] == before.reward[4]).all()), bool((after.reward[5, 1:] == before.reward[5, :-1]).all())
    (True, True)
    """

    environment: Environment
    horizon: int
    arm_shift: int = 0
    resource_shift: int = 0

    @property
    def arms(self) -> int:
        """Number of arms, without the null arm."""
        return self.environment.arms

    @property
    def dimension(self) -> int:
        """Length of a feature vector."""
        return self.environment.dimension

    @property
    def resources(self) -> int:
        """Number of resources."""
        return self.environment.resources

    @property
    def model(self) -> str:
        """The model of the underlying environment."""
        return self.environment.model

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return the rounds of the underlying environment, shifted from half of the horizon on."""
        draw = self.environment.draw(rng, start, rounds)
        is_late = np.arange(start, start + rounds) >= self.horizon // 2
        if not is_late.any():
            return draw
        return Draw(draw.features, *(self._shift_late_rounds(values, is_late) for values in draw[1:]))

    def _shift_late_rounds(self, values: Array, is_late: NDArray[np.bool_]) -> Array:
        shifted = np.roll(values, self.arm_shift, axis=1)
        if values.ndim == 3:
            shifted = np.roll(shifted, self.resource_shift, axis=2)
        shape = (-1,) + (1,) * (values.ndim - 1)
        return np.where(is_late.reshape(shape), shifted, values)

    def optimum(self, rho: ArrayLike) -> float:
        """Return the static optimum over contexts of both halves: the optimum of a policy that knows of the change."""
        return _optimum(self, tuple(np.broadcast_to(np.asarray(rho, dtype=np.float64), (self.resources,)).tolist()))


@lru_cache(maxsize=64)
def _optimum(environment: MidpointChange, rho: tuple[float, ...]) -> float:
    rng, draws = np.random.default_rng(0), []
    for start in range(0, CONTEXTS_SAMPLED, CONTEXTS_PER_DRAW):
        first_round = 0 if start % (2 * CONTEXTS_PER_DRAW) == 0 else environment.horizon
        draws.append(environment.draw(rng, first_round, CONTEXTS_PER_DRAW))
    reward = np.concatenate([draw.mean_reward for draw in draws])
    return static_optimum(reward, np.concatenate([draw.mean_costs for draw in draws]), rho).value
