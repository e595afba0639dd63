"""Ridge regression in closed form: the state that the Newton oracle reaches row by row, from its normal equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.oracles import Newton, NewtonState
from cbwk_core.oracles.oracle import Oracle


class NormalEquations(NamedTuple):
    """XᵀX and XᵀY of each block."""

    gram: Array  # (blocks, m, m)
    moment: Array  # (blocks, m, targets)
    rows: Integers  # (blocks,)


def is_ridge(oracle: Oracle[Any]) -> TypeGuard[Newton]:
    """Return whether row by row updates of the oracle equal ridge regression, as long as it detects no change.

    >>> is_ridge(Newton(dimension=2, targets=1)), is_ridge(Newton(dimension=2, targets=1, link="logistic"))
    (True, False)
    """
    return (
        isinstance(oracle, Newton) and oracle.link == "identity" and oracle.radius is None and oracle.forgetting is None
    )


def normal_equations(x: Array, y: Array, block: Integers, blocks: int) -> NormalEquations:
    """Return the sums over the rows of each block.

    >>> normal_equations(np.array([[2.0], [1.0]]), np.array([[1.0], [3.0]]), np.array([0, 0]), 1).moment
    array([[[5.]]])
    """
    order = np.argsort(block, kind="stable")
    ends = np.searchsorted(block[order], np.arange(blocks + 1))
    gram = np.zeros((blocks, x.shape[1], x.shape[1]))
    moment = np.zeros((blocks, x.shape[1], y.shape[1]))
    for b in range(blocks):
        rows = order[ends[b] : ends[b + 1]]
        gram[b], moment[b] = x[rows].T @ x[rows], x[rows].T @ y[rows]
    return NormalEquations(gram, moment, np.diff(ends).astype(np.int64))


def ridge_state(oracle: Newton, parts: Sequence[NormalEquations]) -> NewtonState:
    """Return the state after all rows of the parts: A = ridge·I + XᵀX and θ = A⁻¹XᵀY.

    >>> sums = normal_equations(np.array([[2.0], [1.0]]), np.array([[1.0], [3.0]]), np.array([0, 0]), 1)
    >>> ridge_state(Newton(dimension=1, targets=1), [sums]).theta.round(3)  # 5 / (1 + 5)
    array([[[[0.833]]]])
    """
    m = oracle.dimension
    gram = np.sum([part.gram for part in parts], axis=0) + oracle.ridge * np.eye(m)
    moment = np.sum([part.moment for part in parts], axis=0)
    solution = np.empty((1, oracle.blocks, m + oracle.targets, m))
    for b in range(oracle.blocks):
        factor = cho_factor(gram[b])
        solution[0, b, :m] = cho_solve(factor, np.eye(m))
        solution[0, b, m:] = cho_solve(factor, moment[b]).T
    updates = np.sum([part.rows for part in parts], axis=0)[None]
    grams = tuple(frozen(block[None]) for block in gram)
    return oracle.init()._replace(solution=frozen(solution), gram=grams, updates=frozen(updates))


def ridge_update(state: NewtonState, x: Array, y: Array, block: Integers) -> NewtonState:
    """Return the state after more rows of its only lane: A += XᵀX and θ = A⁻¹(A_before·θ_before + XᵀY) in each block.

    >>> oracle, x, y = Newton(dimension=1, targets=1), np.array([[2.0], [1.0]]), np.array([[1.0], [3.0]])
    >>> ridge_update(oracle.init(), x, y, np.array([0, 0])).theta.round(3)
    array([[[[0.833]]]])
    """
    m = x.shape[1]
    touched, place = np.unique(block, return_inverse=True)
    added = normal_equations(x, y, place, touched.size)
    before = np.stack([state.gram[b][0] for b in touched])
    gram = before + added.gram
    moment = before @ state.solution[0, touched, m:].transpose(0, 2, 1) + added.moment
    inverse = np.linalg.inv(gram)
    inverse = 0.5 * (inverse + inverse.transpose(0, 2, 1))
    solution, updates, grams = state.solution.copy(), state.updates.copy(), list(state.gram)
    solution[0, touched, :m] = inverse
    solution[0, touched, m:] = (inverse @ moment).transpose(0, 2, 1)
    updates[0, touched] += added.rows
    for b, part in zip(touched.tolist(), gram, strict=True):
        grams[b] = frozen(part[None])
    return state._replace(solution=frozen(solution), gram=tuple(grams), updates=frozen(updates))
