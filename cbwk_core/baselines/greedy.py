"""ε-greedy on the predicted reward. It ignores costs until it cannot pay an arm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import finite
from cbwk_core.baselines.linear import LearnerState, LinearLearner, best_column
from cbwk_core.rules.inverse_gap import sample
from cbwk_core.ticket import Choice


@dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(LinearLearner):
    """Plays the arm with the highest predicted reward, and with probability ε a uniformly drawn arm instead.

    Both choose among the arms that the account can pay.

    >>> from cbwk_core.problem import Problem
    >>> policy = EpsilonGreedy(problem=Problem.of(arms=2, dimension=2, resources=1, horizon=10, budget=5), epsilon=0.2)
    >>> policy.decide(policy.init(), np.eye(2)[None], [0.95]).probabilities
    array([[0.9, 0.1, 0. ]])
    """

    epsilon: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon must lie in [0, 1], got {self.epsilon}")

    def decide(self, state: LearnerState, features: ArrayLike, uniforms: ArrayLike) -> Choice:
        """Return one arm per lane; null only in a lane that cannot pay any arm."""
        x = self.features(state, features)
        lanes = x.shape[0]
        u = finite("uniforms", uniforms, (lanes,))
        predictions = self.oracle.predict(state.oracle, x)
        allowed = self.playable(state)
        best = best_column(predictions[..., 0], allowed)
        count = allowed.sum(axis=1)
        probabilities = np.zeros((lanes, self.arms + 1))
        probabilities[:, :-1] = allowed * (self.epsilon / np.maximum(count, 1))[:, None]
        probabilities[np.arange(lanes), best] += np.where(count > 0, 1.0 - self.epsilon, 1.0)
        column = sample(probabilities, best, u)
        return self.answer(state, x, predictions, allowed, column, probabilities)
