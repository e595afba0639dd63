"""What every policy can do, so that one runner drives SquareCBwK and the baselines alike."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cbwk_core.arrays import Array
from cbwk_core.ticket import Choice, Ticket

State = TypeVar("State")
Learn = bool | NDArray[np.bool_]


class Policy(Protocol[State]):
    """A frozen configuration with pure functions over a state; row i of a call belongs to lane i modulo lanes."""

    @property
    def arms(self) -> int:
        """How many arms there are, without the null arm."""

    @property
    def resources(self) -> int:
        """How many budgets there are."""

    @property
    def model(self) -> str:
        """ "shared": features (n, arms, dimension); "per_arm": features (n, dimension)."""

    def init(self, lanes: int = 1) -> State:
        """The state before any round."""

    def decide(self, state: State, features: Array, uniforms: Array) -> Choice:
        """One arm per row; the state does not move."""

    def commit(self, state: State, ticket: Ticket) -> State:
        """Count the decisions, null ones too."""

    def settle(self, state: State, tickets: Ticket, rewards: Array, costs: Array, learn: Learn = True) -> State:
        """Book the outcomes of committed decisions and learn from them, in any order."""

    def cancel(self, state: State, tickets: Ticket) -> State:
        """Take committed decisions back: nothing was spent, nothing is learnt."""

    def refresh_due(self, state: State) -> bool:
        """Whether `refresh` has something to do."""

    def refresh(self, state: State) -> State:
        """What is done now and then rather than every round."""
