"""Bootstrap intervals (Efron 1987): the estimate is repeated on rounds that are drawn with replacement."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from cbwk_core.arrays import Array, Integers

# A longer log is drawn in blocks of neighbouring rounds of equal length (Carlstein 1986). The relative error of an
# estimated variance is 1/√(2·blocks), below 1 %, and blocks preserve the dependence between neighbours.
BLOCKS_MAX = 10_000
# The lower bound of the denominator of the accelerated percentiles.
STRETCH_MIN = 1e-3
# The number of draws in memory, 8 bytes each.
DRAWS_AT_ONCE = 4_000_000


def blocks(rows: Array, count_max: int = BLOCKS_MAX) -> Array:
    """Return the number of rounds and the sums of the columns of each block of neighbours: (blocks, 1 + columns).

    >>> blocks(np.array([[1.0], [2.0], [4.0]]), count_max=2)
    array([[1., 1.],
           [2., 6.]])
    """
    n = rows.shape[0]
    counted = np.concatenate([np.ones((n, 1)), rows], axis=1)
    if n <= count_max:
        return counted
    return np.asarray(np.add.reduceat(counted, block_starts(n, count_max), axis=0))


def block_starts(rounds: int, count: int) -> Integers:
    """Return the starts of `count` blocks whose lengths differ by at most 1.

    >>> block_starts(10, 3)
    array([0, 3, 6])
    """
    return np.asarray(np.arange(count) * rounds // count)


def resampled(sums: Array, replicates: int, rng: np.random.Generator) -> Array:
    """Return the sums over equally many blocks that are drawn with replacement: (replicates, columns)."""
    size = sums.shape[0]
    result = np.empty((replicates, sums.shape[1]))
    step = max(1, DRAWS_AT_ONCE // size)
    for start in range(0, replicates, step):
        part = min(step, replicates - start)
        result[start : start + part] = draw_counts(size, part, rng) @ sums
    return result


def draw_counts(size: int, replicates: int, rng: np.random.Generator) -> Array:
    """Return how often each block occurs in `size` draws with replacement from `size` blocks: (replicates, size).

    >>> draw_counts(5, 2, np.random.default_rng(1)).sum(axis=1)
    array([5., 5.])
    """
    drawn = rng.integers(size, size=(replicates, size))
    drawn += np.arange(replicates)[:, None] * size
    return np.bincount(drawn.ravel(), minlength=replicates * size).reshape(replicates, size).astype(np.float64)


def bca_interval(estimate: float, replicates: Array, influence: Array, level: float) -> tuple[float, float]:
    """Return the bias-corrected and accelerated percentiles of the replicates (Efron 1987, eq. 2.3): (lower, upper).

    With z0 = Φ⁻¹(share of replicates below the estimate) and a = Σl³ / (6·(Σl²)^{3/2}), the end for a normal quantile z
    is the percentile Φ(z0 + (z0 + z) / (1 - a·(z0 + z))). Weighted outcomes are skewed, which biases uncorrected
    percentiles.

    influence: l of each block on the estimate (blocks,), up to a factor.

    >>> low, high = bca_interval(50.0, np.arange(101.0), np.array([-1.0, 1.0]), level=0.9)
    >>> round(low, 6), round(high, 6)  # without bias and skew: the 5 % and 95 % percentiles
    (5.0, 95.0)
    """
    energy = float(influence @ influence)
    if energy <= 0.0:
        return estimate, estimate
    count = replicates.size
    acceleration = float((influence**3).sum()) / (6.0 * energy**1.5)
    below = (replicates < estimate).sum() + 0.5 * (replicates == estimate).sum()
    bias = ndtri(np.clip(below / count, 0.5 / count, 1.0 - 0.5 / count))
    tail = (1.0 - level) / 2.0
    shifted = bias + ndtri(np.array([tail, 1.0 - tail]))
    # For extreme quantiles of a very skewed estimate the denominator would change its sign.
    stretch = np.maximum(1.0 - acceleration * shifted, STRETCH_MIN)
    ends = np.quantile(replicates, ndtr(bias + shifted / stretch))
    return float(ends[0]), float(ends[1])
