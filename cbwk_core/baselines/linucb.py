"""LinUCB for linear contextual bandits with knapsacks (Agrawal & Devanur 2016, Algorithm 1).

    play argmax_a  x_aᵀμ̃ - Z Σ_j θ_j x_aᵀw̃_j,   x_aᵀμ̃ = x_aᵀμ̂ + β‖x_a‖_{A⁻¹},   x_aᵀw̃_j = x_aᵀŵ_j - β‖x_a‖_{A⁻¹}

Ridge regression with one Gram matrix A estimates μ̂ and ŵ_j. Multiplicative weights with the gradient (cost - B/T)
update θ in {θ >= 0, ‖θ‖₁ <= 1}; Z = T/B. The null arm is the arm with x = 0; its score is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.baselines.baseline import Baseline
from cbwk_core.baselines.linear import LearnerState, LinearLearner, best_column, one_hot
from cbwk_core.baselines.policy import Learn
from cbwk_core.problem import Problem
from cbwk_core.ticket import NULL_ARM, Choice, Ticket


class LinUCBState(NamedTuple):
    """The regression and the dual. A decision counts at its predicted cost in `log_weights` until it is settled."""

    learner: LearnerState
    log_weights: Array  # (lanes, d), Σ step·(cost - B/T); the slack's log weight is 0


@dataclass(frozen=True, kw_only=True)
class LinUCB(Baseline):
    """Plays the arm with the best optimistic score at prices Z·θ.

    delta: None sets β = √m, as the authors of SquareCBwK do in their comparison. A number sets the confidence radius
        β_t = √(m ln((1 + t·m)/δ)) + √m of Agrawal & Devanur (after Abbasi-Yadkori et al. 2011, Theorem 2).
    z: the radius of the dual set; None sets T/B. step: the step of the dual; None sets √(ln(d + 1)/T).
    play_null: whether the policy plays null when no score is positive, as in the algorithm. The authors of SquareCBwK
        compare without this rule.

    >>> policy = LinUCB(problem=Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=50))
    >>> policy.decide(policy.init(), np.eye(2)[None], [0.5]).arm
    array([0])
    """

    problem: Problem
    model: str = "shared"
    delta: float | None = None
    ridge: float = 1.0
    z: float | None = None
    step: float | None = None
    play_null: bool = True

    null_arm = NULL_ARM

    def __post_init__(self) -> None:
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(f"delta must lie in (0, 1), got {self.delta}")
        for name, value in (("z", self.z), ("step", self.step)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")

    @cached_property
    def learner(self) -> LinearLearner:
        """The ridge regression with its account."""
        return LinearLearner(problem=self.problem, model=self.model, ridge=self.ridge)

    @cached_property
    def _budget_rate(self) -> float:
        """B/T in max costs per round, after `problem.scale` made all budgets equal to the least one."""
        return float(self.problem.rho.min())

    @cached_property
    def _step(self) -> float:
        return float(np.sqrt(np.log(self.resources + 1) / self.problem.horizon)) if self.step is None else self.step

    def init(self, lanes: int = 1) -> LinUCBState:
        """Return the first state: θ is uniform over the resources and the slack."""
        return LinUCBState(self.learner.init(lanes), frozen(np.zeros((lanes, self.resources))))

    def radius(self, rounds: Integers) -> Array:
        """Return β after each of these numbers of rounds.

        >>> policy = LinUCB(problem=Problem.of(arms=1, dimension=4, resources=1, horizon=10, budget=5), delta=0.1)
        >>> policy.radius(np.array([0, 10])).round(3)  # √(4 ln 10) + 2, then √(4 ln 410) + 2
        array([5.035, 6.906])
        """
        m = self.problem.dimension
        if self.delta is None:
            return np.full(rounds.shape, np.sqrt(m))
        return np.asarray(np.sqrt(m * np.log((1.0 + rounds * m) / self.delta)) + np.sqrt(m))

    def prices(self, state: LinUCBState) -> Array:
        """Return the prices Z·θ per max cost: (lanes, d).

        >>> policy = LinUCB(problem=Problem.of(arms=1, dimension=4, resources=1, horizon=10, budget=5))
        >>> policy.prices(policy.init())
        array([[1.]])
        """
        shift = np.maximum(state.log_weights.max(axis=1, keepdims=True), 0.0)
        weights = np.exp(state.log_weights - shift)
        theta = weights / (weights.sum(axis=1, keepdims=True) + np.exp(-shift))
        z = 1.0 / self._budget_rate if self.z is None else self.z
        return np.asarray(z * theta * self.problem.scale)

    def decide(self, state: LinUCBState, features: ArrayLike, uniforms: ArrayLike) -> Choice:
        """Return the arm with the best optimistic score of each lane; the choice does not depend on the uniforms."""
        del uniforms
        learner = self.learner
        x = learner.features(state.learner, features)
        predictions = learner.oracle.predict(state.learner.oracle, x)
        beta = self.radius(state.learner.account.round)
        candidates = x[:, None, :] if self.model == "per_arm" else x
        width = beta[:, None] * np.sqrt(learner.oracle.spread(state.learner.oracle, candidates))
        prices = self.prices(state)
        scores = predictions[..., 0] + width - np.matmul(predictions[..., 1:], prices[..., None])[..., 0]
        scores += width * prices.sum(axis=1, keepdims=True)
        allowed = learner.playable(state.learner)
        column = best_column(scores, allowed & (scores > 0) if self.play_null else allowed)
        return learner.answer(state.learner, x, predictions, allowed, column, one_hot(column, self.arms + 1))

    def commit(self, state: LinUCBState, ticket: Ticket) -> LinUCBState:
        """Count the round and update θ with the predicted cost."""
        learner = self.learner.commit(state.learner, ticket)
        return LinUCBState(learner, self._log_weights(state, ticket.costs * self.problem.scale - self._budget_rate))

    def settle(
        self, state: LinUCBState, tickets: Ticket, rewards: ArrayLike, costs: ArrayLike, learn: Learn = True
    ) -> LinUCBState:
        """Learn the outcomes and replace the predicted cost by the real one in θ."""
        learner = self.learner.settle(state.learner, tickets, rewards, costs, learn)
        real = (tickets.arm != NULL_ARM)[:, None]
        surprise = real * np.asarray(costs, dtype=np.float64) / self.problem.unit - tickets.costs
        return LinUCBState(learner, self._log_weights(state, surprise * self.problem.scale))

    def cancel(self, state: LinUCBState, tickets: Ticket) -> LinUCBState:
        """Release the holds and update θ as if the policy had played null."""
        learner = self.learner.cancel(state.learner, tickets)
        return LinUCBState(learner, self._log_weights(state, -tickets.costs * self.problem.scale))

    def _log_weights(self, state: LinUCBState, gradient: Array) -> Array:
        """Return the log weights after one dual step per row."""
        total = gradient.reshape(-1, *state.log_weights.shape).sum(axis=0)
        return frozen(state.log_weights + self._step * total)
