"""Prices of budgets that several policies share, moved by the decisions of all of them in their order.

A shared budget has a dual of its own, with the steps of `practical` (`rules/dual.py`): λ_j = p_j·R̂ / ρ_j, where R̂ is
the mean predicted reward of the decisions of all policies and ρ_j what a decision of any of them may cost on average.
All amounts and rewards are in the callers' units, because policies have different ones. Each policy decides at its own
price plus this one (`SquareCBwK.decide(prices=…)`): both constraints of the joint program have their multiplier.
As others keep this price up, a policy tries arms at it by upper bounds (`rules/inverse_gap.py`, `optimistic_weights`).

The number of decisions to come is an estimate that changes. The prices stay where they are when it does; only what the
next steps count in changes. Costs that become known wait in `surprise` until the next call and move the prices then,
so that a call is a function of what is stored with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, frozen
from cbwk_core.arrays import numbers as as_floats
from cbwk_core.rules import dual


class SharedState(NamedTuple):
    """What is known of d shared budgets besides their accounts."""

    rounds: float  # decisions
    value: float  # Σ of their predicted rewards, none below the one of the null arm, which counts as 0
    position: Array  # (d,), where the prices stand
    energy: Array  # (d,), Σ of the squared relative steps
    even: Array  # (d,), what a decision may cost on average from the first to the last; 0 before the first call
    predicted: Array  # (d,), of open decisions
    surprise: Array  # (d,), Σ of costs minus their predictions since the last call

    def numbers(self) -> Array:
        """The state as (2 + 5d,) numbers."""
        return frozen(np.concatenate([[self.rounds, self.value], *self[2:]]))

    @property
    def prices(self) -> Array:
        """λ, (d,), in rewards per unit of cost."""
        even = np.where(self.even > 0.0, self.even, np.inf)
        value = np.array([self.value / max(self.rounds, 1.0)])
        return np.asarray(dual.value_prices(self.position[None], value, even[None])[0])


def first_state(resources: int) -> SharedState:
    """The state before the first decision.

    >>> first_state(2).prices
    array([0., 0.])
    """
    return SharedState(0.0, 0.0, *(np.zeros(resources) for _ in range(5)))


def read_state(numbers: ArrayLike) -> SharedState:
    """The state of `SharedState.numbers`.

    >>> read_state(first_state(1).numbers()) == first_state(1)
    True
    """
    found = as_floats("numbers", numbers)
    return SharedState(float(found[0]), float(found[1]), *np.split(found[2:], 5))


def called(state: SharedState, budget: ArrayLike, rounds_left: float) -> SharedState:
    """The state at a call for decisions: at this estimate of the decisions left, with what costs have surprised.

    >>> called(first_state(1), budget=[30.0], rounds_left=60.0).even
    array([0.5])
    """
    return at_even(state, np.asarray(budget, dtype=np.float64) / (state.rounds + max(rounds_left, 1.0)))


def at_even(state: SharedState, even: Array) -> SharedState:
    """The state at a call, at this even pace (d,), which follows from the estimate."""
    position, before = state.position, state.even
    if (before > 0.0).all() and (before != even).any():
        position = dual.value_rescaled(position, even / before)
    if state.surprise.any():
        difference = (state.surprise / even)[None, None]
        position = dual.value_replacements(position[None], state.energy[None], difference, in_own_root=True)[0]
    return state._replace(position=position, even=even, surprise=np.zeros(len(even)))


def decided(state: SharedState, costs: Array, rewards: Array, pace: Array, *, paced: bool) -> SharedState:
    """The state after n decisions of one call: predicted costs (n, d) and rewards (n,), null ones are 0.

    pace: (d,) what a decision may cost now. paced: windows set it, and prices move as those of `SquareCBwK.paced`.
    """
    rows, even = len(costs), state.even
    tight = dual.tightness(np.broadcast_to(pace, (rows, 1, len(even))), even[None]) if paced else None
    excess, kept = ((costs - pace) / even)[:, None], dual.energy_kept(paced)
    position, energy = dual.value_steps(state.position[None], state.energy[None], excess, tight, kept)
    return state._replace(
        rounds=state.rounds + rows,
        value=float(dual.accumulated(np.array(state.value), rewards)[-1]),
        position=position[0],
        energy=energy[0],
        predicted=dual.accumulated(state.predicted, costs)[-1],
    )


def settled(state: SharedState, predicted: ArrayLike, cost: ArrayLike) -> SharedState:
    """The state after an open decision of these predicted costs (d,) has cost that much; a voided one costs 0."""
    guess, paid = np.asarray(predicted, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    return state._replace(predicted=state.predicted - guess, surprise=state.surprise + (paid - guess))
