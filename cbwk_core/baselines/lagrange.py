"""LagrangeCBwK (Slivkins, Sankararaman & Foster 2023): inverse gap weighting against Hedge in the Lagrangian game."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array, Integers, Mask, frozen
from cbwk_core.baselines.priced import PricedLearner, PricedState, View
from cbwk_core.rules import dual
from cbwk_core.rules.gamma import practical_gamma
from cbwk_core.rules.inverse_gap import inverse_gap_weights
from cbwk_core.ticket import Ticket


class HedgeDual(NamedTuple):
    """Hedge over the resources and a slack that costs nothing."""

    log_weights: Array  # (lanes, d + 1), normalised, the slack last
    energy: Array  # (lanes, 1), sum of the squared largest payoffs


@dataclass(frozen=True, kw_only=True)
class LagrangeCBwK(PricedLearner[HedgeDual]):
    """Inverse gap weighting plays r - λᵀc against Hedge over the resources, whose payoffs are c_j/ρ_j - 1.

    The paper leaves γ, the radius of the prices and the rate of Hedge to bounds with constants that make play almost
    uniform at ordinary T (preset `paper`). Here each follows from what is measured: γ from the residual noise
    (`rules.gamma`), the radius is `radius`·R̂/ρ with R̂ the mean predicted reward, since λ*ᵀρ <= OPT, and the rate
    √(ln(d + 1)/(1 + Σ payoff²)) knows the payoffs so far instead of their bound T/B. A surprise counts in the root that
    divides it. The null arm, whose outcome is known, is not explored.

    >>> from cbwk_core.problem import Problem
    >>> policy = LagrangeCBwK(problem=Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=50))
    >>> policy.decide(policy.init(), np.eye(2)[None], [0.5]).probabilities.round(3)
    array([[0.667, 0.333, 0.   ]])
    """

    radius: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.radius >= 1:
            raise ValueError(f"radius must be at least 1, got {self.radius}")

    def first_dual(self, lanes: int) -> HedgeDual:
        """Return equal weights."""
        return HedgeDual(dual.entropic_start(lanes, self.resources), frozen(np.zeros((lanes, 1))))

    def prices(self, state: PricedState[HedgeDual], rho: Array | None = None) -> Array:
        """Return λ_j = radius·w_j·R̂/ρ_j per max cost, ρ the pace where that is below the even one: (lanes, d)."""
        radius = self.radius * self.mean_value(state) / self.problem.rho.min()
        prices = dual.entropic_prices(state.dual.log_weights, radius, self.problem.scale)
        if rho is None and self.problem.floor_arm is None:
            return prices
        tight = self.tightness(self.paces(state)[0] if rho is None else rho, state.books.floor)
        return prices if tight is None else prices * tight

    def moved(self, before: HedgeDual, excess: Array, ticket: Ticket, tight: Array | None) -> HedgeDual:
        """Return the dual after one step of Hedge."""
        del ticket
        excess = excess if tight is None else excess * tight
        energy = before.energy + (excess * excess).max(axis=1, keepdims=True)
        rate = np.sqrt(np.log(self.resources + 1.0) / (1.0 + energy))
        log_weights = dual.entropic_step(before.log_weights, excess, np.ones((1, self.resources)), rate)
        return HedgeDual(frozen(log_weights), frozen(energy))

    def replaced(self, before: HedgeDual, difference: Array, tight: Array | None) -> HedgeDual:
        """Return the dual after one step of Hedge per surprise."""
        difference = difference if tight is None else difference * tight
        for surprise in difference:
            before = self._surprised(before, surprise)
        return before

    def _surprised(self, before: HedgeDual, surprise: Array) -> HedgeDual:
        known = np.asarray(surprise.any(axis=1, keepdims=True))
        if not known.any():
            return before
        largest = (surprise * surprise).max(axis=1, keepdims=True)
        rate = np.sqrt(np.log(self.resources + 1.0) / (1.0 + before.energy + largest))
        moved = dual.entropic_step(before.log_weights, surprise, np.ones((1, self.resources)), rate)
        return before._replace(log_weights=frozen(np.where(known, moved, before.log_weights)))

    def weigh(
        self, state: PricedState[HedgeDual], view: View, allowed: Mask, uniforms: Array
    ) -> tuple[Array, Integers]:
        """Return the inverse gap weights of the scores."""
        del uniforms
        gamma = practical_gamma(
            self.arms + 1,
            self.oracle.parameters,
            rounds=state.account.round.astype(np.float64),
            noise=view.noise.mean(axis=1),
            learnt=state.books.learnt,
            forgotten=state.oracle.forgotten,
        )
        return inverse_gap_weights(view.scores, gamma, allowed, explore_null=False)
