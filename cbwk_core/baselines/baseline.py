"""The part that all baselines share: their sizes, a refresh that does nothing, and the construction of a Choice."""

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
    """A state with an account."""

    @property
    def account(self) -> Account:
        """The spend and the open decisions."""


class Baseline:
    """A policy that takes its sizes from `problem` and needs no periodic refresh."""

    problem: Problem
    model: str

    @property
    def arms(self) -> int:
        """The number of arms, without the null arm."""
        return self.problem.arms

    @property
    def resources(self) -> int:
        """The number of budgets."""
        return self.problem.resources

    def refresh_due(self, state: object) -> bool:
        """Return False: a baseline does all its work in every round."""
        del state
        return False

    def refresh(self, state: State) -> State:
        """Return the state unchanged."""
        return state

    def answer(
        self,
        state: WithAccount,
        features: Array,
        predictions: Array,
        allowed: NDArray[np.bool_],
        column: Integers,
        probabilities: Array,
        rho: Array | None = None,
        value: Array | None = None,
    ) -> Choice:
        """Return `chosen` with the reasons that follow from the account and from the allowed arms (lanes, arms)."""
        reason = accounts.reasons(self.problem, state.account, allowed)
        return self.chosen(state, features, predictions, column, probabilities, reason, rho, value)

    def chosen(
        self,
        state: WithAccount,
        features: Array,
        predictions: Array,
        column: Integers,
        probabilities: Array,
        reason: tuple[str, ...],
        rho: Array | None = None,
        value: Array | None = None,
    ) -> Choice:
        """Return the choice of one column per lane with its ticket.

        column (lanes,): an arm, or `arms` for null. probabilities (lanes, arms + 1): the last column is null.
        rho: the pace that the ticket records, the even pace without it. value: what the decision counts as in R̂.
        """
        rows = np.arange(column.size)
        real = column < self.arms
        arm = np.where(real, column, NULL_ARM)
        played = features if self.model == "per_arm" else features[rows, arm]
        predicted = predictions[rows, arm] * real[:, None]
        ticket = Ticket.of(
            arm=arm,
            features=played * real[:, None],
            reward=predicted[:, 0],
            costs=predicted[:, 1:],
            rho=np.broadcast_to(self.problem.rho if rho is None else rho, (column.size, self.resources)),
            value=predictions[..., 0].max(axis=1, initial=0.0) if value is None else value,
            round=state.account.round,
            hold=self.problem.hold[arm] * real[:, None],
        )
        return Choice(arm, probabilities[rows, column], probabilities, reason, ticket)
