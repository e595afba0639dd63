"""What must stay free so that the floor arm can be played in every round that is left (must play).

Let the floor arm's hold be h, and its costs c independent with mean m and variance V, each in [0, h]. In R rounds it
spends C_1 + … + C_R, estimated by R·m̂ with m̂ the mean of n known costs. The error Σ C - R·m̂ has the variance
R·V + R²·V/n = V·R·(1 + R/n): that of the costs to come, and that of the mean. Bernstein's inequality then gives, with
probability at least 1 - δ and L = ln(1/δ),

    Σ C <= R·m̂ + √(2·L·V·R·(1 + R/n)) + h·L/3.

**What is known.** One cost of h counts before the first real one, as in Laplace's rule of succession: with n - 1 real
costs, m̂ = (h + Σ c)/n and V̂ = (h² + Σ c²)/n - m̂². Without any outcome that is m̂ = h, V̂ = 0, the declared max cost;
and a cost that has not been seen yet, but may come, stays in the variance with a weight of 1/n.

**Holds.** A play needs h until its outcome is known, after D rounds in the mean. The last k = min(R, 1 + D) plays are
open together at the end and hold h each, so the reserve has h - m̂ more for each of them. It never needs more than h
for every round: the reserve is at most R·h (R·m̂, if callers report more than h).

**How often it is wrong.** A policy that spends what is above the reserve walks along it, so the bound is tested at many
R. Costs to come at R and at R/2 are the same by half; there are about log₂ T tests that differ, and ten of them at
δ = RESERVE_RISK fail in 1 % of the runs.
"""

from __future__ import annotations

from math import log

import numpy as np

from cbwk_core.arrays import Array, Integers, Mask
from cbwk_core.presets import RESERVE_RISK

_LOG = log(1.0 / RESERVE_RISK)


def moments(count: Array, total: Array, squares: Array, hold: Array) -> tuple[Array, Array, Array]:
    """n, m̂ and V̂ from the number (lanes, 1), the sum and the sum of squares (lanes, d) of the floor's known costs.

    >>> moments(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), hold=np.array([[4.0]]))
    (array([[1.]]), array([[4.]]), array([[0.]]))
    """
    n = count + 1.0
    mean = (total + hold) / n
    return n, mean, np.maximum((squares + hold * hold) / n - mean * mean, 0.0)


def reserve(rounds: Array, delay: Array, known: tuple[Array, Array, Array], hold: Array) -> Array:
    """What the floor arm needs for that many rounds, (lanes, d) in the unit of the costs; 0 for none.

    rounds and delay (lanes, 1), known: the `moments`, hold (lanes, d).

    >>> hold, none = np.array([[4.0]]), np.zeros((1, 1))
    >>> known = moments(none + 999.0, none + 996.0, none + 996.0, hold)
    >>> [reserve(none + rounds, none, known, hold).round(1).item() for rounds in (0.0, 1.0, 100.0, 1000.0)]
    [0.0, 4.0, 116.5, 1030.4]
    """
    n, mean, variance = known
    margin = np.sqrt(2.0 * _LOG * variance * rounds * (1.0 + rounds / n)) + hold * _LOG / 3.0
    open_at_end = np.minimum(rounds, 1.0 + delay)
    needed = mean * rounds + margin + np.maximum(hold - mean, 0.0) * open_at_end
    return np.asarray(np.minimum(needed, np.maximum(hold, mean) * rounds))


def cheapest(free: Array, holds: Array, payable: Mask) -> Integers:
    """The payable candidate whose hold takes the smallest share of what is free in its scarcest resource: (n,).

    free (n, d), holds (n, c, d), payable (n, c) with at least one candidate in a row where the answer matters. Among
    equals it is the first.

    >>> cheapest(np.array([[10.0]]), np.array([[[3.0], [2.0], [1.0]]]), np.array([[True, True, False]]))
    array([1])
    """
    scarce = np.maximum(free, 1e-300)[:, None, :]
    share = (holds / scarce).max(axis=2)
    return np.asarray(np.where(payable, share, np.inf).argmin(axis=1))
