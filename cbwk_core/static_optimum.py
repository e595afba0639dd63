"""The best static policy (paper, eq-OPT-static) for finitely many contexts, with the prices of its resources.

    max Σ_x w_x Σ_a p_a(x) r(x, a)   subject to   Σ_x w_x Σ_a p_a(x) c(x, a) <= rho,   Σ_a p_a(x) <= 1,   p >= 0

The null arm is implicit: it takes what a context's probabilities leave. T times the value bounds what any policy can
earn in T rounds (`lem-static-bound`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.arrays import Array, broadcast, finite

# Up to here the whole program is solved at once; beyond, first on so many contexts spread over all, for prices.
CONTEXTS_AT_ONCE = 1000
# Arms worth less than the context's best by more than this share of the largest reward are left out at first. Prices
# of a thousand contexts are good to about 1/√1000.
MARGIN_START = 0.05
# Relative gap to the dual bound at which the arms left out are proven useless.
GAP_MAX = 1e-9


class StaticOptimum(NamedTuple):
    """The program's solution."""

    value: float  # per round
    probabilities: Array  # (contexts, arms), null takes the rest
    prices: Array  # (d,), >= 0: what one more unit of rho would earn


def static_optimum(
    rewards: ArrayLike, costs: ArrayLike, rho: ArrayLike, weights: ArrayLike | None = None
) -> StaticOptimum:
    """Solve the program for rewards (contexts, arms), costs (contexts, arms, d), and rho a number or one per resource.

    Many contexts are solved in two passes: prices from a thousand of them, then the whole program over the arms that
    are close to best at these prices. The dual bound over all arms proves the result; where it does not, more arms are
    let in. Ten thousand contexts of ten arms take a quarter of a second instead of one and a half.

    >>> best = static_optimum([[1.0, 0.4]], [[[1.0], [0.2]]], rho=0.5)  # mixes: 0.375 of arm 0, 0.625 of arm 1
    >>> round(best.value, 6), best.probabilities.round(3), best.prices.round(3)
    (0.625, array([[0.375, 0.625]]), array([0.75]))
    """
    r, c, pace, w = _checked(rewards, costs, rho, weights)
    everything = np.ones(r.shape, dtype=np.bool_)
    contexts = r.shape[0]
    few = np.linspace(0, contexts - 1, CONTEXTS_AT_ONCE).astype(np.int64)
    if contexts <= CONTEXTS_AT_ONCE or w[few].sum() <= 0:
        return _solve(r, c, pace, w, everything)
    best = _solve(r[few], c[few], pace, w[few] / w[few].sum(), everything[few])
    margin = MARGIN_START * max(float(np.abs(r).max()), np.finfo(np.float64).tiny)
    while True:
        worth = r - c @ best.prices
        near = worth >= np.maximum(worth.max(axis=1, keepdims=True), 0.0) - margin
        best = _solve(r, c, pace, w, near)
        gap = dual_bound(r, c, pace, best.prices, w) - best.value
        if near.all() or gap <= GAP_MAX * max(1.0, abs(best.value)):
            return best
        margin *= 2.0


def dual_bound(
    rewards: ArrayLike, costs: ArrayLike, rho: ArrayLike, prices: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """λᵀrho + Σ_x w_x max(0, max_a r - λᵀc): above the optimum for every λ >= 0, equal to it at the optimal prices.

    >>> dual_bound([[1.0, 0.4]], [[[1.0], [0.2]]], rho=0.5, prices=[0.75])
    0.625
    """
    r, c, pace, w = _checked(rewards, costs, rho, weights)
    price = finite("prices", prices, (c.shape[2],))
    worth = (r - c @ price).max(axis=1, initial=0.0)
    return float(price @ pace + w @ worth)


def _checked(
    rewards: ArrayLike, costs: ArrayLike, rho: ArrayLike, weights: ArrayLike | None
) -> tuple[Array, Array, Array, Array]:
    r = finite("rewards", rewards, (None, None))
    c = finite("costs", costs, (*r.shape, None))
    if min(c.shape) < 1:
        raise ValueError(f"costs must have at least one context, arm and resource, got shape {c.shape}")
    pace = broadcast("rho", rho, (c.shape[2],))
    if (pace < 0).any():
        raise ValueError(f"rho must not be negative, got {pace.min()}")
    if weights is None:
        return r, c, pace, np.full(r.shape[0], 1.0 / r.shape[0])
    w = finite("weights", weights, (r.shape[0],))
    if (w < 0).any() or abs(w.sum() - 1.0) > 1e-9:
        raise ValueError(f"weights must be non-negative and sum to 1, got a sum of {w.sum()}")
    return r, c, pace, w


def _solve(r: Array, c: Array, rho: Array, w: Array, admitted: NDArray[np.bool_]) -> StaticOptimum:
    """The program over the admitted pairs of context and arm, by interior point with crossover to a vertex.

    The variables are p itself and the budget rows are multiplied by the number of contexts, so that every coefficient
    is of the order of a cost; HiGHS' simplex methods take more than ten times as long.
    """
    contexts, resources = r.shape[0], c.shape[2]
    context, arm = np.nonzero(admitted)
    if context.size == 0:
        return StaticOptimum(0.0, np.zeros(r.shape), np.zeros(resources))
    share = w[context] * contexts
    # Takes as long to import as the rest of the package, and who only decides never solves a program.
    from scipy import sparse  # noqa: PLC0415
    from scipy.optimize import linprog  # noqa: PLC0415

    budget_rows = sparse.csr_array((c[context, arm] * share[:, None]).T)
    columns = np.arange(context.size)
    simplex_rows = sparse.csr_array((np.ones(context.size), (context, columns)), shape=(contexts, context.size))
    solution = linprog(
        -r[context, arm] * share,
        A_ub=sparse.vstack([budget_rows, simplex_rows], format="csc"),
        b_ub=np.concatenate([rho * contexts, np.ones(contexts)]),
        method="highs-ipm",
    )
    if solution.status != 0 or solution.x is None:
        raise ArithmeticError(f"the linear program was not solved: {solution.message}")
    probabilities = np.zeros(r.shape)
    probabilities[context, arm] = np.clip(solution.x, 0.0, 1.0)
    prices = np.maximum(-solution.ineqlin.marginals[:resources], 0.0)
    return StaticOptimum(float(w @ np.vecdot(probabilities, r)), probabilities, prices)
