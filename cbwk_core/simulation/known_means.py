"""A policy that knows all means and the right prices: what it loses is the gap between T·OPT and what can be reached.

It sees the means as the features of a `Revealed` environment. It starts from the static prices and moves each of them
with the pace: where less is left per round than planned, the price is higher. That keeps the spend even and mixes arms
of equal worth in the right shares. It cannot spend a rest smaller than a hold, and with late outcomes its money is held
as that of any other policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, Mask
from cbwk_core.baselines.linear import best_column, one_hot
from cbwk_core.baselines.priced import PricedState, ValueDual, ValuePriced, View
from cbwk_core.simulation.environment import Draw, Environment

# A price is multiplied by (even pace / pace)^PACE_POWER.
PACE_POWER = 2.0
# Bounds of that factor: at the very end the pace can be anything.
FACTOR_MIN, FACTOR_MAX = 0.25, 4.0


@dataclass(frozen=True)
class Revealed:
    """An environment whose features are the means: (rounds, arms, 1 + d).

    >>> from cbwk_core.simulation import LinearEnvironment
    >>> environment = Revealed(LinearEnvironment(arms=3, dimension=5, resources=2))
    >>> environment.draw(np.random.default_rng(0), 0, 10).features.shape
    (10, 3, 3)
    """

    environment: Environment

    model = "shared"

    @property
    def arms(self) -> int:
        """Number of arms, without the null arm."""
        return self.environment.arms

    @property
    def dimension(self) -> int:
        """The reward and the costs."""
        return 1 + self.environment.resources

    @property
    def resources(self) -> int:
        """Number of resources."""
        return self.environment.resources

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return the rounds of the underlying environment with the means as features."""
        draw = self.environment.draw(rng, start, rounds)
        return draw._replace(features=np.concatenate([draw.mean_reward[..., None], draw.mean_costs], axis=2))

    def optimum(self, rho: ArrayLike) -> float:
        """Return the optimum of the underlying environment."""
        return self.environment.optimum(rho)


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownMeans(ValuePriced):
    """Plays the best Lagrangian of the means at the static prices, moved with the pace.

    static: the static prices per unit of cost, (lanes, d), or (horizon, lanes, d) where they differ between rounds.
    even: the even pace per round in the caller's units, with the same shapes; without it budget / horizon.

    >>> from cbwk_core.problem import Problem
    >>> problem = Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=50)
    >>> policy = KnownMeans(problem=problem, static=np.array([[0.75]]))
    >>> policy.decide(policy.init(), [[[1.0, 1.0], [0.4, 0.2]]], [0.5]).arm  # both are worth 0.25
    array([0])
    """

    static: Array
    even: Array | None = None

    def prices(self, state: PricedState[ValueDual], rho: Array | None = None) -> Array:
        """Return the static prices times a factor that keeps the pace, per max cost: (lanes, d)."""
        pace = np.maximum(self.paces(state)[0] if rho is None else rho, 1e-12)
        even = self.problem.rho if self.even is None else _at_round(self.even, state) / self.problem.unit
        factor = np.clip((even / pace) ** PACE_POWER, FACTOR_MIN, FACTOR_MAX)
        return np.asarray(_at_round(self.static, state) * self.problem.unit * factor)

    def predict(self, state: PricedState[ValueDual], x: Array) -> Array:
        """Return the means, which are the features."""
        del state
        means = x[..., :-1].copy()
        means[..., 1:] /= self.problem.unit
        return means

    def weigh(
        self, state: PricedState[ValueDual], view: View, allowed: Mask, uniforms: Array
    ) -> tuple[Array, Integers]:
        """Return probability 1 for the best score."""
        del state, uniforms
        best = best_column(view.scores, allowed)
        return one_hot(best, self.arms + 1), best


def _at_round(values: Array, state: PricedState[ValueDual]) -> Array:
    """Return the values of the present round, (lanes, d)."""
    return np.asarray(values[min(int(state.account.round[0]), len(values) - 1)] if values.ndim == 3 else values)
