"""Off-policy estimators, one formula each. Each function returns one row per round; the mean of the rows estimates.

Outcomes y are (n, 1 + d): the reward, then the costs. Weights w (n,) are 0 for the null arm, whose reward and costs are
known to be 0. q is a prediction of y.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array


def ips_rows(weights: Array, outcomes: Array) -> Array:
    """Return w·y, the inverse propensity score (Horvitz & Thompson 1952; Li et al. 2011): (n, 1 + d).

    >>> ips_rows(np.array([2.0, 0.0]), np.array([[1.0, 0.5], [1.0, 0.5]]))
    array([[2., 1.],
           [0., 0.]])
    """
    return weights[:, None] * outcomes


def snips_ratio(weights: Array, outcomes: Array) -> Array:
    """Return θ = Σw·y / Σw, the mean outcome of a round in which the target plays a real arm: (1 + d,). 0 if Σw = 0.

    >>> snips_ratio(np.array([2.0, 1.0]), np.array([[1.0, 0.5], [0.0, 0.5]])).round(3)
    array([0.667, 0.5  ])
    """
    total = float(weights.sum())
    return np.asarray(weights @ outcomes / total) if total > 0.0 else np.zeros(outcomes.shape[1])


def snips_rows(weights: Array, outcomes: Array, mass: Array, ratio: Array) -> Array:
    """Return w·(y - θ) + θ·mass, the self-normalised rows for θ = Σwy/Σw (Swaminathan & Joachims 2015): (n, 1 + d).

    mass (n,) is the target's probability of real arms. The standard estimate Σwy/Σw assumes mass 1. With a null arm
    the expected weight is the mean mass, which is known exactly, so the estimate is θ times the mean mass. For every
    fixed θ the mean is unbiased, because the expectation of w is `mass`.

    >>> w, y = np.array([2.0, 1.0]), np.array([[1.0], [0.0]])
    >>> snips_rows(w, y, np.ones(2), snips_ratio(w, y)).mean(axis=0).round(3)
    array([0.667])
    """
    return weights[:, None] * (outcomes - ratio) + mass[:, None] * ratio


def dr_rows(weights: Array, outcomes: Array, predicted: Array, expected: Array) -> Array:
    """Return Σ_a π(a)·q_a + w·(y - q), the doubly robust rows (Dudík, Langford & Li 2011): (n, 1 + d).

    predicted: q of the logged arm, (n, 1 + d). expected: Σ_a π(a)·q_a over the real arms, (n, 1 + d).

    >>> dr_rows(np.array([2.0]), np.array([[1.0]]), predicted=np.array([[0.75]]), expected=np.array([[0.5]]))
    array([[1.]])
    """
    return expected + weights[:, None] * (outcomes - predicted)


class PerEstimator(NamedTuple):
    """One array for each of the three estimators."""

    ips: Array
    snips: Array
    dr: Array
