"""What could be earned at most when outcomes are late, with everything known: the fluid problem with holds.

Decisions of a round cost c when their outcome is known, D rounds later, and hold one max cost until then. Whatever is
decided, what is spent and what is held must fit the budget at all times, in every run and so in the mean:

    maximise Σ_t E[r]  so that for all t  Σ_{u <= t - D} E[c_u] + Σ_{t - D < u <= t} E[h_u] <= B in every resource.

With multipliers μ_t >= 0 and Λ_u = Σ_{t >= u} μ_t a decision of round u pays Λ_{u+D} for its cost and Λ_u - Λ_{u+D} for
its hold. The dual function is an upper bound for any μ, so a minimum that is not quite reached is still a bound.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from cbwk_core.arrays import Array

ITERATIONS_MAX = 400
# Slots, of which delays of whole hundredths of the horizon are whole numbers, and contexts: enough for three digits.
SLOTS = 100
CONTEXTS = 4_000


def delay_costs(rewards: Array, costs: Array, rho: Array, share: float) -> tuple[float, float]:
    """What outcomes that are late by a share of T cost at least, over T·OPT: arguments as for `delayed_optimum`.

    First whoever knows everything, then who besides plays nothing before the first outcome.
    """
    rewards, costs, delay = rewards[:CONTEXTS], costs[:CONTEXTS], round(share * SLOTS)
    opt = delayed_optimum(rewards, costs, rho, slots=1, delay=0)
    earned = [delayed_optimum(rewards, costs, rho, slots=SLOTS, delay=delay, first=first) for first in (0, delay)]
    return 1.0 - earned[0] / opt, 1.0 - earned[1] / opt


def delayed_optimum(rewards: Array, costs: Array, rho: Array, *, slots: int, delay: int, first: int = 0) -> float:
    """Reward per round: (n, arms) and (n, arms, d) in max costs, at a budget of rho max costs a round.

    The horizon is cut into so many slots; delay and first, before which nothing is played, are in slots. The budget is
    looked at where slots end only, which makes the bound a little too high, never too low.

    >>> rng = np.random.default_rng(0)
    >>> r, c, rho = rng.random((500, 3)), rng.random((500, 3, 2)), np.array([0.2, 0.1])
    >>> [round(delayed_optimum(r, c, rho, slots=10, delay=delay), 2) for delay in (0, 1, 3)]
    [0.38, 0.34, 0.24]
    """
    resources = rho.size
    start = np.zeros((slots, resources))
    start[-1] = rewards.mean() / max(float(costs.mean()), 1e-12)

    def value(multipliers: Array) -> tuple[float, Array]:
        above = np.zeros((slots + delay, resources))
        above[:slots] = multipliers.reshape(slots, resources)[::-1].cumsum(axis=0)[::-1]
        best, spent, played = _slots(rewards, costs, above, slots, delay, first)
        settled = np.concatenate([np.zeros((delay, resources)), spent.cumsum(axis=0)])[:slots]
        made = np.concatenate([np.zeros(delay), played.cumsum()])
        held = made[delay:] - made[:slots]
        gradient = rho - (settled + held[:, None]) / slots
        return float(best.sum() / slots + (above[0] * rho).sum()), gradient.ravel()

    bounds = [(0.0, None)] * start.size
    solved = minimize(
        value, start.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": ITERATIONS_MAX}
    )
    return float(solved.fun)


def _slots(
    rewards: Array, costs: Array, above: Array, slots: int, delay: int, first: int
) -> tuple[Array, Array, Array]:
    """What is gained over the prices, spent and played in every slot: (slots,), (slots, d), (slots,)."""
    gained, spent, played = np.zeros(slots), np.zeros((slots, above.shape[1])), np.zeros(slots)
    index, known = np.arange(rewards.shape[0]), {}
    for slot in range(first, slots):
        price, blocked = above[slot + delay], (above[slot] - above[slot + delay]).sum()
        key = (price.tobytes(), float(blocked))
        if key not in known:  # most slots are alike
            worth = rewards - costs @ price - blocked
            arm = worth.argmax(axis=1)
            top = worth[index, arm]
            chosen = top > 0.0
            known[key] = top[chosen].sum(), costs[index, arm][chosen].sum(axis=0), chosen.sum()
        gained[slot], spent[slot], played[slot] = (part / rewards.shape[0] for part in known[key])
    return gained, spent, played
