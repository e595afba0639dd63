"""Many outcomes at once, for a flight over a long log.

`SquareCBwK.settle` teaches the oracle row by row, because a service must come to the same bits however its rows are put
together. Here one batch follows the other in one process, so ridge regression may be formed from its normal equations.
The two agree to rounding, which the tests hold, as long as nothing changes: changes are not watched for here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cbwk_core import two_stage
from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.evaluation.outcome_model import is_ridge
from cbwk_core.oracles.newton import Newton, NewtonState
from cbwk_core.policy import SquareCBwK
from cbwk_core.state import State
from cbwk_core.ticket import NULL_ARM, Ticket

# Below so many rows there is nothing to be gained.
ROWS_MIN = 16


def advanced(policy: SquareCBwK, state: State, ticket: Ticket, outcomes: Array) -> State:
    """The state after n decisions of the only lane were committed and then settled with outcomes (n, 1 + d).

    >>> policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=900, budget=300, model="per_arm")
    >>> state, x = policy.init(), np.linspace(0, 1, 40)[:, None]
    >>> choice = policy.decide(state, x, np.full(40, 0.4))
    >>> outcomes = np.column_stack([x[:, 0], 0.5 * x[:, 0]])
    >>> one = advanced(policy, state, choice.ticket, outcomes)
    >>> other = policy.settle(policy.commit(state, choice.ticket), choice.ticket, outcomes[:, 0], outcomes[:, 1:])
    >>> np.allclose(one.books, other.books), np.allclose(one.oracle.theta, other.oracle.theta)
    (True, True)
    """
    state = policy.commit(state, ticket)
    fast = is_fast(policy) and ticket.arm.size >= ROWS_MIN
    state = policy.settle(state, ticket, outcomes[:, 0], outcomes[:, 1:], learn=not fast)
    rows = np.flatnonzero(ticket.arm != NULL_ARM)
    if not fast or not rows.size:
        return state
    target = outcomes[rows] / np.append(1.0, policy.problem.unit)
    surprise = target - np.column_stack([ticket.reward[rows], ticket.costs[rows]])
    block = ticket.arm[rows] if policy.model == "per_arm" else np.zeros(rows.size, dtype=np.int64)
    assert isinstance(policy.regressor, Newton), "is_fast says so"
    oracle = _learnt(policy.regressor, state.oracle, policy.lifted(ticket.features[rows]), target, block)
    residuals = frozen(state.residuals + (surprise.T @ surprise)[None])
    return state.booked(learnt=float(rows.size))._replace(oracle=oracle, residuals=residuals)


def is_fast(policy: SquareCBwK) -> bool:
    """Whether its oracle is ridge regression, and nothing is collected for a second stage."""
    return is_ridge(policy.regressor) and two_stage.mode_of(policy) == "off"


def _learnt(oracle: Newton, state: NewtonState, x: Array, y: Array, block: Integers) -> NewtonState:
    """Ridge regression after more rows: A += XᵀX and θ = A⁻¹(A_before·θ_before + XᵀY), block by block."""
    m = x.shape[1]
    order = np.argsort(block, kind="stable")
    ends = np.searchsorted(block[order], np.arange(oracle.blocks + 1))
    touched = np.flatnonzero(np.diff(ends))
    old = np.stack([state.gram[b][0] for b in touched])
    gram, moment = old.copy(), old @ state.solution[0, touched, m:].transpose(0, 2, 1)
    for place, b in enumerate(touched.tolist()):
        rows = order[ends[b] : ends[b + 1]]
        gram[place] += x[rows].T @ x[rows]
        moment[place] += x[rows].T @ y[rows]
    inverse = np.linalg.inv(gram)
    inverse = 0.5 * (inverse + inverse.transpose(0, 2, 1))
    solution, updates, grams = state.solution.copy(), state.updates.copy(), list[Any](state.gram)
    solution[0, touched, :m] = inverse
    solution[0, touched, m:] = (inverse @ moment).transpose(0, 2, 1)
    updates[0] += np.diff(ends)
    for place, b in enumerate(touched.tolist()):
        grams[b] = frozen(gram[place][None])
    return state._replace(solution=frozen(solution), gram=tuple(grams), updates=frozen(updates))
