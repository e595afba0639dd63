"""A policy's own account: what is spent, what is held, which arms can still be paid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.problem import Problem
from cbwk_core.ticket import BUDGET_EXHAUSTED, ENDED, NULL_ARM, POLICY


class Account(NamedTuple):
    """Open decisions are counted per arm, so that holds given back leave no rounding behind."""

    round: Integers  # (lanes,), rounds committed
    spent: Array  # (lanes, d), in the caller's units
    open: Integers  # (lanes, arms), decisions neither settled nor cancelled


def new_account(problem: Problem, lanes: int) -> Account:
    """Nothing spent, nothing open.

    >>> new_account(Problem.of(arms=2, dimension=1, resources=1, horizon=10, budget=5), lanes=1).spent
    array([[0.]])
    """
    return Account(
        round=np.zeros(lanes, dtype=np.int64),
        spent=frozen(np.zeros((lanes, problem.resources))),
        open=np.zeros((lanes, problem.arms), dtype=np.int64),
    )


def held(problem: Problem, account: Account) -> Array:
    """The holds of open decisions, (lanes, d).

    >>> problem = Problem.of(arms=2, dimension=1, resources=1, horizon=10, budget=5, max_cost=[[1.0], [0.5]])
    >>> held(problem, committed(new_account(problem, lanes=2), np.array([1, NULL_ARM])))
    array([[0.5],
           [0. ]])
    """
    return account.open @ problem.hold


def playable(problem: Problem, account: Account) -> NDArray[np.bool_]:
    """Which arms each lane may play, (lanes, arms): the horizon is not over and every resource has one hold free.

    >>> problem = Problem.of(arms=2, dimension=1, resources=1, horizon=10, budget=0.7, max_cost=[[1.0], [0.5]])
    >>> playable(problem, new_account(problem, lanes=1))
    array([[False,  True]])
    """
    free = np.array(problem.budget) - account.spent - held(problem, account)
    affordable = np.asarray((free[:, None, :] >= problem.hold).all(axis=2))
    return affordable & (account.round < problem.horizon)[:, None]


def reasons(problem: Problem, account: Account, allowed: NDArray[np.bool_]) -> tuple[str, ...]:
    """Why each lane's decision is what it is, given which arms may be played.

    >>> problem = Problem.of(arms=1, dimension=1, resources=1, horizon=10, budget=0.7)
    >>> account = new_account(problem, lanes=1)
    >>> reasons(problem, account, playable(problem, account))
    ('budget_exhausted',)
    """
    some = np.asarray(allowed.any(axis=1))
    if some.all():
        return (POLICY,) * some.size
    over = account.round >= problem.horizon
    return tuple(ENDED if end else POLICY if able else BUDGET_EXHAUSTED for end, able in zip(over, some, strict=True))


def committed(account: Account, arm: Integers) -> Account:
    """One more round for every row, and a hold for every real arm.

    >>> problem = Problem.of(arms=2, dimension=1, resources=1, horizon=10, budget=5)
    >>> committed(new_account(problem, lanes=2), np.array([1, NULL_ARM])).open
    array([[0, 1],
           [0, 0]])
    """
    rounds = arm.size // account.round.size
    return account._replace(round=account.round + rounds, open=_opened(account, arm, 1))


def settled(account: Account, arm: Integers, costs: Array) -> Account:
    """Holds become costs.

    >>> problem = Problem.of(arms=1, dimension=1, resources=1, horizon=10, budget=5)
    >>> arm = np.array([0])
    >>> settled(committed(new_account(problem, lanes=1), arm), arm, np.array([[0.25]])).spent
    array([[0.25]])
    """
    real = costs * (arm != NULL_ARM)[:, None]
    spent = account.spent + real.reshape(-1, *account.spent.shape).sum(axis=0)
    return account._replace(spent=frozen(spent), open=_opened(account, arm, -1))


def cancelled(account: Account, arm: Integers) -> Account:
    """Holds are given back.

    >>> problem = Problem.of(arms=1, dimension=1, resources=1, horizon=10, budget=5)
    >>> cancelled(committed(new_account(problem, lanes=1), np.array([0])), np.array([0])).open
    array([[0]])
    """
    return account._replace(open=_opened(account, arm, -1))


def _opened(account: Account, arm: Integers, change: int) -> Integers:
    lanes = account.round.size
    real = np.flatnonzero(arm != NULL_ARM)
    count = account.open.copy()
    np.add.at(count, (real % lanes, arm[real]), change)
    return count
