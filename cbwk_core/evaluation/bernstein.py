"""Empirical Bernstein bounds: intervals that are valid for any number of rounds, for outcomes of a known range."""

from __future__ import annotations

import numpy as np

from cbwk_core.arrays import Array, Integers


def bernstein_radius(rows: Array, spans: Array, error: float) -> Array:
    """Return √(2·V·ln(4/δ)/n) + 7·span·ln(4/δ)/(3(n - 1)) of each column (Maurer & Pontil 2009, Theorem 4, two-sided).

    rows (n, k) are independent, spans (k,) are the lengths of the columns' ranges, V is the sample variance, δ is
    `error`. With probability 1 - δ the mean of a column is within its radius of the expectation. Infinite for n = 1.

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
    """Return the radius for rows w·y with w in [0, weight_max] and y in ranges (k, 2)."""
    return bernstein_radius(rows, weight_max * (ranges[:, 1] - ranges[:, 0]), error)


def snips_radius(
    weights: Array, outcomes: Array, mass: Array, ratio: Array, ranges: Array, weight_max: float, error: float
) -> Array:
    """Return the radius for the mean of w·(y - θ) + θ·mass, for any fitted θ (`ratio`) in the range of y.

    The mean is linear in θ. If it is close to its expectation at both ends of the range, it is close for every θ
    between them, even if θ was fitted to the same rounds. Each end gets half of δ; the radius is interpolated.
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
    """Return the radius for rows Σπq + w·(y - q) with y and q in the ranges.

    Given the other folds, which determine q, the rounds of one fold are independent. Each fold has its own bound with
    an equal part of δ; the radius is the mean of these bounds over the rounds.
    """
    spans = (1.0 + 2.0 * weight_max) * (ranges[:, 1] - ranges[:, 0])
    names, counts = np.unique(fold, return_counts=True)
    radii = [bernstein_radius(rows[fold == name], spans, error / names.size) for name in names]
    return np.asarray(counts @ np.stack(radii) / rows.shape[0])
