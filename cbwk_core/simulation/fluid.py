"""Upper bounds on the reward when outcomes are delayed and the means are known: the fluid problem with holds.

A decision of round u costs c when its outcome is known, D rounds later, and holds one max cost until then. A policy
that never overspends keeps spend plus holds within the budget at all times, in every run and therefore in the mean:

    maximise Σ_t E[r]  subject to, for all t,  Σ_{u <= t - D} E[c_u] + Σ_{t - D < u <= t} E[h_u] <= B in every resource.

With multipliers μ_t >= 0 and Λ_u = Σ_{t >= u} μ_t, a decision of round u pays Λ_{u+D} for its cost and Λ_u - Λ_{u+D}
for its hold. The dual function is an upper bound for every μ, so the bound holds even if the minimiser stops early.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from cbwk_core.arrays import Array

ITERATIONS_MAX = 400
# Slots and contexts of `delay_losses`, enough for three digits. A delay of T/100 is one slot.
SLOTS = 100
CONTEXTS = 4_000


def delay_losses(rewards: Array, costs: Array, rho: Array, share: float) -> tuple[float, float]:
    """Return two lower bounds on the regret over T·OPT when outcomes are delayed by a share of T.

    The first bound holds for a policy that knows all means, the second for one that also plays nothing before the first
    outcome. The other arguments are those of `delayed_optimum`.

    >>> rng = np.random.default_rng(0)
    >>> r, c, rho = rng.random((100, 2)), rng.random((100, 2, 1)), np.array([0.2])
    >>> informed, waiting = delay_losses(r, c, rho, share=0.05)
    >>> 0.0 < informed < waiting < 1.0
    True
    """
    rewards, costs, delay = rewards[:CONTEXTS], costs[:CONTEXTS], round(share * SLOTS)
    opt = delayed_optimum(rewards, costs, rho, slots=1, delay=0)
    earned = [delayed_optimum(rewards, costs, rho, slots=SLOTS, delay=delay, first=first) for first in (0, delay)]
    return 1.0 - earned[0] / opt, 1.0 - earned[1] / opt


def delayed_optimum(rewards: Array, costs: Array, rho: Array, *, slots: int, delay: int, first: int = 0) -> float:
    """Return an upper bound on the mean reward per round.

    rewards, costs: the means, (n, arms) and (n, arms, d), costs in units of the max cost.
    rho: the budget per round in units of the max cost.
    slots: the number of parts into which the horizon is divided. The budget is checked only at the end of every slot,
        which makes the bound slightly too high, never too low.
    delay, first: the delay, and the first slot in which arms are played, both in slots.

    >>> rng = np.random.default_rng(0)
    >>> r, c, rho = rng.random((500, 3)), rng.random((500, 3, 2)), np.array([0.2, 0.1])
    >>> [round(delayed_optimum(r, c, rho, slots=10, delay=delay), 2) for delay in (0, 1, 3)]
    [0.38, 0.34, 0.24]
    """
    resources = rho.size
    start = np.zeros((slots, resources))
    start[-1] = rewards.mean() / max(float(costs.mean()), 1e-12)

    def value(multipliers: Array) -> tuple[float, Array]:
        price_sums = np.zeros((slots + delay, resources))
        price_sums[:slots] = multipliers.reshape(slots, resources)[::-1].cumsum(axis=0)[::-1]
        best, spent, played = _slot_sums(rewards, costs, price_sums, slots, delay, first)
        settled = np.concatenate([np.zeros((delay, resources)), spent.cumsum(axis=0)])[:slots]
        decided = np.concatenate([np.zeros(delay), played.cumsum()])
        held = decided[delay:] - decided[:slots]
        gradient = rho - (settled + held[:, None]) / slots
        return float(best.sum() / slots + (price_sums[0] * rho).sum()), gradient.ravel()

    bounds = [(0.0, None)] * start.size
    solved = minimize(
        value, start.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": ITERATIONS_MAX}
    )
    return float(solved.fun)


def _slot_sums(
    rewards: Array, costs: Array, price_sums: Array, slots: int, delay: int, first: int
) -> tuple[Array, Array, Array]:
    """Return value above the prices, spend and plays of every slot: (slots,), (slots, d), (slots,)."""
    gained, spent, played = np.zeros(slots), np.zeros((slots, price_sums.shape[1])), np.zeros(slots)
    index, cache = np.arange(rewards.shape[0]), {}
    for slot in range(first, slots):
        price, blocked = price_sums[slot + delay], (price_sums[slot] - price_sums[slot + delay]).sum()
        key = (price.tobytes(), float(blocked))
        if key not in cache:  # most slots have equal prices
            worth = rewards - costs @ price - blocked
            arm = worth.argmax(axis=1)
            top = worth[index, arm]
            chosen = top > 0.0
            cache[key] = top[chosen].sum(), costs[index, arm][chosen].sum(axis=0), chosen.sum()
        gained[slot], spent[slot], played[slot] = (total / rewards.shape[0] for total in cache[key])
    return gained, spent, played
