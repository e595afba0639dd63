"""Inverse gap weighting (Abe & Long 1999; Algorithm 1, lines 6-8) and sampling from it by one uniform."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cbwk_core.arrays import Array, Integers


def inverse_gap_weights(
    scores: Array,
    gamma: Array,
    allowed: NDArray[np.bool_] | None = None,
    *,
    explore_null: bool = True,
    damping: Array | None = None,
) -> tuple[Array, Integers]:
    """Probabilities (n, c) and the best candidate (n,) for scores (n, c), the null arm last.

    p_a = 1 / (n + γ·(best score - score of a)) for the allowed candidates but the best, which takes the rest; n counts
    the allowed candidates with the null arm. `damping` in (0, 1] multiplies every p_a but the best's. Without
    `explore_null` the null arm, being known, is played only where it is best. Ties go to the lower index, so to a real
    arm rather than null.

    >>> inverse_gap_weights(np.array([[1.0, 0.5, 0.0]]), gamma=np.array([[2.0]]))[0].round(3)
    array([[0.55, 0.25, 0.2 ]])
    """
    rows, columns = scores.shape
    count: Array | int = columns
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
        count = allowed.sum(axis=1, dtype=np.float64)[:, None]
    best = scores.argmax(axis=1)
    index = np.arange(rows)
    weights = scores[index, best][:, None] - scores
    weights *= gamma
    weights += count
    np.divide(1.0, weights, out=weights)
    if not explore_null:
        weights[:, -1] = 0.0
    if damping is not None:
        weights *= damping
    weights[index, best] = 0.0
    weights[index, best] = 1.0 - weights.sum(axis=1)
    return weights, best


def sample(probabilities: Array, best: Integers, uniforms: Array) -> Integers:
    """The first candidate whose cumulated probability exceeds the uniform; what rounding leaves over is the best's.

    >>> sample(np.array([[0.2, 0.0, 0.8]] * 3), np.array([2, 2, 2]), np.array([0.1999, 0.2, 0.9999]))
    array([0, 2, 2])
    """
    cumulated = probabilities.cumsum(axis=1)
    arm = (cumulated <= uniforms[:, None]).sum(axis=1)
    return np.where(arm < probabilities.shape[1], arm, best)
