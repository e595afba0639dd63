"""What baselines have in common, whatever they learn with: sizes, no refresh, and the form of their answers."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cbwk_core.arrays import Array, Integers
from cbwk_core.baselines import account as accounts
from cbwk_core.baselines.account import Account
from cbwk_core.problem import Problem
from cbwk_core.ticket import NULL_ARM, Choice, Ticket

State = TypeVar("State")


class WithAccount(Protocol):
    """A state that has an account."""

    @property
    def account(self) -> Account:
        """What is spent and held."""


class Baseline:
    """A policy that takes its sizes from its problem and does all it does every round."""

    problem: Problem
    model: str

    @property
    def arms(self) -> int:
        """How many arms there are, without the null arm."""
        return self.problem.arms

    @property
    def resources(self) -> int:
        """How many budgets there are."""
        return self.problem.resources

    def refresh_due(self, state: object) -> bool:
        """Never: all is done every round."""
        del state
        return False

    def refresh(self, state: State) -> State:
        """Nothing to do."""
        return state

    def answer(
        self,
        state: WithAccount,
        features: Array,
        predictions: Array,
        allowed: NDArray[np.bool_],
        column: Integers,
        probabilities: Array,
    ) -> Choice:
        """The choice of one column per lane, among those that are allowed for the usual reasons."""
        reason = accounts.reasons(self.problem, state.account, allowed)
        return self.chosen(state, features, predictions, column, probabilities, reason)

    def chosen(
        self,
        state: WithAccount,
        features: Array,
        predictions: Array,
        column: Integers,
        probabilities: Array,
        reason: tuple[str, ...],
    ) -> Choice:
        """The same for any reasons; the null arm is the last of probabilities (lanes, arms + 1)."""
        rows = np.arange(column.size)
        real = column < self.arms
        arm = np.where(real, column, NULL_ARM)
        mine = features if self.model == "per_arm" else features[rows, arm]
        predicted = predictions[rows, arm] * real[:, None]
        ticket = Ticket.of(
            arm=arm,
            features=mine * real[:, None],
            reward=predicted[:, 0],
            costs=predicted[:, 1:],
            rho=np.broadcast_to(self.problem.rho, (column.size, self.resources)),
            value=predictions[..., 0].max(axis=1, initial=0.0),
            round=state.account.round,
            hold=self.problem.hold[arm] * real[:, None],
        )
        return Choice(arm, probabilities[rows, column], probabilities, reason, ticket)
