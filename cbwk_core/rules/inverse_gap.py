"""Inverse gap weighting (Abe & Long 1999; Algorithm 1, lines 6-8), its two forms in `practical`, and the draw."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import exp, log1p, sqrt

import numpy as np

from cbwk_core.arrays import Array, Integers, Mask
from cbwk_core.presets import DAMPING, PLAUSIBLE_FLOOR, PLAUSIBLE_PRIOR, PLAUSIBLE_VARIANCE, PRIOR_WIDTH, WIDTHS

# Added where it divides: without variance every gap but 0 is implausible.
_VARIANCE_MIN = 1e-300
_PRIOR_SQUARE = PLAUSIBLE_PRIOR * PLAUSIBLE_PRIOR


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


def played_share(plays: Array, rounds: Array) -> Array:
    """The share of the rounds so far in which a real arm was played, above 0 and at most 1: (lanes,).

    >>> played_share(np.array([0.0, 0.0, 5.0]), rounds=np.array([0.0, 10.0, 10.0]))
    array([1. , 0.1, 0.5])
    """
    return np.asarray(np.minimum(np.maximum(plays, 1.0) / np.maximum(rounds, 1.0), 1.0))


def played_share_of_one(plays: float, rounds: float) -> float:
    """`played_share` of one lane."""
    return min(max(plays, 1.0) / max(rounds, 1.0), 1.0)


def plausible_weights(
    scores: Array,
    leverage: Array,
    gamma: Array,
    noise: Array,
    allowed: Mask | None = None,
    *,
    left: Array,
    share: Array,
    parameters: int,
) -> tuple[Array, Integers]:
    """Probabilities (n, c) and the best candidate (n,), each arm by how plausible it is that it is the best.

    An arm with gap g has the larger of s·exp(-g² / 2(v + v_best)) / n and 1 / (PLAUSIBLE_FLOOR·n/s + γ·g); the best
    gets the rest, and null is played only where it is the best. n counts the allowed candidates with null. With
    leverage L, v = PLAUSIBLE_VARIANCE·noise·L·ln(1 + plays left·L / parameters) + (PLAUSIBLE_PRIOR·L)² is the variance
    of a predicted worth, 0 for null. s is 1, and where null is best the share of the rounds played: to try an arm there
    takes money from better rounds. For any true worths ℓ with errors e = ℓ̂ - ℓ, whatever is best:
    Σp·(max ℓ - ℓ) <= Σp·g + (PLAUSIBLE_FLOOR·n/s + 1)/γ + γ/2·Σp·e², the lemma of inverse gap weighting.

    scores (n, c) with null last, leverage (n, c - 1); gamma (1 or n, 1); noise, `left`, the rounds left, and `share`
    (`played_share`) are (1,) or (n,).

    >>> one = np.ones(1)
    >>> options = {"left": 1000 * one, "share": one, "parameters": 2}
    >>> scores, leverage = np.array([[0.5, 0.4, 0.0]]), np.array([[0.01, 0.01]])
    >>> plausible_weights(scores, leverage, one[:, None], one, **options)[0].round(3)
    array([[0.774, 0.226, 0.   ]])
    """
    rows, columns = scores.shape
    count: Array | int = columns
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
        count = allowed.sum(axis=1, dtype=np.float64)[:, None]
    index, best = np.arange(rows), scores.argmax(axis=1)
    gap = scores[index, best][:, None] - scores
    variance, known = np.zeros((rows, columns)), np.maximum(leverage, 0.0)
    tried = np.log1p(known * (left * share / parameters)[:, None])
    variance[:, :-1] = PLAUSIBLE_VARIANCE * noise[:, None] * known * tried + (PLAUSIBLE_PRIOR * known) ** 2
    joint = variance + (variance[index, best][:, None] + _VARIANCE_MIN)
    tries = np.where(best == columns - 1, share, 1.0)[:, None]
    plausible = np.exp(gap * gap / (-2.0 * joint)) * (tries / count)
    weights = np.maximum(plausible, 1.0 / (PLAUSIBLE_FLOOR * count / tries + gamma * gap))
    weights[:, -1] = 0.0
    weights[index, best] = 0.0
    weights[index, best] = 1.0 - weights.sum(axis=1)
    return weights, best


def plausible_weights_of_one(
    scores: list[float], leverage: list[float], gamma: float, noise: float, left: float, share: float, parameters: int
) -> list[float]:
    """`plausible_weights` of one request whose candidates are all allowed; scores and leverage are of the real arms."""
    if min(leverage) < 0.0:  # by rounding, where features are very large
        leverage = [max(each, 0.0) for each in leverage]
    top, count, plays, spread = max(scores), len(scores) + 1, left * share / parameters, PLAUSIBLE_VARIANCE * noise
    variance = [each * (spread * log1p(plays * each) + _PRIOR_SQUARE * each) for each in leverage]
    best, tries = scores.index(top), 1.0
    joint = variance[best] + _VARIANCE_MIN
    if top < 0.0:
        top, best, joint, tries = 0.0, len(scores), _VARIANCE_MIN, share
    equal, floor, weights = tries / count, PLAUSIBLE_FLOOR * count / tries, []
    for score, each in zip(scores, variance):  # noqa: B905
        gap = top - score
        likely, least = equal * exp(gap * gap / (-2.0 * (each + joint))), 1.0 / (floor + gamma * gap)
        weights.append(likely if likely > least else least)
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
