"""The predicted Lagrangian of Algorithm 1, ℓ̂_a = r̂_a + λᵀ(ρ - ĉ_a).

λᵀρ is the same for every arm and only differences of scores matter, so `scores` leaves it out: the null arm, which
earns and costs nothing, has score 0.
"""

from __future__ import annotations

import numpy as np

from cbwk_core.arrays import Array


def direction(prices: Array) -> Array:
    """u = (1, -λ), so that uᵀ(reward, costs) is the worth of an outcome at the prices: (lanes, 1 + d).

    >>> direction(np.array([[0.5, 2.0]]))
    array([[ 1. , -0.5, -2. ]])
    """
    u = np.empty((prices.shape[0], prices.shape[1] + 1))
    u[:, 0] = 1.0
    np.negative(prices, out=u[:, 1:])
    return u


def direction_of_one(prices: list[float]) -> Array:
    """`direction` of one lane: (1 + d,)."""
    return np.array([1.0, *[-price for price in prices]])


def scores(predictions: Array, u: Array) -> Array:
    """uᵀ(r̂, ĉ) of every candidate, and 0 for the null arm: (n, candidates + 1), null last.

    predictions (n, candidates, 1 + d): the reward, then the costs. u (1, 1 + d) or (n, 1 + d): see `direction`.

    >>> scores(np.array([[[0.9, 0.5], [0.4, 0.1]]]), direction(np.array([[1.0]])))
    array([[0.4, 0.3, 0. ]])
    """
    rows, candidates, targets = predictions.shape
    result = np.zeros((rows, candidates + 1))
    if len(u) == 1:
        result[:, :-1] = predictions.reshape(-1, targets).dot(u[0]).reshape(rows, candidates)
    else:
        np.matmul(predictions, u[..., None], out=result[:, :-1, None])
    return result


def scores_of_one(predictions: Array, u: Array) -> list[float]:
    """uᵀ(r̂, ĉ) of every candidate of one request, without the null arm: predictions (candidates, 1 + d)."""
    worth: list[float] = predictions.dot(u).tolist()
    return worth
