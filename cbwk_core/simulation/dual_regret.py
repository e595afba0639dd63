"""Regret against an honest T·OPT: the dual bound on each run's own contexts, free of luck with contexts and costs.

For prices λ >= 0 let ℓ_a(x) = r(x, a) - λᵀc(x, a) be the Lagrangian of an arm at the means, 0 for null, and

    D_T(λ) = λᵀB + Σ_t max_a ℓ_a(x_t)   over the contexts x_1, …, x_T of one run, null among the arms.

**An upper bound.** E D_T(λ) = T·(λᵀρ + E max_a ℓ_a(x)) >= T·OPT for every fixed λ >= 0, with equality at the optimal
prices λ* (linear programming duality; `static_optimum.dual_bound` is the sum for given contexts). The minimum is flat:
with λ̂ solved from n other contexts, E D_T(λ̂) - T·OPT is of the order |λ̂ - λ*|², a share of about d/n of T·OPT, and
never negative. The value of the sampled program itself errs by 1/√n, which is 0.5-2 % at n = 10,000. λ̂ must not be
solved from the run's own contexts: E min_λ D_T(λ) <= T·OPT.

**A control variate.** With R = Σ_t r(x_t, a_t), C̄ = Σ_t c(x_t, a_t) and C the realised costs, the regret of a run is

    D_T(λ̂) - R + λ̂ᵀ(C̄ - C).

D_T(λ̂) in place of T·OPT takes out luck with contexts: in a run of good contexts both D_T and R are high. λ̂ᵀ(C̄ - C)
takes out luck with costs: a run that paid less than the means had more left to spend. c(x_t, a_t) - C_t has mean 0
given everything before round t, so the sum is a martingale with mean 0. Both keep the expectation T·D(λ̂) - E R.

**What it is made of.** Inserting D_T, R = Σ_t (ℓ_{a_t} + λ̂ᵀc(x_t, a_t)) and cancelling λ̂ᵀC̄ gives

    Σ_t (max_a ℓ_a(x_t) - ℓ_{a_t}(x_t)) + λ̂ᵀ(B - C):

what the arms played fall short of the best arm at the right prices, plus the worth of the money left over. Both terms
are at least 0 in every run that does not overspend, so no run has a negative regret.

**What no policy reaches.** T·OPT lets the mean spend equal B; a policy keeps the spend of every run below B, and cannot
spend a rest smaller than a hold. `known_means.py` measures what is left over for a policy that knows λ̂ and all means.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.simulation.environment import Environment
from cbwk_core.static_optimum import static_optimum

# Contexts of the program behind the prices. The bias of the bound is about d/n of T·OPT.
CONTEXTS = 4_000
# Draws that together give these contexts. They are spread over the horizon, so that a change or a season is in them.
DRAWS = 80
# A program with more arms than this is solved for a few contexts first, and then for the best arms of each context at
# these prices. Any prices give a bound, and these are as good: 4,000 contexts of 200 arms take 0.6 s instead of 5.
CANDIDATES, FEW_CONTEXTS = 20, 200
# Seed of these contexts. The streams of a run are spawned from its own seed, so no run has these contexts.
PRICE_SEED = 2_000_003


class Spend(Protocol):
    """The part of the results of a run that the regret needs."""

    @property
    def gap(self) -> Array:
        """Sum of the Lagrangian gaps, (lanes,)."""

    @property
    def bound(self) -> Array:
        """Sum of the best Lagrangians, (lanes,)."""

    @property
    def spent(self) -> Array:
        """Realised costs, (lanes, d)."""


def lagrangian_sums(mean_reward: Array, mean_costs: Array, prices: Array, arms: Integers) -> tuple[Array, Array]:
    """Return Σ (max_a ℓ_a - ℓ_played) and Σ max_a ℓ_a of each lane: (lanes,) each.

    mean_reward (n, lanes, arms + 1) and mean_costs (n, lanes, arms + 1, d), null last with zeros; prices (lanes, d), or
    (n, lanes, d) where they differ between rounds; arms (m, lanes) played in the first m rounds, null in the others.

    >>> r, c = np.array([[[1.0, 0.4, 0.0]]]), np.array([[[[1.0], [0.2], [0.0]]]])
    >>> gap, bound = lagrangian_sums(r, c, np.array([[0.75]]), np.array([[-1]]))
    >>> gap.round(6), bound.round(6)
    (array([0.25]), array([0.25]))
    """
    worth = mean_reward - np.matvec(mean_costs, prices)
    best = worth.max(axis=2)
    rows = np.arange(len(arms))[:, None]
    played = worth[rows, np.arange(worth.shape[1]), arms].sum(axis=0)
    bound = best.sum(axis=0)
    return bound - played, bound


def dual_totals(runs: Spend, prices: ArrayLike, budget: ArrayLike) -> Array:
    """Return D_T(λ), the bound in place of T·OPT, of each run: (lanes,).

    >>> from cbwk_core.simulation import PaperEnvironment, run
    >>> from cbwk_core.baselines import LinUCB
    >>> from cbwk_core.problem import Problem
    >>> environment = PaperEnvironment(m=5, arms=3)
    >>> prices = static_prices(environment, (0.25,) * 4, horizon=200)
    >>> problem = Problem.of(arms=3, dimension=5, resources=4, horizon=200, budget=50)
    >>> runs = run(LinUCB(problem=problem), environment, horizon=200, budget=50, seeds=range(2), prices=prices)
    >>> dual_totals(runs, prices, [50.0] * 4).round(6)  # one context: exactly T·OPT
    array([100., 100.])
    >>> bool((dual_regrets(runs, prices, [60.0] * 4) > 0).all())
    True
    """
    return np.asarray(np.asarray(prices) @ np.asarray(budget, dtype=np.float64) + runs.bound)


def dual_regrets(runs: Spend, prices: ArrayLike, budget: ArrayLike) -> Array:
    """Return the regret of each run, without luck with contexts and costs: (lanes,)."""
    left = np.asarray(budget, dtype=np.float64) - runs.spent
    return np.asarray(runs.gap + np.vecdot(np.broadcast_to(np.asarray(prices), left.shape), left))


def static_prices(environment: Environment, rho: tuple[float, ...], horizon: int) -> Array:
    """Return the prices λ̂ per unit of cost, (d,), solved from contexts that no run has.

    The result is cached, because a large program takes a second.

    >>> from cbwk_core.simulation import PaperEnvironment
    >>> bool((static_prices(PaperEnvironment(m=5, arms=3), (0.25,) * 4, horizon=100) >= 0).all())
    True
    """
    return _cached_prices(cast(Any, environment), rho, horizon)


@lru_cache(maxsize=4096)
def _cached_prices(environment: Environment, rho: tuple[float, ...], horizon: int) -> Array:
    rewards, costs = sampled_means(environment, horizon)
    # A resource whose costs are a thousandth of another's would be lost in the tolerances of the solver.
    largest = np.abs(costs).max(axis=(0, 1))
    unit = np.where(largest > 0.0, largest, 1.0)
    # Equal contexts are one context with a weight: a world with few contexts gives a small program.
    means = np.concatenate([rewards[..., None], costs / unit], axis=2)
    distinct, counts = np.unique(means.reshape(len(means), -1), axis=0, return_counts=True)
    means, limits = distinct.reshape(-1, *means.shape[1:]), np.array(rho) / unit
    if means.shape[1] > CANDIDATES:
        few = means[:: max(1, len(means) // FEW_CONTEXTS)]
        means = _candidates(means, static_optimum(few[..., 0], few[..., 1:], limits).prices)
    scaled = static_optimum(means[..., 0], means[..., 1:], limits, counts / counts.sum())
    return frozen(scaled.prices / unit)


def sampled_means(environment: Environment, horizon: int) -> tuple[Array, Array]:
    """Return the means of contexts of the whole horizon that no run has: (CONTEXTS, arms) and (CONTEXTS, arms, d).

    >>> from cbwk_core.simulation import PaperEnvironment
    >>> sampled_means(PaperEnvironment(m=5, arms=3), horizon=200)[1].shape
    (4000, 3, 4)
    """
    rng = np.random.default_rng(PRICE_SEED)
    starts = np.linspace(0, max(horizon - CONTEXTS // DRAWS, 0), DRAWS).round().astype(np.int64)
    draws = [environment.draw(rng, int(start), CONTEXTS // DRAWS) for start in starts]
    return np.concatenate([draw.mean_reward for draw in draws]), np.concatenate([draw.mean_costs for draw in draws])


def _candidates(means: Array, prices: Array) -> Array:
    """Return the means of the arms that are best at these prices: (n, CANDIDATES, 1 + d)."""
    worth = means[..., 0] - means[..., 1:] @ prices
    best = np.argpartition(-worth, CANDIDATES, axis=1)[:, :CANDIDATES]
    return np.take_along_axis(means, best[..., None], axis=1)
