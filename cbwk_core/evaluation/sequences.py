"""Confidence sequences: intervals that hold at all rounds at once, for rounds that depend on earlier rounds.

The log of a policy that learns is no independent sample. The rows of an estimator are still a martingale around the
conditional means v_t of the target: E[row_t | earlier rounds] = v_t. Both sequences here are about S_n = Σ(row_t - v_t)
and hold for all n at once, so a caller may look at a running campaign as often as it likes.
"""

from __future__ import annotations

import numpy as np

from cbwk_core.arrays import Array

# The mixture over λ has the weights 1/((k + 1)(k + 2)) at λ = LAMBDA_MAX·2^-k. The last one is best for sums of 1e14.
LAMBDA_MAX = 0.8
LAMBDA_COUNT = 24
# Steps of a bisection: the interval of the root shrinks to 1e-15 of its length.
BISECTIONS = 50
# The asymptotic sequence is shortest at this sum of variances, in squared ranges of the outcome: some hundred to a few
# thousand rounds. At its best it has 3.04 standard errors; at 2,000 times the sum 3.96, at a fiftieth of it 6.7.
TUNED_VARIANCE = 50.0


def mixture_bound(energy: Array, error: float) -> Array:
    """Return the bound u on Σ(ξ_t - μ_t) for all n, given the energies V = Σ(ξ_t - ξ̂_t)² (k,) of k sequences.

    For ξ_t - ξ̂_t >= -1 with a prediction ξ̂_t from earlier rounds, and λ in [0, 1),
    exp(λ·Σ(ξ_t - μ_t) - ψ(λ)·V), ψ(λ) = -ln(1 - λ) - λ, is a supermartingale that starts at 1 (Fan, Grama & Liu 2015;
    Howard, Ramdas, McAuliffe & Sekhon 2021). So is its mean over several λ, which exceeds 1/δ with probability δ at
    most (Ville 1939). u is the sum at which the mean is 1/δ. No upper bound on ξ_t is needed.

    >>> mixture_bound(np.array([0.0, 100.0, 10_000.0]), error=0.05).round(1)
    array([  4.5,  36.6, 369.9])
    """
    k = np.arange(LAMBDA_COUNT)
    rate = LAMBDA_MAX * 0.5**k
    constant = np.log(1.0 / ((k + 1.0) * (k + 2.0))) + (np.log1p(-rate) + rate) * energy[:, None]
    wanted = np.log(1.0 / error)
    low, high = np.zeros(energy.size), ((wanted - constant) / rate).min(axis=1)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        exponent = constant + rate * middle[:, None]
        top = exponent.max(axis=1)
        below = top + np.log(np.exp(exponent - top[:, None]).sum(axis=1)) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(high)


def bernstein_sequence(lower_rows: Array, upper_rows: Array, ranges: Array, unit: Array, error: float) -> Array:
    """Return the empirical Bernstein confidence sequence of the mean of v_t after n rounds: (k, 2).

    lower_rows, upper_rows (n, k): martingales around the same v_t in the ranges (k, 2). lower_rows are at least
    ranges[:, 0] + ranges' length - unit, upper_rows at most ranges[:, 1] - ranges' length + unit: only the side towards
    which a row is bounded counts, so a weight may be as large as it likes where its outcome counts to the other side.

    >>> rows = np.tile([[0.0], [1.0]], (500, 1))
    >>> bernstein_sequence(rows, rows, np.array([[0.0, 1.0]]), np.ones(1), error=0.05).round(3)
    array([[0.441, 0.559]])
    """
    n, (low, high) = lower_rows.shape[0], ranges.T
    length = high - low
    ends = []
    for rows, sign, edge in ((lower_rows, 1.0, low), (upper_rows, -1.0, high)):
        scaled = sign * (rows - edge) / unit
        guess = np.clip(_means_before(scaled), 0.0, length / unit)
        energy = np.square(scaled - guess).sum(axis=0)
        ends.append(rows.mean(axis=0) - sign * unit * mixture_bound(energy, error / 2.0) / n)
    return np.asarray(np.clip(np.stack(ends, axis=1), ranges[:, :1], ranges[:, 1:]))


def _means_before(rows: Array) -> Array:
    """Return the mean of the rows before each row, with one row of 0 before the first: (n, k)."""
    sums = np.concatenate([np.zeros((1, rows.shape[1])), rows[:-1].cumsum(axis=0)])
    return np.asarray(sums / np.arange(1.0, rows.shape[0] + 1.0)[:, None])


def asymptotic_radius(variance: Array, ranges: Array, rounds: int, error: float) -> Array:
    """Return the radius of the asymptotic confidence sequence around the mean of n rows: (k,).

    √((V + 1/ρ²)·ln((ρ²·V + 1)/δ²)) / n, the normal mixture of Robbins (1970), for the sum V of the conditional
    variances of the rows. Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas (2024) show that it holds in the limit for all
    n at once, for martingales whose variances change with time. ρ² = x/V* is best at V*, where
    x = -2·ln δ + ln(1 - 2·ln δ); V* must not depend on the rows, so it is `TUNED_VARIANCE` squared ranges.

    >>> asymptotic_radius(np.array([50.0, 250.0]), np.array([[0.0, 1.0]] * 2), 1000, error=0.05).round(4)
    array([0.0215, 0.0499])
    """
    rho = (-2.0 * np.log(error) + np.log1p(-2.0 * np.log(error))) / (
        TUNED_VARIANCE * np.square(ranges[:, 1] - ranges[:, 0])
    )
    return np.asarray(np.sqrt((variance + 1.0 / rho) * np.log((rho * variance + 1.0) / error**2)) / rounds)
