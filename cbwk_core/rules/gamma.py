"""The learning rate γ of inverse gap weighting: of the theorem, of the authors' notebook, and of `practical`."""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.presets import GAMMA_FACTOR


def linear_oracle_regrets(parameters: int, resources: int, horizon: int) -> tuple[float, float]:
    """Reg_sq^r = m ln T and Reg_sq^c = d·m ln T, constants 1 (paper, "Generalized Linear CBwK").

    >>> [round(regret, 1) for regret in linear_oracle_regrets(10, 4, 2000)]
    [76.0, 304.0]
    """
    reward = parameters * log(max(horizon, 2))
    return reward, resources * reward


def gamma_of_theorem(
    candidates: int, horizon: int, reward_regret: float, cost_regret: float, cost_factor: float
) -> float:
    """γ = √(K·T / (Reg_sq^r + factor²·Reg_sq^c + 4 ln 2T)).

    thm-regret-upper-bound has factor T/B + 1; thm-general-Z-upper-bound has factor Z.

    >>> round(gamma_of_theorem(4, 2000, *linear_oracle_regrets(10, 4, 2000), cost_factor=5.0), 2)
    1.02
    """
    loss = reward_regret + cost_factor**2 * cost_regret + 4.0 * log(2.0 * horizon)
    return sqrt(candidates * horizon / loss)


def gamma_of_notebook_newton(arms: int, horizon: int, dimension: int) -> float:
    """γ = 2√(K·T / (m ln T)), the authors' published code with the Newton oracle.

    >>> round(gamma_of_notebook_newton(3, 2000, 10), 2)
    17.77
    """
    return 2.0 * sqrt(arms * horizon / (dimension * log(max(horizon, 2))))


def gamma_of_notebook_gradient(arms: int, horizon: int) -> float:
    """γ = 2√K·T^¼, the authors' published code with online gradient descent.

    >>> round(gamma_of_notebook_gradient(4, 16), 2)
    8.0
    """
    return 2.0 * sqrt(arms) * sqrt(sqrt(horizon))


def practical_gamma(
    candidates: int, parameters: int, rounds: Array, noise: Array, learnt: Array, forgotten: Array | float
) -> Array:
    """GAMMA_FACTOR·√(candidates·t / (noise·parameters)) after t - 1 rounds: (lanes, 1).

    rounds, noise (`noise.py`), learnt and forgotten outcomes are (lanes,). A round counts by the share of the learnt
    outcomes that the oracle has not forgotten, because the error of the model depends on those.

    >>> one = np.ones(1)
    >>> practical_gamma(4, 25, rounds=99 * one, noise=0.25 * one, learnt=99 * one, forgotten=0.0).round(6)
    array([[32.]])
    """
    counted = (rounds + 1.0) * ((learnt + 1.0 - np.minimum(forgotten, learnt)) / (learnt + 1.0))
    return np.asarray(GAMMA_FACTOR * np.sqrt(candidates * counted / (noise * parameters)))[:, None]


def practical_gamma_of_one(
    candidates: int, parameters: int, rounds: float, noise: float, learnt: float, forgotten: float
) -> float:
    """`practical_gamma` of one lane."""
    counted = rounds + 1.0
    if forgotten:
        counted *= (learnt + 1.0 - min(forgotten, learnt)) / (learnt + 1.0)
    return GAMMA_FACTOR * sqrt(candidates * counted / (noise * parameters))
