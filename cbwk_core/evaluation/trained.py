"""Another SquareCBwK as the target: it learns from the logged outcomes, and its prices follow its expected spend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbwk_core import two_stage
from cbwk_core.arrays import Array
from cbwk_core.evaluation.batches import check_fit, next_batch
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.parallel import Progress
from cbwk_core.policy import SquareCBwK
from cbwk_core.state import State
from cbwk_core.ticket import NULL_ARM, Ticket


@dataclass(frozen=True)
class Trained:
    """A policy that is trained on the log, round by round.

    Its oracle learns the outcomes of the logged arms. Its prices follow its own predicted rewards and costs, expected
    over its own probabilities. Its probabilities in a round depend on earlier rounds only, so the estimators stay
    unbiased in each round. Limitation: if the policy had played its own arms, it would have learnt from other outcomes.

    >>> log = Log.of(features=np.ones((3, 1)), eligible=np.ones((3, 2), dtype=bool), arm=[0, 1, 0],
    ...              propensity=[0.5] * 3, reward=[0, 1, 0], costs=[[0.5]] * 3)
    >>> policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=3, budget=3, model="per_arm")
    >>> Trained(policy).probabilities(log).argmax(axis=1)  # ties go to arm 0; arm 1 earns in the second round
    array([0, 0, 1])
    """

    policy: SquareCBwK

    def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
        """Return the probabilities of each round given the earlier rounds; null after its own budgets are spent."""
        policy = self.policy
        check_fit(policy, log)
        if two_stage.mode_of(policy) != "off":
            raise ValueError(f"a policy trained on a log must have one stage, got two_stage={policy.two_stage!r}")
        state = policy.init()
        result = np.zeros((log.rounds, log.arms))
        chosen = log.chosen_features()
        rows = next_batch(policy, state, 0, log.rounds)
        while rows is not None:
            state, result[rows] = _step(policy, state, log, chosen, rows)
            if progress is not None:
                progress(rows.stop, log.rounds)
            rows = next_batch(policy, state, rows.stop, log.rounds)
        return result


def _step(policy: SquareCBwK, state: State, log: Log, chosen: Array, rows: slice) -> tuple[State, Array]:
    """Return the state after some rounds and the probabilities of these rounds."""
    x, arm = log.features[rows], log.arm[rows]
    size = arm.size
    choice = policy.decide(state, x, np.zeros(size), exclude=~log.eligible[rows])
    given = choice.probabilities[:, :-1]
    predictions, rho = policy.predict(state, x), choice.ticket.rho
    # What a ticket counts of the arm that is drawn, in expectation over all arms. The ticket of the choice would count
    # the arm that a uniform of 0 draws: the first one, so the answer would depend on the numbers of the arms.
    expected = np.matmul(given[:, None, :], np.maximum(predictions, 0.0))[:, 0]
    plays = given.any(axis=1)
    own = Ticket.of(
        arm=np.where(plays, 0, NULL_ARM),
        features=np.zeros((size, policy.dimension)),
        reward=expected[:, 0],
        costs=expected[:, 1:],
        rho=rho,
        value=expected[:, 0],
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
