"""The methods of every policy, so that one runner drives SquareCBwK and the baselines."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cbwk_core.arrays import Array
from cbwk_core.ticket import Choice, Ticket

State = TypeVar("State")
Learn = bool | NDArray[np.bool_]


class Policy(Protocol[State]):
    """A frozen configuration with pure functions over a state; row i of a call belongs to lane i modulo lanes.

    >>> from cbwk_core import SquareCBwK
    >>> def first_arm(policy: Policy[State], features: Array) -> int:
    ...     return int(policy.decide(policy.init(), features, np.array([0.5])).arm[0])
    >>> first_arm(SquareCBwK(arms=2, dimension=2, resources=1, horizon=100, budget=50), np.eye(2)[None])
    0
    """

    @property
    def arms(self) -> int:
        """The number of arms, without the null arm."""

    @property
    def resources(self) -> int:
        """The number of budgets."""

    @property
    def model(self) -> str:
        """ "shared": features (n, arms, dimension); "per_arm": features (n, dimension)."""

    def init(self, lanes: int = 1) -> State:
        """Return the state before the first round."""

    def decide(self, state: State, features: Array, uniforms: Array) -> Choice:
        """Return one arm per row; the state does not change."""

    def commit(self, state: State, ticket: Ticket) -> State:
        """Count the decisions, including those for the null arm."""

    def settle(self, state: State, tickets: Ticket, rewards: Array, costs: Array, learn: Learn = True) -> State:
        """Book the outcomes of committed decisions, in any order, and learn from the rows where `learn` is true."""

    def cancel(self, state: State, tickets: Ticket) -> State:
        """Release the holds of committed decisions, without spend and without learning."""

    def refresh_due(self, state: State) -> bool:
        """Return whether `refresh` would change the state."""

    def refresh(self, state: State) -> State:
        """Return the state after the work that the policy does only in some rounds."""
