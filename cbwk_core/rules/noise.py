"""How noisy outcomes are: the covariance Σ̂ of (reward, costs) around their predictions, seen in the direction u.

uᵀΣ̂u is the residual variance of the worth of an outcome at the prices (`lagrangian.direction`). Exploration is
measured in it: γ divides by it (`gamma.py`), widths multiply by its root (`inverse_gap.py`).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dger

from cbwk_core.arrays import Array, Integers, freeze
from cbwk_core.presets import NOISE_MIN, RESIDUAL_PRIOR, RESIDUAL_PRIOR_COUNT
from cbwk_core.rules.dual import accumulated


def first_residuals(lanes: int, targets: int) -> Array:
    """The prior's sum of outer products, before the first outcome: (lanes, q, q).

    >>> first_residuals(1, 2).round(3)
    array([[[0.167, 0.   ],
            [0.   , 0.167]]])
    """
    return np.tile(np.eye(targets) * (RESIDUAL_PRIOR * RESIDUAL_PRIOR_COUNT), (lanes, 1, 1))


def summed_residuals(residuals: Array, surprises: Array) -> Array:
    """Sums of outer products (lanes, q, q) after n more outcomes of each lane, read-only.

    surprises (n, lanes, q): outcome minus prediction. With one lane, any grouping of the rows gives the same bits.

    >>> summed_residuals(np.zeros((1, 2, 2)), np.array([[[1.0, 2.0]], [[0.0, 1.0]]]))
    array([[[1., 2.],
            [2., 5.]]])
    """
    if len(residuals) > 1:
        residuals = accumulated(residuals, surprises[..., None] * surprises[..., None, :])[-1]
        freeze(residuals)
        return residuals
    for surprise in surprises[:, 0]:
        residuals = summed_residuals_of_one(residuals, surprise)
    return residuals


def summed_residuals_of_one(residuals: Array, surprise: Array) -> Array:
    """`summed_residuals` of one outcome of one lane: residuals (1, q, q), surprise (q,)."""
    result = residuals.copy()
    dger(1.0, surprise, surprise, 1, 1, result[0].T, 1, 1, 1)
    freeze(result)
    return result


def in_ranges(surprises: Array, outcomes: Array, ranges: Array) -> Array:
    """Surprises (..., q) in units of the range of each arm's outcomes; what an arm has cost belongs to its range.

    >>> in_ranges(np.array([0.5, 0.1, 0.4]), np.array([1.0, 0.1, 0.5]), ranges=np.array([1.0, 0.2, 0.1]))
    array([0.5, 0.5, 0.8])
    """
    return np.asarray(surprises / np.maximum(np.where(ranges > 0.0, ranges, 1.0), outcomes))


def noise(residuals: Array, learnt: Array, u: Array) -> Array:
    """uᵀΣ̂u from sums of outer products (lanes, q, q) over `learnt` outcomes (lanes,), for u (lanes, k, q): (lanes, k).

    >>> noise(first_residuals(1, 2), np.array([0.0]), np.array([[[1.0, -1.0]]])) * 12  # twice the prior's 1/12
    array([[2.]])
    """
    spread = np.vecdot(np.matvec(residuals[:, None], u), u)
    return np.asarray(np.maximum(spread / (learnt + RESIDUAL_PRIOR_COUNT)[:, None], NOISE_MIN))


def noise_of_one(residuals: Array, learnt: float, u: Array) -> float:
    """`noise` of one lane and one direction: residuals (q, q), u (q,)."""
    return max(float(residuals.dot(u).dot(u)) / (learnt + RESIDUAL_PRIOR_COUNT), NOISE_MIN)


def noises_of_one(residuals: Array, learnt: float, u: Array) -> list[float]:
    """`noise` of one lane and several directions: residuals (q, q), u (k, q)."""
    spread = np.vecdot(u.dot(residuals), u).tolist()
    return [max(each / (learnt + RESIDUAL_PRIOR_COUNT), NOISE_MIN) for each in spread]


def mean_squares(residuals: Array, learnt: Array | Integers) -> Array:
    """The mean squared residual of each target, prior included: (lanes, q).

    >>> (mean_squares(first_residuals(1, 3), np.array([0.0])) * 12).round(12)
    array([[1., 1., 1.]])
    """
    return np.asarray(np.diagonal(residuals, axis1=1, axis2=2) / (learnt + RESIDUAL_PRIOR_COUNT)[:, None])
