"""An even-pace throttle around any policy: what ad servers do who pace without learning prices."""

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
    """The policy's state, and the throttle's own account beside it."""

    inner: State
    account: Account


@dataclass(frozen=True, kw_only=True)
class Throttle(Generic[State]):
    """Plays what the policy says while spend keeps to the even pace, else null.

    Resource j is on pace in round t (from 0) when spent_j + held_j <= budget_j·(t + 1)/T + one max cost of j. Holds
    count, or a delay would let the first rounds run away.

    >>> from cbwk_core.baselines.greedy import EpsilonGreedy
    >>> problem = Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=10)
    >>> policy = Throttle(policy=EpsilonGreedy(problem=problem), problem=problem)
    >>> state = policy.init()
    >>> for _ in range(3):
    ...     choice = policy.decide(state, np.eye(2)[None], np.array([0.1]))
    ...     state = policy.commit(state, choice.ticket)
    >>> choice.arm  # two holds are open and three rounds' pace is 0.3
    array([-1])
    """

    policy: Policy[State]
    problem: Problem

    null_arm = NULL_ARM

    @property
    def arms(self) -> int:
        """How many arms there are, without the null arm."""
        return self.policy.arms

    @property
    def resources(self) -> int:
        """How many budgets there are."""
        return self.policy.resources

    @property
    def model(self) -> str:
        """The policy's."""
        return self.policy.model

    def init(self, lanes: int = 1) -> ThrottleState[State]:
        """The state before any round."""
        return ThrottleState(self.policy.init(lanes), accounts.new_account(self.problem, lanes))

    def decide(self, state: ThrottleState[State], features: Array, uniforms: Array) -> Choice:
        """The policy's choice, or null with certainty in a lane that is ahead of the even pace."""
        choice = self.policy.decide(state.inner, features, uniforms)
        ahead = self._ahead(state.account)
        if not ahead.any():
            return choice
        rest = ~ahead[:, None]
        ticket = choice.ticket
        probabilities = choice.probabilities * rest
        probabilities[:, -1] += ahead
        return choice._replace(
            arm=np.where(ahead, NULL_ARM, choice.arm),
            probability=np.where(ahead, 1.0, choice.probability),
            probabilities=probabilities,
            ticket_source=Ticket.of(
                arm=np.where(ahead, NULL_ARM, ticket.arm),
                features=ticket.features * rest,
                reward=ticket.reward * ~ahead,
                costs=ticket.costs * rest,
                rho=ticket.rho,
                value=ticket.value,
                round=ticket.round,
                hold=ticket.hold * rest,
                context=ticket.context,
            ),
        )

    def _ahead(self, account: Account) -> NDArray[np.bool_]:
        """Which lanes have spent too much for their round, (lanes,)."""
        share = (account.round[:, None] + 1) / self.problem.horizon
        line = np.array(self.problem.budget) * share + self.problem.unit
        over: NDArray[np.bool_] = account.spent + accounts.held(self.problem, account) > line
        return np.asarray(over.any(axis=1))

    def commit(self, state: ThrottleState[State], ticket: Ticket) -> ThrottleState[State]:
        """Count the decisions on both sides."""
        return ThrottleState(self.policy.commit(state.inner, ticket), accounts.committed(state.account, ticket.arm))

    def settle(
        self,
        state: ThrottleState[State],
        tickets: Ticket,
        rewards: ArrayLike,
        costs: ArrayLike,
        learn: Learn = True,
    ) -> ThrottleState[State]:
        """Book the costs on both sides; the policy learns."""
        c = np.asarray(costs, dtype=np.float64)
        inner = self.policy.settle(state.inner, tickets, np.asarray(rewards, dtype=np.float64), c, learn)
        return ThrottleState(inner, accounts.settled(state.account, tickets.arm, c))

    def cancel(self, state: ThrottleState[State], tickets: Ticket) -> ThrottleState[State]:
        """Give the holds back on both sides."""
        return ThrottleState(self.policy.cancel(state.inner, tickets), accounts.cancelled(state.account, tickets.arm))

    def refresh_due(self, state: ThrottleState[State]) -> bool:
        """Whether the policy has something to do."""
        return self.policy.refresh_due(state.inner)

    def refresh(self, state: ThrottleState[State]) -> ThrottleState[State]:
        """The policy's refresh."""
        return state._replace(inner=self.policy.refresh(state.inner))
