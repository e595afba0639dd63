"""Off-policy estimators, one formula each: numbers of each round whose mean is the estimate.

Outcomes y are (n, 1 + d), the reward and then the costs; weights w (n,) are those of real arms, and the null arm, which
earns and costs nothing, needs no estimate. q is a prediction of y.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array


def ips_rows(weights: Array, outcomes: Array) -> Array:
    """w·y, the inverse propensity score (Horvitz & Thompson 1952; Li et al. 2011): (n, 1 + d).

    >>> ips_rows(np.array([2.0, 0.0]), np.array([[1.0, 0.5], [1.0, 0.5]]))
    array([[2., 1.],
           [0., 0.]])
    """
    return weights[:, None] * outcomes


def snips_ratio(weights: Array, outcomes: Array) -> Array:
    """θ = Σw·y / Σw, the mean outcome of a round in which the target plays a real arm: (1 + d,); 0 without weight.

    >>> snips_ratio(np.array([2.0, 1.0]), np.array([[1.0, 0.5], [0.0, 0.5]])).round(3)
    array([0.667, 0.5  ])
    """
    total = float(weights.sum())
    return np.asarray(weights @ outcomes / total) if total > 0.0 else np.zeros(outcomes.shape[1])


def snips_rows(weights: Array, outcomes: Array, mass: Array, ratio: Array) -> Array:
    """w·(y - θ) + θ·mass: their mean at θ = Σwy/Σw is the self-normalised estimate (Swaminathan & Joachims 2015).

    mass (n,) is the target's probability of real arms. The usual Σwy/Σw takes it for 1; with a null arm the weights of
    real arms average the mean mass, which the log's contexts tell exactly, so the estimate is θ times that. For every
    fixed θ the mean is unbiased: w has expectation `mass`.

    >>> w, y = np.array([2.0, 1.0]), np.array([[1.0], [0.0]])
    >>> snips_rows(w, y, np.ones(2), snips_ratio(w, y)).mean(axis=0).round(3)
    array([0.667])
    """
    return weights[:, None] * (outcomes - ratio) + mass[:, None] * ratio


def dr_rows(weights: Array, outcomes: Array, predicted: Array, expected: Array) -> Array:
    """Σ_a π(a)·q_a + w·(y - q), doubly robust (Dudík, Langford & Li 2011): (n, 1 + d).

    predicted: q of the arm played, (n, 1 + d). expected: Σ_a π(a)·q_a over the real arms, (n, 1 + d).

    >>> dr_rows(np.array([2.0]), np.array([[1.0]]), predicted=np.array([[0.75]]), expected=np.array([[0.5]]))
    array([[1.]])
    """
    return expected + weights[:, None] * (outcomes - predicted)


class Rows(NamedTuple):
    """The numbers of each round, (n, 1 + d), whose means are the three estimates."""

    ips: Array
    snips: Array
    dr: Array
