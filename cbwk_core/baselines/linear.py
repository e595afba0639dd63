"""What the linear baselines share: ridge regression of reward and costs, an account, and the form of their answers."""

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
from cbwk_core.oracles.newton import Newton, NewtonState
from cbwk_core.problem import Problem
from cbwk_core.ticket import NULL_ARM, Ticket

MODELS = ("shared", "per_arm")
# Scores this close are ties and go to the lower index: which of two equal sums comes out larger in the last place may
# depend on the kernel that multiplies the matrices, and that on the number of lanes.
TIE = 1e-12


class LearnerState(NamedTuple):
    """What a linear baseline knows."""

    account: Account
    oracle: NewtonState  # targets: reward, then costs in max costs


@dataclass(frozen=True, kw_only=True)
class LinearLearner(Baseline):
    """Ridge regression on one Gram matrix, which is the Newton oracle with the identity link and no projection.

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
        """Reward and costs of one round; one block of parameters per arm, or one for all."""
        blocks = self.arms if self.model == "per_arm" else 1
        return Newton(dimension=self.problem.dimension, targets=1 + self.resources, blocks=blocks, ridge=self.ridge)

    def init(self, lanes: int = 1) -> LearnerState:
        """The state before any round."""
        return LearnerState(accounts.new_account(self.problem, lanes), self.oracle.init(lanes))

    def features(self, state: LearnerState, features: ArrayLike) -> Array:
        """The features of one row per lane, checked."""
        lanes, dimension = state.account.round.size, self.problem.dimension
        if self.model == "per_arm":
            return finite("features", features, (lanes, dimension))
        return finite("features", features, (lanes, self.arms, dimension))

    def predict(self, state: LearnerState, features: ArrayLike) -> Array:
        """Reward, then costs in max costs, of every arm: (lanes, arms, 1 + d)."""
        return self.oracle.predict(state.oracle, self.features(state, features))

    def playable(self, state: LearnerState) -> NDArray[np.bool_]:
        """Which arms may be played, (lanes, arms)."""
        return accounts.playable(self.problem, state.account)

    def commit(self, state: LearnerState, ticket: Ticket) -> LearnerState:
        """Count the round and hold what the arm may cost."""
        return state._replace(account=accounts.committed(state.account, ticket.arm))

    def settle(
        self, state: LearnerState, tickets: Ticket, rewards: ArrayLike, costs: ArrayLike, learn: Learn = True
    ) -> LearnerState:
        """Book the costs, and teach the oracle the rows it may learn from."""
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
        """Give the holds back; nothing is learnt."""
        return state._replace(account=accounts.cancelled(state.account, tickets.arm))


def best_column(scores: Array, allowed: NDArray[np.bool_]) -> Integers:
    """The first best allowed arm of each row, the number of arms where none is allowed.

    >>> best_column(np.array([[1.0, 2.0, 2.0], [3.0, 0.0, 0.0]]), np.array([[True, True, True], [False] * 3]))
    array([1, 3])
    """
    masked = np.where(allowed, scores, -np.inf)
    top = masked.max(axis=1, keepdims=True)
    first: Integers = (masked >= top - TIE).argmax(axis=1)
    return np.where(allowed.any(axis=1), first, scores.shape[1])


def certain(column: Integers, columns: int) -> Array:
    """Probability 1 for one column of each row.

    >>> certain(np.array([2, 0]), 3)
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    probabilities = np.zeros((column.size, columns))
    probabilities[np.arange(column.size), column] = 1.0
    return probabilities
