"""Thompson sampling with Lagrangian prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbwk_core.arrays import Array, Integers, Mask
from cbwk_core.baselines.linear import best_column, one_hot
from cbwk_core.baselines.priced import PricedState, ValueDual, ValuePriced, View
from cbwk_core.baselines.thompson import standard_normals


@dataclass(frozen=True, kw_only=True)
class PricedThompson(ValuePriced):
    """Plays the best arm of a draw of the predicted Lagrangians, null where none is positive.

    Reward and costs share A, so the posterior of θu, u = (1, -λ), is N(θ̂u, uᵀΣ̂u·A⁻¹): one draw of it gives the scores
    of all arms. The prices are those of `practical`. scale: factor of the standard deviation. As in `Thompson` the one
    uniform of the decision determines the draw, and the reported probability of 1 holds given the draw only.

    >>> from cbwk_core.problem import Problem
    >>> policy = PricedThompson(problem=Problem.of(arms=2, dimension=2, resources=1, horizon=10, budget=5))
    >>> arms = [int(policy.decide(policy.init(), np.eye(2)[None], [u]).arm[0]) for u in np.linspace(0, 0.99, 100)]
    >>> sorted(set(arms))  # before any outcome every arm is possible, and so is null
    [-1, 0, 1]
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.scale > 0:
            raise ValueError(f"scale must be positive, got {self.scale}")

    def weigh(
        self, state: PricedState[ValueDual], view: View, allowed: Mask, uniforms: Array
    ) -> tuple[Array, Integers]:
        """Return probability 1 for the best score of the draw."""
        drawn = view.scores.copy()
        if self.model == "per_arm":
            drawn[:, :-1] += self.scale * view.deviations * standard_normals(uniforms, self.arms)
        else:
            factor = np.linalg.cholesky(state.oracle.inverse[:, 0])
            normals = standard_normals(uniforms, factor.shape[1])
            error = np.matvec(view.x, np.matvec(factor, normals))
            drawn[:, :-1] += self.scale * np.sqrt(view.noise) * error
        best = best_column(drawn, allowed)
        return one_hot(best, self.arms + 1), best
