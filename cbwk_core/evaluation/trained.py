"""Another SquareCBwK as the target: it learns from the logged outcomes and paces its own expected spend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbwk_core import two_stage
from cbwk_core.arrays import Array
from cbwk_core.evaluation.along import check_fit, next_batch
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.parallel import Progress
from cbwk_core.policy import SquareCBwK
from cbwk_core.state import State
from cbwk_core.ticket import NULL_ARM, Ticket


@dataclass(frozen=True)
class Trained:
    """A policy trained along the log.

    In each round it gives the probabilities that follow from the rounds before: its oracle has learnt the logged arms'
    outcomes, its prices have moved by its own predicted costs, expected over its own probabilities. So these depend on
    the past of the log only, and the estimators' expectation holds round by round. What it does not show: with other
    arms played it would have learnt other things.
    """

    policy: SquareCBwK

    def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
        """Of each round, given those before it; once its own budgets are spent it plays null.

        >>> log = Log.of(features=np.ones((3, 1)), eligible=np.ones((3, 2), dtype=bool), arm=[0, 1, 0],
        ...              propensity=[0.5] * 3, reward=[0, 1, 0], costs=[[0.5]] * 3)
        >>> policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=3, budget=3, model="per_arm")
        >>> Trained(policy).probabilities(log).argmax(axis=1)  # ties go to arm 0, then arm 1 was seen to earn
        array([0, 0, 1])
        """
        policy = self.policy
        check_fit(policy, log)
        if two_stage.mode_of(policy) != "off":
            raise ValueError(f"a policy trained along a log must have one stage, got two_stage={policy.two_stage!r}")
        state = policy.init()
        result = np.zeros((log.rounds, log.arms))
        chosen = log.chosen_features()
        rows = next_batch(policy, _left(policy, state), 0, log.rounds)
        while rows is not None:
            state, result[rows] = _step(policy, state, log, chosen, rows)
            if progress is not None:
                progress(rows.stop, log.rounds)
            rows = next_batch(policy, _left(policy, state), rows.stop, log.rounds)
        return result


def _left(policy: SquareCBwK, state: State) -> Array:
    return np.asarray(np.asarray(policy.budget) - state.spent[0])


def _step(policy: SquareCBwK, state: State, log: Log, chosen: Array, rows: slice) -> tuple[State, Array]:
    """The state after some rounds, and the probabilities before them."""
    x, arm = log.features[rows], log.arm[rows]
    size = arm.size
    choice = policy.decide(state, x, np.zeros(size), exclude=~log.eligible[rows])
    given = choice.probabilities[:, :-1]
    predictions, rho = policy.predict(state, x), np.broadcast_to(policy.quote(state).rho, (size, policy.resources))
    expected = np.matmul(given[:, None, :], predictions)[:, 0]
    plays = given.any(axis=1)
    own = Ticket.of(
        arm=np.where(plays, 0, NULL_ARM),
        features=np.zeros((size, policy.dimension)),
        reward=expected[:, 0],
        costs=np.maximum(expected[:, 1:], 0.0),
        rho=rho,
        value=choice.ticket.value,
        round=choice.ticket.round,
        hold=np.zeros((size, policy.resources)),
    )
    state = policy.commit(state, own)
    spent, count = own.costs.sum(axis=0), float(plays.sum())
    state = state.booked(spent=spent * policy.problem.unit, predicted=-spent, opened=-count, settled=count)
    seen = predictions[np.arange(size), arm]
    logged = Ticket.of(
        arm=arm,
        features=chosen[rows],
        reward=seen[:, 0],
        costs=np.maximum(seen[:, 1:], 0.0),
        rho=rho,
        value=np.zeros(size),
        round=choice.ticket.round,
        hold=np.zeros((size, policy.resources)),
    )
    return policy.teach(state, logged, log.reward[rows], log.costs[rows]), given
