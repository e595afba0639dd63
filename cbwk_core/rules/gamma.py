"""Learning rates: γ of inverse gap weighting and η of the entropic dual."""

from __future__ import annotations

import math


def entropic_step(resources: int, horizon: int) -> float:
    """η = √(ln(d + 1) / T): the rate of normalised exponentiated gradient over d + 1 coordinates (lem-OCO)."""
    return math.sqrt(math.log(resources + 1.0) / horizon)


def linear_oracle_regrets(dimension: int, resources: int, horizon: int) -> tuple[float, float]:
    """Reg_sq^r = m ln T and Reg_sq^c = d·m ln T, constants 1 (paper, "Generalized Linear CBwK")."""
    reward = dimension * math.log(max(horizon, 2))
    return reward, resources * reward


def gamma_of_theorem(
    candidates: int, horizon: int, reward_regret: float, cost_regret: float, cost_factor: float
) -> float:
    """γ = √(K·T / (Reg_sq^r + factor²·Reg_sq^c + 4 ln 2T)).

    thm-regret-upper-bound has factor T/B + 1; thm-general-Z-upper-bound has factor Z.

    >>> round(gamma_of_theorem(4, 2000, *linear_oracle_regrets(10, 4, 2000), cost_factor=5.0), 2)
    1.02
    """
    loss = reward_regret + cost_factor**2 * cost_regret + 4.0 * math.log(2.0 * horizon)
    return math.sqrt(candidates * horizon / loss)


def gamma_of_notebook_newton(arms: int, horizon: int, dimension: int) -> float:
    """γ = 2√(K·T / (m ln T)), the authors' published code with the Newton oracle."""
    return 2.0 * math.sqrt(arms * horizon / (dimension * math.log(max(horizon, 2))))


def gamma_of_notebook_gradient(arms: int, horizon: int) -> float:
    """γ = 2√K·T^¼, the authors' published code with online gradient descent."""
    return 2.0 * math.sqrt(arms) * math.sqrt(math.sqrt(horizon))
