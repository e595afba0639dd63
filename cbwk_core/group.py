"""One request of each of several policies, decided together: every policy is one row of `round.py`.

A service of a thousand campaigns receives requests of a few dozen of them at a time. Each alone would take dozens of
calls into numpy for vectors of ten numbers. Policies of one shape differ in their numbers only, so all of them go
through the same calls; only the product with each policy's own model is made for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core import round as rows_round
from cbwk_core.arguments import checked_free, checked_uniforms
from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.configuration import Configuration
from cbwk_core.oracles.halves import forgotten_rewards, predicted_of_each
from cbwk_core.problem import ProblemRows
from cbwk_core.round import Request
from cbwk_core.single import serves
from cbwk_core.state import State
from cbwk_core.ticket import Choice, Ticket

Shape = tuple[int, int, int, int, bool]


def shape_of(policy: Configuration) -> Shape | None:
    """What policies must share to be decided together; None if this one cannot.

    These are arms, dimension, resources, rules, and whether residuals are counted in the range of each arm.
    """
    if policy.model == "per_arm" and policy.gamma == "auto" and serves(policy):
        return policy.arms, policy.dimension, policy.resources, policy.rules, policy.ranges is None
    return None


class Group:
    """n policies of one shape, each with its state of one lane.

    >>> from cbwk_core import SquareCBwK
    >>> policies = [SquareCBwK(arms=2, dimension=1, resources=1, horizon=9, budget=b, model="per_arm") for b in (4, 5)]
    >>> group = Group(policies, [policy.init() for policy in policies])
    >>> choice = group.decide(np.ones((2, 1)), np.array([0.5, 0.9]), free=np.array([[4], [0]]))
    >>> choice.arm, [state.round.item() for state in group.commit(choice.ticket)]
    (array([ 0, -1]), [1, 1])
    """

    def __init__(self, policies: Sequence[Configuration], states: Sequence[State]) -> None:
        self._policy, self._states = policies[0], states
        self._problem = ProblemRows.stacked([policy.problem.rows for policy in policies])
        books = np.concatenate([state.books for state in states])
        residuals = np.concatenate([state.residuals for state in states])
        self._state = State(books, None, residuals, states[0].stage)

    @property
    def round(self) -> Integers:
        """The rounds that each policy has committed, (n,)."""
        return self._state.round

    @property
    def learnt(self) -> Integers:
        """The outcomes that each oracle has learnt, (n,)."""
        return self._state.learnt

    def decide(self, features: Array, uniforms: Array, free: ArrayLike) -> Choice:
        """Row i answers a request of policy i: features (n, dimension), uniforms (n,), free (n, d).

        The answers are those of `SquareCBwK.decide`; prices and γ of the thought have a row per policy.
        """
        policy, rows = self._policy, len(self._states)
        x = policy.checked_features(features)
        models = [state.oracle for state in self._states]
        predictions, leverage = predicted_of_each(models, policy.lifted(x[:, 0]))
        account = checked_free(free, rows, policy.resources)
        request = Request(x, predictions, leverage, None, self._problem.hold, checked_uniforms(uniforms, rows))
        gone = np.concatenate([forgotten_rewards(model) for model in models])
        return rows_round.decide(policy, self._problem, self._state, gone, request, account)

    def commit(self, ticket: Ticket) -> list[State]:
        """The states after these decisions, one of each policy."""
        books = rows_round.commit(self._policy, self._problem, self._state, ticket).books
        # A copy per state: a view would keep the books of all policies alive as long as one of them lives.
        return [
            State(frozen(row[None].copy()), state.oracle, state.residuals, state.stage)
            for state, row in zip(self._states, books, strict=True)
        ]
