"""How prices move: one update rule for the paper's presets, one for `practical`.

A rule is a frozen configuration over a `DualState`. A decision moves the prices twice: at its predicted cost when it is
made (`step`), and by the difference when the cost is known (`correct`), so that open decisions are paced as well.
All costs are in max costs; λ_j prices one max cost of resource j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array, frozen

# Weights of the entropic dual are kept above this, the smallest normal double is 2.2e-308: a price may be as good as
# zero but never is, so it can always come back.
LOG_WEIGHT_MIN = -700.0


class DualState(NamedTuple):
    """Where the prices stand."""

    position: Array  # (lanes, d + 1): log-weights, the slack last; or prices in units of value and a number left alone
    energy: Array  # (lanes, d), Σ g² of the relative steps; zeros for the entropic rule


@dataclass(frozen=True)
class EntropicDual:
    """Normalised exponentiated gradient on the simplex with a slack coordinate (paper, "Online Mirror Descent").

    log w_j += η·s_j·(c_j - ρ_j), the slack's gradient is 0, w is normalised, λ_j = Z·w_j·s_j, with s_j = B'_min / B'_j
    bringing all budgets to the least one (ρ there is then s_j·ρ_j for every j).

    The rate η and the scale s are arguments, (lanes, 1) and (lanes, d): they follow the stage of Algorithm 2.

    >>> dual = EntropicDual()
    >>> dual.prices(dual.init(1, 2), radius=np.array([3.0]), scale=np.ones((1, 2)))
    array([[1., 1.]])
    """

    def init(self, lanes: int, resources: int) -> DualState:
        """Equal weights."""
        weights = np.full((lanes, resources + 1), -np.log(resources + 1.0))
        return DualState(frozen(weights), frozen(np.zeros((lanes, resources))))

    def prices(self, state: DualState, radius: Array, scale: Array) -> Array:
        """λ = Z·w, in max costs: (lanes, d)."""
        return np.exp(state.position[:, :-1]) * radius[:, None] * scale

    def move(self, state: DualState, excess: Array, scale: Array, rate: Array) -> DualState:
        """One step for c - ρ (lanes, d); a correction of a cost by c - ĉ is a step of that difference."""
        position = state.position.copy()
        position[:, :-1] += rate * scale * excess
        return DualState(frozen(_normalised(position)), state.energy)

    def restore(self, prices: Array, radius: Array, scale: Array) -> DualState:
        """The state whose prices these are (as far as the radius allows): a change of radius keeps λ, not weights."""
        weights = prices / (radius[:, None] * scale)
        total = weights.sum(axis=1, keepdims=True)
        weights = weights * np.minimum(1.0, (1.0 - 1e-9) / np.maximum(total, 1e-300))
        slack = 1.0 - weights.sum(axis=1, keepdims=True)
        position = np.log(np.maximum(np.concatenate([weights, slack], axis=1), np.exp(LOG_WEIGHT_MIN)))
        return DualState(frozen(_normalised(position)), frozen(np.zeros_like(prices)))


def _normalised(log_weights: Array) -> Array:
    top = log_weights.max(axis=1, keepdims=True)
    total = top + np.log(np.exp(log_weights - top).sum(axis=1, keepdims=True))
    return np.asarray(np.maximum(log_weights - total, LOG_WEIGHT_MIN))


@dataclass(frozen=True)
class ValueDual:
    """Prices in units of value (`practical`): λ_j = p_j·R̂ / ρ_j with p_j in [0, ceiling], starting at 0.

    By LP duality λ*ᵀρ <= OPT, so with R̂, the mean predicted reward of the decisions, for OPT p* lies in [0, 1]: the
    theorem's condition on the radius. Steps are relative and scale-free: g_j = (ρ_t,j - c_j) / ρ_j,
    p_j -= η·g_j / √(1 + Σ g_j²). The sum is of decisions at their predicted cost; when the cost is known the price
    moves by `correction` times the difference.
    """

    step_size: float
    ceiling: float
    correction: float

    def init(self, lanes: int, resources: int) -> DualState:
        """Everything is free until it is seen to run short: a price that starts too high hides the arms behind it."""
        return DualState(frozen(np.zeros((lanes, resources + 1))), frozen(np.zeros((lanes, resources))))

    def prices(self, state: DualState, value: Array, rho: Array) -> Array:
        """λ = p·R̂/ρ: (lanes, d)."""
        return np.asarray(state.position[:, :-1] * (value[:, None] / rho))

    def step(self, state: DualState, excess: Array) -> DualState:
        """A decision at relative excess -g = (c - ρ_t) / ρ: adds to the energy."""
        return self._moved(state, excess, state.energy + excess * excess)

    def replace(self, state: DualState, before: Array, after: Array) -> DualState:
        """The excess of a decision was `before` by prediction and is `after` in truth: some of that is noise."""
        return self._moved(state, self.correction * (after - before), state.energy)

    def correct(self, state: DualState, excess: Array) -> DualState:
        """A cost that comes after everything else: moves without adding to the energy."""
        return self._moved(state, excess, state.energy)

    def rescale(self, state: DualState, factor: Array) -> DualState:
        """The position at which prices stay as they are when rho is multiplied by the factor."""
        position = state.position.copy()
        position[:, :-1] = np.minimum(position[:, :-1] * factor, self.ceiling)
        return DualState(frozen(position), state.energy)

    def _moved(self, state: DualState, excess: Array, energy: Array) -> DualState:
        position = state.position.copy()
        moved = position[:, :-1] + self.step_size * excess / np.sqrt(1.0 + energy)
        position[:, :-1] = np.minimum(np.maximum(moved, 0.0), self.ceiling)
        return DualState(frozen(position), frozen(energy))
