"""The account of a baseline: the spend, the holds of open decisions, and the arms that it can still pay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.problem import Problem
from cbwk_core.ticket import BUDGET_EXHAUSTED, ENDED, NULL_ARM, POLICY


class Account(NamedTuple):
    """The account of each lane. It counts open decisions per arm, so released holds leave no rounding error."""

    round: Integers  # (lanes,), committed rounds
    spent: Array  # (lanes, d), in the caller's units
    open: Integers  # (lanes, arms), decisions neither settled nor cancelled


def new_account(problem: Problem, lanes: int) -> Account:
    """Return an account without spend and without open decisions.

    >>> new_account(Problem.of(arms=2, dimension=1, resources=1, horizon=10, budget=5), lanes=1).spent
    array([[0.]])
    """
    return Account(
        round=np.zeros(lanes, dtype=np.int64),
        spent=frozen(np.zeros((lanes, problem.resources))),
        open=np.zeros((lanes, problem.arms), dtype=np.int64),
    )


def held(problem: Problem, account: Account) -> Array:
    """Return the sum of the holds of open decisions: (lanes, d).

    >>> problem = Problem.of(arms=2, dimension=1, resources=1, horizon=10, budget=5, max_cost=[[1.0], [0.5]])
    >>> held(problem, committed(new_account(problem, lanes=2), np.array([1, NULL_ARM])))
    array([[0.5],
           [0. ]])
    """
    return account.open @ problem.hold


def playable(problem: Problem, account: Account, most: Array | None = None) -> NDArray[np.bool_]:
    """Return the arms that each lane may play: (lanes, arms).

    An arm is playable before the horizon ends, while the unheld budget of every resource covers the hold of the arm.
    most: what a decision may hold where the caller's ledger has less left than that, (lanes, d).

    >>> problem = Problem.of(arms=2, dimension=1, resources=1, horizon=10, budget=0.7, max_cost=[[1.0], [0.5]])
    >>> playable(problem, new_account(problem, lanes=1))
    array([[False,  True]])
    """
    free = np.array(problem.budget) - account.spent - held(problem, account)
    free = free if most is None else np.minimum(free, most)
    affordable = np.asarray((free[:, None, :] >= problem.hold).all(axis=2))
    return affordable & (account.round < problem.horizon)[:, None]


def reasons(problem: Problem, account: Account, allowed: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return the reason for the decision of each lane, given the arms that the lane may play.

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
    """Return the account after one more round per row, with a hold for every real arm.

    >>> problem = Problem.of(arms=2, dimension=1, resources=1, horizon=10, budget=5)
    >>> committed(new_account(problem, lanes=2), np.array([1, NULL_ARM])).open
    array([[0, 1],
           [0, 0]])
    """
    rounds = arm.size // account.round.size
    return account._replace(round=account.round + rounds, open=_counted(account, arm, 1))


def settled(account: Account, arm: Integers, costs: Array) -> Account:
    """Return the account after the costs replaced the holds of these decisions.

    >>> problem = Problem.of(arms=1, dimension=1, resources=1, horizon=10, budget=5)
    >>> arm = np.array([0])
    >>> settled(committed(new_account(problem, lanes=1), arm), arm, np.array([[0.25]])).spent
    array([[0.25]])
    """
    real = costs * (arm != NULL_ARM)[:, None]
    spent = account.spent + real.reshape(-1, *account.spent.shape).sum(axis=0)
    return account._replace(spent=frozen(spent), open=_counted(account, arm, -1))


def cancelled(account: Account, arm: Integers) -> Account:
    """Return the account after the holds of these decisions were released.

    >>> problem = Problem.of(arms=1, dimension=1, resources=1, horizon=10, budget=5)
    >>> cancelled(committed(new_account(problem, lanes=1), np.array([0])), np.array([0])).open
    array([[0]])
    """
    return account._replace(open=_counted(account, arm, -1))


def _counted(account: Account, arm: Integers, change: int) -> Integers:
    """Return the open decisions per lane and arm after a change for every row of a real arm."""
    lanes = account.round.size
    real = np.flatnonzero(arm != NULL_ARM)
    count = account.open.copy()
    np.add.at(count, (real % lanes, arm[real]), change)
    return count
