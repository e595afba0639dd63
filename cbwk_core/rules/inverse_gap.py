"""Inverse gap weighting (Abe & Long 1999; Algorithm 1, lines 6-8), its widths in `practical`, and the draw."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import sqrt

import numpy as np

from cbwk_core.arrays import Array, Integers, Mask
from cbwk_core.presets import DAMPING, PRIOR_WIDTH, WIDTHS


def widths(leverage: Array, noise: Array) -> Array:
    """WIDTHS·√(noise·leverage) + PRIOR_WIDTH·leverage, and 0 for the null arm, which is known: (n, c + 1), null last.

    leverage φᵀA⁻¹φ (n, c), noise uᵀΣ̂u (1,) or (n,).

    >>> widths(np.array([[0.25, 0.01]]), noise=np.array([1.0])).round(3)
    array([[0.3  , 0.052, 0.   ]])
    """
    rows, candidates = leverage.shape
    result = np.zeros((rows, candidates + 1))
    # Rounding can leave a leverage slightly below 0 where features are very large.
    known = np.maximum(leverage, 0.0)
    real = result[:, :-1]
    np.sqrt(known, out=real)
    real *= (WIDTHS * np.sqrt(noise))[:, None]
    known *= PRIOR_WIDTH
    real += known
    return result


def inverse_gap_weights(
    scores: Array,
    gamma: Array,
    allowed: Mask | None = None,
    *,
    explore_null: bool = True,
    widths: Array | None = None,
) -> tuple[Array, Integers]:
    """Probabilities (n, c) and the best candidate (n,) for scores (n, c), the null arm last.

    p_a = 1 / (n + γ·(best score - score of a)) for every allowed candidate but the best, which gets the rest; n counts
    the allowed candidates with the null arm. With `widths` (n, c), a candidate whose gap is larger than its own width
    plus that of the best keeps DAMPING of its probability. Without `explore_null` the null arm is played only where it
    is the best. Among equal scores the lowest index is the best, so a real arm is preferred to null.

    >>> inverse_gap_weights(np.array([[1.0, 0.5, 0.0]]), gamma=np.array([[2.0]]))[0].round(3)
    array([[0.55, 0.25, 0.2 ]])
    """
    rows, columns = scores.shape
    count: Array | int = columns
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
        count = allowed.sum(axis=1, dtype=np.float64)[:, None]
    index, best = np.arange(rows), scores.argmax(axis=1)
    gap = scores[index, best][:, None] - scores
    weights = gap * gamma
    weights += count
    np.divide(1.0, weights, out=weights)
    if widths is not None:
        weights[gap > widths + widths[index, best][:, None]] *= DAMPING
    if not explore_null:
        weights[:, -1] = 0.0
    weights[index, best] = 0.0
    weights[index, best] = 1.0 - weights.sum(axis=1)
    return weights, best


def damped_weights_of_one(scores: list[float], leverage: list[float], gamma: float, noise: float) -> list[float]:
    """`inverse_gap_weights` of one request whose candidates are all allowed, with `widths` and without exploring null.

    scores and leverage are those of the real arms; the result has the null arm last.
    """
    top = max(scores)
    best, count, deviations = scores.index(top), len(scores) + 1, WIDTHS * sqrt(noise)
    if min(leverage) < 0.0:  # by rounding, where features are very large
        leverage = [max(each, 0.0) for each in leverage]
    reach = deviations * sqrt(leverage[best]) + PRIOR_WIDTH * leverage[best]
    if top < 0.0:
        top, best, reach = 0.0, len(scores), 0.0
    weights = [
        (1.0 if (gap := top - score) <= deviations * root + PRIOR_WIDTH * each + reach else DAMPING)
        / (count + gamma * gap)
        for score, each, root in zip(scores, leverage, map(sqrt, leverage))  # noqa: B905
    ]
    weights.append(0.0)
    weights[best] = 0.0
    weights[best] = 1.0 - sum(weights)
    return weights


def sample(probabilities: Array, best: Integers, uniforms: Array) -> Integers:
    """The first candidate whose cumulated probability exceeds the uniform, (n,).

    Where rounding leaves the total at or below the uniform, the best candidate (n,) is drawn.

    >>> sample(np.array([[0.2, 0.0, 0.8]] * 3), np.array([2, 2, 2]), np.array([0.1999, 0.2, 0.9999]))
    array([0, 2, 2])
    """
    cumulated = probabilities.cumsum(axis=1)
    arm = (cumulated <= uniforms[:, None]).sum(axis=1)
    return np.where(arm < probabilities.shape[1], arm, best)


def sample_of_one(probabilities: list[float], uniform: float) -> int:
    """`sample` of one request; the best candidate has the largest probability."""
    arm = bisect_right(list(accumulate(probabilities)), uniform)
    return arm if arm < len(probabilities) else probabilities.index(max(probabilities))
