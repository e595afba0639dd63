"""UCB with prices: the arm with the best optimistic Lagrangian."""

from __future__ import annotations

from dataclasses import dataclass

from cbwk_core.arrays import Array, Integers, Mask
from cbwk_core.baselines.linear import best_column, one_hot
from cbwk_core.baselines.priced import PricedState, ValueDual, ValuePriced, View


@dataclass(frozen=True, kw_only=True)
class PricedUCB(ValuePriced):
    """Plays the best r̂ - λᵀĉ + width·√(uᵀΣ̂u·φᵀA⁻¹φ), null where none is positive. The prices are those of `practical`.

    Optimism is about the Lagrangian as a whole, not about the reward and each cost apart: their errors partly cancel.
    width: standard deviations of the predicted Lagrangian.

    >>> import numpy as np
    >>> from cbwk_core.problem import Problem
    >>> policy = PricedUCB(problem=Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=50))
    >>> policy.decide(policy.init(), np.eye(2)[None], [0.5]).arm
    array([0])
    """

    width: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.width >= 0:
            raise ValueError(f"width must not be negative, got {self.width}")

    def weigh(
        self, state: PricedState[ValueDual], view: View, allowed: Mask, uniforms: Array
    ) -> tuple[Array, Integers]:
        """Return probability 1 for the best optimistic score."""
        del state, uniforms
        optimistic = view.scores.copy()
        optimistic[:, :-1] += self.width * view.deviations
        best = best_column(optimistic, allowed)
        return one_hot(best, self.arms + 1), best
