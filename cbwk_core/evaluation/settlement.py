"""Commits and settles a batch of decisions at once, for a flight over a long log.

`SquareCBwK.settle` updates the oracle row by row, because a service must reach the same bits for any grouping of its
rows. One process flies one flight, so it may update ridge regression with the normal equations of the batch. Both
states agree up to rounding, except that this update does not look for changes of the world.
"""

from __future__ import annotations

import numpy as np

from cbwk_core import two_stage
from cbwk_core.arrays import Array, frozen
from cbwk_core.evaluation.ridge import is_ridge, ridge_update
from cbwk_core.oracles.newton_state import NewtonState
from cbwk_core.policy import SquareCBwK
from cbwk_core.rules.noise import in_ranges
from cbwk_core.state import State
from cbwk_core.ticket import NULL_ARM, Ticket

# The closed form is not faster for fewer rows.
ROWS_MIN = 16


def commit_and_settle(policy: SquareCBwK, state: State, ticket: Ticket, outcomes: Array) -> State:
    """Return the state after n decisions of the only lane and their outcomes (n, 1 + d): the reward, then the costs.

    >>> policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=900, budget=300, model="per_arm")
    >>> state, x = policy.init(), np.linspace(0, 1, 40)[:, None]
    >>> ticket = policy.decide(state, x, np.full(40, 0.4)).ticket
    >>> outcomes = np.column_stack([x[:, 0], 0.5 * x[:, 0]])
    >>> batch = commit_and_settle(policy, state, ticket, outcomes)
    >>> single = policy.settle(policy.commit(state, ticket), ticket, outcomes[:, 0], outcomes[:, 1:])
    >>> np.allclose(batch.spent, single.spent), np.allclose(batch.oracle.theta, single.oracle.theta)
    (True, True)
    """
    state = policy.commit(state, ticket)
    at_once = learns_in_closed_form(policy) and isinstance(state.oracle, NewtonState) and ticket.arm.size >= ROWS_MIN
    state = policy.settle(state, ticket, outcomes[:, 0], outcomes[:, 1:], learn=not at_once)
    rows = np.flatnonzero(ticket.arm != NULL_ARM)
    if not at_once or not rows.size:
        return state
    target = outcomes[rows] / np.append(1.0, policy.problem.unit)
    surprise = target - np.column_stack([ticket.reward[rows], ticket.costs[rows]])
    if policy.ranges is not None:
        surprise = in_ranges(surprise, target, policy.ranges[ticket.arm[rows]])
    block = ticket.arm[rows] if policy.model == "per_arm" else np.zeros(rows.size, dtype=np.int64)
    oracle = ridge_update(state.oracle, policy.lifted(ticket.features[rows]), target, block)
    residuals = frozen(state.residuals + (surprise.T @ surprise)[None])
    return state.booked(learnt=float(rows.size))._replace(oracle=oracle, residuals=residuals)


def learns_in_closed_form(policy: SquareCBwK) -> bool:
    """Return whether the oracle is ridge regression and no first stage collects outcomes."""
    return is_ridge(policy.regressor) and two_stage.mode_of(policy) == "off"
