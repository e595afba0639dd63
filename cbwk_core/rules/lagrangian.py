"""The predicted Lagrangian of Algorithm 1: ℓ̂_a = r̂_a + λᵀ(ρ - ĉ_a)."""

from __future__ import annotations

import numpy as np

from cbwk_core.arrays import Array


def scores(predictions: Array, prices: Array, rho: Array) -> Array:
    """ℓ̂ for every candidate and the null arm, which earns and costs nothing: (n, candidates + 1), null last.

    predictions (n, candidates, 1 + d): the reward, then the costs in max costs. prices and rho: (1, d) or (n, d).

    >>> scores(np.array([[[0.9, 0.5], [0.4, 0.1]]]), prices=np.array([[1.0]]), rho=np.array([[0.25]]))
    array([[0.65, 0.55, 0.25]])
    """
    rows, candidates, _ = predictions.shape
    direction = lagrangian_direction(prices)
    slack = np.vecdot(prices, rho)[:, None]
    result = np.empty((rows, candidates + 1))
    if prices.shape[0] == 1:
        np.matmul(predictions, direction[0], out=result[:, :-1])
    else:
        result[:, :-1] = np.matmul(predictions, direction[..., None])[..., 0]
    result[:, -1] = 0.0
    result += slack
    return result


def lagrangian_direction(prices: Array) -> Array:
    """u = (1, -λ), so that uᵀ(reward, costs) is what an outcome is worth at the prices: (lanes, 1 + d)."""
    direction = np.empty((prices.shape[0], prices.shape[1] + 1))
    direction[:, 0] = 1.0
    np.negative(prices, out=direction[:, 1:])
    return direction
