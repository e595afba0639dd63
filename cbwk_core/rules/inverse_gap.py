"""Inverse gap weighting (Abe & Long 1999; Algorithm 1, lines 6-8), its two forms in `practical`, and the draw."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import exp, inf, log1p, sqrt

import numpy as np

from cbwk_core.arrays import Array, Integers, Mask
from cbwk_core.presets import DAMPING, PLAUSIBLE_FLOOR, PLAUSIBLE_PRIOR, PLAUSIBLE_VARIANCE, PRIOR_WIDTH, WIDTHS

# Added where it divides: without variance every gap but 0 is implausible.
_VARIANCE_MIN = 1e-300
_PRIOR_SQUARE = PLAUSIBLE_PRIOR * PLAUSIBLE_PRIOR


def widths(leverage: Array, noise: Array) -> Array:
    """WIDTHS·√(noise·leverage) + PRIOR_WIDTH·leverage, and 0 for the null arm, which is known: (n, c + 1), null last.

    leverage φᵀA⁻¹φ (n, c), noise uᵀΣ̂u (1 or n, 1 or c).

    >>> widths(np.array([[0.25, 0.01]]), noise=np.array([[1.0]])).round(3)
    array([[0.3  , 0.052, 0.   ]])
    """
    rows, candidates = leverage.shape
    result = np.zeros((rows, candidates + 1))
    # Rounding can leave a leverage slightly below 0 where features are very large.
    known = np.maximum(leverage, 0.0)
    real = result[:, :-1]
    np.sqrt(known, out=real)
    real *= WIDTHS * np.sqrt(noise)
    known *= PRIOR_WIDTH
    real += known
    return result


def _gaps(scores: Array, limits: Array | None) -> tuple[Integers, Integers, Array]:
    """The rows' numbers, their best candidates (n,), and how far each candidate is behind the best (n, c)."""
    leading, index = scores, np.arange(len(scores))
    if limits is not None:
        leading = scores.copy()
        leading[:, :-1][np.broadcast_to(limits < 1.0, scores[:, :-1].shape)] = -np.inf
    best = leading.argmax(axis=1)
    gap = scores[index, best][:, None] - scores
    return index, best, gap if limits is None else np.maximum(gap, 0.0)


def _gaps_of_one(scores: list[float], limits: list[float] | None) -> tuple[int, list[float]]:
    """`_gaps` of one request: the best of the real arms, len(scores) for null, and the gap of each of them."""
    leading = scores
    if limits is not None:
        leading = [score if limit == 1.0 else -inf for score, limit in zip(scores, limits)]  # noqa: B905
    top = max(leading)
    best = leading.index(top)
    if top < 0.0:
        best, top = len(scores), 0.0
    if limits is None:
        return best, [top - score for score in scores]
    return best, [top - score if score < top else 0.0 for score in scores]


def inverse_gap_weights(
    scores: Array,
    gamma: Array,
    allowed: Mask | None = None,
    *,
    explore_null: bool = True,
    widths: Array | None = None,
    limits: Array | None = None,
    floor: float = 1.0,
) -> tuple[Array, Integers]:
    """Probabilities (n, c) and the best candidate (n,) for scores (n, c), the null arm last.

    p_a = 1 / (floor·n + γ·(best score - score of a)) for every allowed candidate but the best, which gets the rest; n
    counts the allowed candidates with the null arm. With `widths` (n, c), a candidate whose gap is larger than its own
    width plus that of the best keeps DAMPING of its probability. With `limits` (n, c - 1), a real arm has at most that
    probability, and one whose limit is below 1 is not the best, whatever its score. Without `explore_null` the null arm
    is played only where it is the best. Among equal scores the lowest index is the best, so a real arm is preferred to
    null.

    >>> inverse_gap_weights(np.array([[1.0, 0.5, 0.0]]), gamma=np.array([[2.0]]))[0].round(3)
    array([[0.55, 0.25, 0.2 ]])
    """
    count: Array | int = scores.shape[1]
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
        count = allowed.sum(axis=1, dtype=np.float64)[:, None]
    index, best, gap = _gaps(scores, limits)
    weights = gap * gamma
    weights += floor * count
    np.divide(1.0, weights, out=weights)
    if widths is not None:
        weights[gap > widths + widths[index, best][:, None]] *= DAMPING
    if limits is not None:
        weights[:, :-1] = np.minimum(weights[:, :-1], limits)
    if not explore_null:
        weights[:, -1] = 0.0
    weights[index, best] = 0.0
    weights[index, best] = 1.0 - weights.sum(axis=1)
    return weights, best


def damped_weights_of_one(
    scores: list[float], leverage: list[float], gamma: float, noise: float, limits: list[float] | None
) -> list[float]:
    """`inverse_gap_weights` of one request whose candidates are all allowed, with `widths` and without exploring null.

    scores and leverage are those of the real arms; the result has the null arm last.
    """
    best, gaps = _gaps_of_one(scores, limits)
    count, deviations = len(scores) + 1, WIDTHS * sqrt(noise)
    if min(leverage) < 0.0:  # by rounding, where features are very large
        leverage = [max(each, 0.0) for each in leverage]
    reach = 0.0
    if best < len(scores):
        reach = deviations * sqrt(leverage[best]) + PRIOR_WIDTH * leverage[best]
    weights = [
        (1.0 if gap <= deviations * root + PRIOR_WIDTH * each + reach else DAMPING) / (count + gamma * gap)
        for gap, each, root in zip(gaps, leverage, map(sqrt, leverage))  # noqa: B905
    ]
    if limits is not None:
        weights = list(map(min, weights, limits))
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


def worth_variances(leverage: Array, noise: Array, plays: Array) -> Array:
    """Variances of predicted worths (n, c), for the plays left per parameter (1 or n,): see `plausible_weights`."""
    known = np.maximum(leverage, 0.0)
    tried = np.log1p(known * plays[:, None])
    return np.asarray(PLAUSIBLE_VARIANCE * noise * known * tried + (PLAUSIBLE_PRIOR * known) ** 2)


def worth_variances_of_one(leverage: list[float], noise: list[float], plays: float) -> list[float]:
    """`worth_variances` of one request."""
    if min(leverage) < 0.0:  # by rounding, where features are very large
        leverage = [max(each, 0.0) for each in leverage]
    return [
        each * (PLAUSIBLE_VARIANCE * own * log1p(plays * each) + _PRIOR_SQUARE * each)
        for each, own in zip(leverage, noise)  # noqa: B905
    ]


def plausible_weights(
    scores: Array,
    leverage: Array,
    gamma: Array,
    noise: Array,
    allowed: Mask | None = None,
    *,
    limits: Array | None = None,
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

    With `limits`, the lemma holds for the arms that have none: see `inverse_gap_weights`.

    scores (n, c) with null last, leverage (n, c - 1); gamma (1 or n, 1); noise (1 or n, 1 or c - 1); `left`, the rounds
    left, and `share` (`played_share`) are (1,) or (n,).

    >>> one = np.ones((1, 1))
    >>> options = {"left": 1000 * one[0], "share": one[0], "parameters": 2}
    >>> scores, leverage = np.array([[0.5, 0.4, 0.0]]), np.array([[0.01, 0.01]])
    >>> plausible_weights(scores, leverage, one, one, **options)[0].round(3)
    array([[0.748, 0.252, 0.   ]])
    """
    rows, columns = scores.shape
    count: Array | int = columns
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
        count = allowed.sum(axis=1, dtype=np.float64)[:, None]
    index, best, gap = _gaps(scores, limits)
    variance = np.zeros((rows, columns))
    variance[:, :-1] = worth_variances(leverage, noise, left * share / parameters)
    joint = variance + (variance[index, best][:, None] + _VARIANCE_MIN)
    tries = np.where(best == columns - 1, share, 1.0)[:, None]
    plausible = np.exp(gap * gap / (-2.0 * joint)) * (tries / count)
    weights = np.maximum(plausible, 1.0 / (PLAUSIBLE_FLOOR * count / tries + gamma * gap))
    if limits is not None:
        weights[:, :-1] = np.minimum(weights[:, :-1], limits)
    weights[:, -1] = 0.0
    weights[index, best] = 0.0
    weights[index, best] = 1.0 - weights.sum(axis=1)
    return weights, best


def plausible_weights_of_one(
    scores: list[float],
    leverage: list[float],
    gamma: float,
    noise: list[float],
    left: float,
    share: float,
    parameters: int,
    limits: list[float] | None,
) -> list[float]:
    """`plausible_weights` of one request whose candidates are all allowed; lists are of the real arms."""
    best, gaps = _gaps_of_one(scores, limits)
    count, variance = len(scores) + 1, worth_variances_of_one(leverage, noise, left * share / parameters)
    joint, tries = (variance[best] + _VARIANCE_MIN, 1.0) if best < len(scores) else (_VARIANCE_MIN, share)
    equal, floor, weights = tries / count, PLAUSIBLE_FLOOR * count / tries, []
    for gap, each in zip(gaps, variance):  # noqa: B905
        likely, least = equal * exp(gap * gap / (-2.0 * (each + joint))), 1.0 / (floor + gamma * gap)
        weights.append(likely if likely > least else least)
    if limits is not None:
        weights = list(map(min, weights, limits))
    weights.append(0.0)
    weights[best] = 0.0
    weights[best] = 1.0 - sum(weights)
    return weights


def optimistic_weights(
    scores: Array,
    leverage: Array,
    gamma: Array,
    noise: Array,
    allowed: Mask | None = None,
    *,
    limits: Array | None = None,
    left: Array,
    parameters: int,
) -> tuple[Array, Integers]:
    """Probabilities (n, c) and the best candidate (n,) by upper bounds: scores, of real arms plus √(2v), null last.

    v is that of `plausible_weights` for share 1, where an arm that is √(2v) below null has a plausibility of 1/e. Every
    arm but the best has 1 / (PLAUSIBLE_FLOOR·n + γ·g) for the gap g of its bound. For a price that does not fall while
    a policy waits, because others pay it: arms that look worse than null would stay untried, and trying every plausible
    arm would take the money of others.

    >>> one = np.ones((1, 1))
    >>> scores, leverage = np.array([[-0.05, -0.4, 0.0]]), np.array([[0.01, 0.01]])
    >>> optimistic_weights(scores, leverage, one, one, left=1000 * one[0], parameters=2)[0].round(3)
    array([[0.998, 0.002, 0.   ]])
    """
    bounds = scores.copy()
    bounds[:, :-1] += np.sqrt(2.0 * worth_variances(leverage, noise, left / parameters))
    return inverse_gap_weights(bounds, gamma, allowed, explore_null=False, limits=limits, floor=PLAUSIBLE_FLOOR)


def optimistic_weights_of_one(
    scores: list[float],
    leverage: list[float],
    gamma: float,
    noise: list[float],
    left: float,
    parameters: int,
    limits: list[float] | None,
) -> list[float]:
    """`optimistic_weights` of one request whose candidates are all allowed; lists are of the real arms."""
    variance, floor = worth_variances_of_one(leverage, noise, left / parameters), PLAUSIBLE_FLOOR * (len(scores) + 1)
    best, gaps = _gaps_of_one([score + sqrt(2.0 * own) for score, own in zip(scores, variance)], limits)  # noqa: B905
    weights = [1.0 / (floor + gamma * gap) for gap in gaps]
    if limits is not None:
        weights = list(map(min, weights, limits))
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
