"""What one more unit of a budget is worth."""

from __future__ import annotations

from cbwk_core.arrays import Array
from cbwk_core.policy import SquareCBwK
from cbwk_core.state import State


def marginal_values(policy: SquareCBwK, state: State) -> Array:
    """λ per resource in reward units per unit of the caller's, "one more dollar is worth …": (lanes, d).

    The prices of the state are per max cost; T·OPT(B) grows by λ with B (the multiplier of eq-OPT-static), so one more
    unit of budget j earns λ_j / max cost_j. 0 where the budget is not scarce.

    >>> policy = SquareCBwK(arms=1, dimension=1, resources=1, horizon=100, budget=50.0, max_cost=2.0, preset="authors")
    >>> state = policy.init()
    >>> policy.quote(state).prices, marginal_values(policy, state)
    (array([[2.]]), array([[1.]]))
    """
    return policy.quote(state).prices / policy.problem.unit
