"""Empirical Bernstein bounds: intervals that hold at any number of rounds, for outcomes of a known range."""

from __future__ import annotations

import numpy as np

from cbwk_core.arrays import Array, Integers


def bernstein_radius(rows: Array, spans: Array, error: float) -> Array:
    """√(2·V·ln(4/δ)/n) + 7·span·ln(4/δ)/(3(n - 1)) for each column (Maurer & Pontil 2009, Theorem 4, on both sides).

    rows (n, k) independent, spans (k,) the length of the interval each column lies in, V the sample variance: with
    probability 1 - δ a column's mean is within its radius of its expectation. A single round says nothing.

    >>> bernstein_radius(np.tile([[0.0], [1.0]], (500, 1)), np.array([1.0]), error=0.05).round(3)
    array([0.057])
    """
    n = rows.shape[0]
    if n < 2:
        return np.full(spans.shape, np.inf)
    logarithm = np.log(4.0 / error)
    return np.asarray(
        np.sqrt(2.0 * rows.var(axis=0, ddof=1) * logarithm / n) + 7.0 * spans * logarithm / (3.0 * (n - 1))
    )


def ips_radius(rows: Array, ranges: Array, weight_max: float, error: float) -> Array:
    """For w·y with w in [0, weight_max] and y in its range (k, 2)."""
    return bernstein_radius(rows, weight_max * (ranges[:, 1] - ranges[:, 0]), error)


def snips_radius(
    weights: Array, outcomes: Array, mass: Array, ratio: Array, ranges: Array, weight_max: float, error: float
) -> Array:
    """For the mean of w·(y - θ) + θ·mass, whatever θ was fitted within the range of y.

    The mean is linear in θ. So where it is close to its expectation at both ends of the range, it is for every θ
    between, fitted to the same rounds or not: half of δ for each end, and the radius is interpolated.
    """
    low, high = ranges[:, 0], ranges[:, 1]
    length = np.maximum(high - low, np.finfo(np.float64).tiny)
    radius = []
    for end in (low, high):
        rows = weights[:, None] * (outcomes - end) + mass[:, None] * end
        radius.append(bernstein_radius(rows, weight_max * length + np.abs(end), error / 2.0))
    share = np.clip((ratio - low) / length, 0.0, 1.0)
    return np.asarray((1.0 - share) * radius[0] + share * radius[1])


def dr_radius(rows: Array, fold: Integers, ranges: Array, weight_max: float, error: float) -> Array:
    """For Σπq + w·(y - q) with y and q in the range.

    Rounds of one fold are independent given the others, which made its q; so there is a bound for each fold, at δ over
    the number of folds, and the radius is their mean over the rounds.
    """
    spans = (1.0 + 2.0 * weight_max) * (ranges[:, 1] - ranges[:, 0])
    names, counts = np.unique(fold, return_counts=True)
    radii = [bernstein_radius(rows[fold == name], spans, error / names.size) for name in names]
    return np.asarray(counts @ np.stack(radii) / rows.shape[0])
