"""A throttle that spends the budgets of any policy evenly over the horizon, as ad servers without prices do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.arrays import Array
from cbwk_core.baselines import account as accounts
from cbwk_core.baselines.account import Account
from cbwk_core.baselines.policy import Learn, Policy, State
from cbwk_core.problem import Problem
from cbwk_core.ticket import NULL_ARM, Choice, Ticket


class ThrottleState(NamedTuple, Generic[State]):
    """The state of the inner policy and the account of the throttle."""

    inner: State
    account: Account


@dataclass(frozen=True, kw_only=True)
class Throttle(Generic[State]):
    """Plays the arm of the inner policy, or null while the spend is ahead of an even spend.

    Resource j is not ahead in round t (from 0) if spent_j + held_j <= budget_j·(t + 1)/T + one max cost of j. Holds
    count, because otherwise the first rounds would overspend when outcomes are late.

    >>> from cbwk_core.baselines.greedy import EpsilonGreedy
    >>> problem = Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=10)
    >>> policy = Throttle(policy=EpsilonGreedy(problem=problem), problem=problem)
    >>> state = policy.init()
    >>> for _ in range(3):
    ...     choice = policy.decide(state, np.eye(2)[None], np.array([0.1]))
    ...     state = policy.commit(state, choice.ticket)
    >>> choice.arm  # two holds are open; the line in the third round is 0.3 + 1
    array([-1])
    """

    policy: Policy[State]
    problem: Problem

    null_arm = NULL_ARM

    @property
    def arms(self) -> int:
        """The number of arms, without the null arm."""
        return self.policy.arms

    @property
    def resources(self) -> int:
        """The number of budgets."""
        return self.policy.resources

    @property
    def model(self) -> str:
        """The model of the inner policy."""
        return self.policy.model

    def init(self, lanes: int = 1) -> ThrottleState[State]:
        """Return the state before the first round."""
        return ThrottleState(self.policy.init(lanes), accounts.new_account(self.problem, lanes))

    def decide(self, state: ThrottleState[State], features: Array, uniforms: Array) -> Choice:
        """Return the choice of the inner policy, or null with probability 1 in a lane that is ahead."""
        choice = self.policy.decide(state.inner, features, uniforms)
        ahead = self._ahead(state.account)
        if not ahead.any():
            return choice
        return nulled(choice, ahead)

    def _ahead(self, account: Account) -> NDArray[np.bool_]:
        """Return which lanes have spent and held too much for their round: (lanes,)."""
        share = (account.round[:, None] + 1) / self.problem.horizon
        line = np.array(self.problem.budget) * share + self.problem.unit
        over: NDArray[np.bool_] = account.spent + accounts.held(self.problem, account) > line
        return np.asarray(over.any(axis=1))

    def commit(self, state: ThrottleState[State], ticket: Ticket) -> ThrottleState[State]:
        """Count the decisions in the inner policy and in the account."""
        return ThrottleState(self.policy.commit(state.inner, ticket), accounts.committed(state.account, ticket.arm))

    def settle(
        self,
        state: ThrottleState[State],
        tickets: Ticket,
        rewards: ArrayLike,
        costs: ArrayLike,
        learn: Learn = True,
    ) -> ThrottleState[State]:
        """Book the costs in the inner policy, which learns, and in the account."""
        c = np.asarray(costs, dtype=np.float64)
        inner = self.policy.settle(state.inner, tickets, np.asarray(rewards, dtype=np.float64), c, learn)
        return ThrottleState(inner, accounts.settled(state.account, tickets.arm, c))

    def cancel(self, state: ThrottleState[State], tickets: Ticket) -> ThrottleState[State]:
        """Release the holds in the inner policy and in the account."""
        return ThrottleState(self.policy.cancel(state.inner, tickets), accounts.cancelled(state.account, tickets.arm))

    def refresh_due(self, state: ThrottleState[State]) -> bool:
        """Return whether the refresh of the inner policy is due."""
        return self.policy.refresh_due(state.inner)

    def refresh(self, state: ThrottleState[State]) -> ThrottleState[State]:
        """Return the state after the refresh of the inner policy."""
        return state._replace(inner=self.policy.refresh(state.inner))


def nulled(choice: Choice, refused: NDArray[np.bool_]) -> Choice:
    """Return the choice with null, at probability 1, in the refused rows (n,).

    >>> from cbwk_core.baselines.greedy import EpsilonGreedy
    >>> policy = EpsilonGreedy(problem=Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=10))
    >>> choice = policy.decide(policy.init(2), np.stack([np.eye(2)] * 2), np.array([0.1, 0.1]))
    >>> nulled(choice, np.array([True, False])).arm
    array([-1,  0])
    """
    kept = ~refused[:, None]
    ticket = choice.ticket
    probabilities = choice.probabilities * kept
    probabilities[:, -1] += refused
    return choice._replace(
        arm=np.where(refused, NULL_ARM, choice.arm),
        probability=np.where(refused, 1.0, choice.probability),
        probabilities=probabilities,
        ticket_source=Ticket.of(
            arm=np.where(refused, NULL_ARM, ticket.arm),
            features=ticket.features * kept,
            reward=ticket.reward * ~refused,
            costs=ticket.costs * kept,
            rho=ticket.rho,
            value=ticket.value,
            round=ticket.round,
            hold=ticket.hold * kept,
            context=ticket.context,
        ),
    )
