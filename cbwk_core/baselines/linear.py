"""The part that the linear baselines share: ridge regression of the reward and the costs, and an account."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.arrays import Array, Integers, finite
from cbwk_core.baselines import account as accounts
from cbwk_core.baselines.account import Account
from cbwk_core.baselines.baseline import Baseline
from cbwk_core.baselines.policy import Learn
from cbwk_core.oracles.newton import Newton
from cbwk_core.oracles.newton_state import NewtonState
from cbwk_core.problem import Problem
from cbwk_core.ticket import NULL_ARM, Ticket

MODELS = ("shared", "per_arm")
# Scores within this distance are ties, and the lower index wins. The last bit of a matrix product can depend on the
# number of lanes, so an exact comparison could choose different arms for equal scores.
TIE = 1e-12


class LearnerState(NamedTuple):
    """The account and the regression of a linear baseline."""

    account: Account
    oracle: NewtonState  # its targets are the reward, then the costs in max costs


@dataclass(frozen=True, kw_only=True)
class LinearLearner(Baseline):
    """Ridge regression with one Gram matrix: the Newton oracle with the identity link and without projection.

    >>> problem = Problem.of(arms=2, dimension=2, resources=1, horizon=10, budget=5)
    >>> learner = LinearLearner(problem=problem)
    >>> learner.predict(learner.init(), np.eye(2)[None]).shape  # rows, arms, reward and costs
    (1, 2, 2)
    """

    problem: Problem
    model: str = "shared"
    ridge: float = 1.0

    null_arm = NULL_ARM

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {MODELS}, got {self.model!r}")
        if self.problem.arms < 1:
            raise ValueError("a baseline needs at least one arm, got 0")

    @cached_property
    def oracle(self) -> Newton:
        """The regression of the reward and the costs: one block of parameters per arm, or one block for all arms."""
        blocks = self.arms if self.model == "per_arm" else 1
        return Newton(dimension=self.problem.dimension, targets=1 + self.resources, blocks=blocks, ridge=self.ridge)

    def init(self, lanes: int = 1) -> LearnerState:
        """Return the state before the first round."""
        return LearnerState(accounts.new_account(self.problem, lanes), self.oracle.init(lanes))

    def features(self, state: LearnerState, features: ArrayLike) -> Array:
        """Return the checked features of one row per lane; a wrong shape raises a ValueError."""
        lanes, dimension = state.account.round.size, self.problem.dimension
        if self.model == "per_arm":
            return finite("features", features, (lanes, dimension))
        return finite("features", features, (lanes, self.arms, dimension))

    def predict(self, state: LearnerState, features: ArrayLike) -> Array:
        """Return the predicted reward, then the predicted costs in max costs, of every arm: (lanes, arms, 1 + d)."""
        return self.oracle.predict(state.oracle, self.features(state, features))

    def playable(self, state: LearnerState) -> NDArray[np.bool_]:
        """Return the arms that each lane may play: (lanes, arms)."""
        return accounts.playable(self.problem, state.account)

    def commit(self, state: LearnerState, ticket: Ticket) -> LearnerState:
        """Count the round and take the hold of the arm."""
        return state._replace(account=accounts.committed(state.account, ticket.arm))

    def settle(
        self, state: LearnerState, tickets: Ticket, rewards: ArrayLike, costs: ArrayLike, learn: Learn = True
    ) -> LearnerState:
        """Book the costs and update the regression with the rows of real arms where `learn` is true."""
        rows = tickets.arm.size
        y = finite("rewards", rewards, (rows,))
        c = finite("costs", costs, (rows, self.resources))
        real = tickets.arm != NULL_ARM
        weight = (real & learn).astype(np.float64)
        oracle = state.oracle
        if weight.any():
            block = np.where(real, tickets.arm, 0) if self.model == "per_arm" else None
            targets = np.concatenate([y[:, None], c / self.problem.unit], axis=1)
            oracle = self.oracle.update(oracle, tickets.features, targets, block, weight)
        return LearnerState(accounts.settled(state.account, tickets.arm, c), oracle)

    def cancel(self, state: LearnerState, tickets: Ticket) -> LearnerState:
        """Release the holds; the regression does not change."""
        return state._replace(account=accounts.cancelled(state.account, tickets.arm))


def best_column(scores: Array, allowed: NDArray[np.bool_]) -> Integers:
    """Return the first of the best allowed arms of each row, or the number of arms if none is allowed.

    >>> best_column(np.array([[1.0, 2.0, 2.0], [3.0, 0.0, 0.0]]), np.array([[True, True, True], [False] * 3]))
    array([1, 3])
    """
    masked = np.where(allowed, scores, -np.inf)
    top = masked.max(axis=1, keepdims=True)
    first: Integers = (masked >= top - TIE).argmax(axis=1)
    return np.where(allowed.any(axis=1), first, scores.shape[1])


def one_hot(column: Integers, columns: int) -> Array:
    """Return probabilities (rows, columns) that are 1 in one column of each row.

    >>> one_hot(np.array([2, 0]), 3)
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    probabilities = np.zeros((column.size, columns))
    probabilities[np.arange(column.size), column] = 1.0
    return probabilities
