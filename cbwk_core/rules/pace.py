"""How fast to spend, and the least that a decision counts as while its outcome is open (`practical`).

Without delay a round may spend ρ_t, what is left over the rounds left. With a delay of D rounds every open decision
holds h, of which h - c comes back. So no more than what is left over h can be open at a time, whatever it will cost: a
decision blocks D rounds' worth of holds. With n decisions a round that is n·h·D <= left, beside n·c·R <= left for R
rounds left. The two are one rule if a decision counts as max(c, h·D/R) against the pace left / R: while D·h/c, the
rounds in which holds turn over, is less than R, money is short; later, holds are short. Three details refine the rule:

- Over one delay, what is left is what comes back (held minus predicted) and what is free. Free money need not wait
  that long: at FREE_PER_DELAY times the speed little of it stays unused, and the price still chooses who gets it.
- In the last D rounds nothing comes back in time: a decision counts as its hold, whatever it costs.
- Play that is short of holds decays by c/h per delay, and some money is never spent. Spending earlier leaves less: for
  a value of s^α a round the best is R - τ·(ln(1/(1 - α))/α - 1) in place of R, τ = D·h/c. That is R - 0.19·τ for
  α = 0.3 and R - 0.39·τ for α = 0.5; where little more is worth playing for (α near 0) there is no reason to hurry.
"""

from __future__ import annotations

from math import nan

import numpy as np

from cbwk_core.arrays import Array, Mask
from cbwk_core.presets import BLIND_COUNT, UNPACED_BUDGET_MAX

FREE_PER_DELAY = 4.0
TURNOVERS_AHEAD = 0.25
# A delay below this share of the rounds left counts as none: one comparison, and the pace is the one without delay.
DELAY_SHARE_MIN = 0.001
# In max costs: a smaller amount is what rounding left of holds that are gone.
OPEN_MIN = 1e-9
# What is left of a window counts as at least this share of what an even plan would have left.
LEFT_SHARE_MIN = 0.25


def is_late(delay: Array, rest: Array) -> Mask:
    """Whether outcomes come so late, after `delay` of the `rest` rounds left, that holds may run short before money.

    >>> is_late(np.array([0.0, 5.0]), rest=np.array([1000.0, 1000.0]))
    array([False,  True])
    """
    return np.asarray(delay > DELAY_SHARE_MIN * rest)


def is_late_for_one(delay: float, rest: float) -> bool:
    """`is_late` of one lane."""
    return delay > DELAY_SHARE_MIN * rest


def paces(unspent: Array, held: Array, predicted: Array, delay: Array, rest: Array) -> tuple[Array, Array | None]:
    """ρ_t, and the share of its hold that a decision counts as at least: (lanes, d) each.

    unspent, held and predicted (lanes, d) in max costs; delay and rest, the rounds left, (lanes, 1). The share is NaN
    in a lane that is not late, and None if no lane is.

    >>> money = np.full((1, 1), 10.0)
    >>> paces(money, 0 * money, 0 * money, delay=np.zeros((1, 1)), rest=np.full((1, 1), 40.0))
    (array([[0.25]]), None)
    """
    left = np.maximum(unspent - predicted, 0.0)
    even, late = left / rest, is_late(delay, rest)
    if not late.any():
        return even, None
    free = np.maximum(unspent - held, 0.0)
    last, waited = rest <= delay, np.maximum(delay, DELAY_SHARE_MIN)
    returning = np.maximum(held - predicted, 0.0) * np.minimum(1.0, rest / waited)
    room = FREE_PER_DELAY * free + returning
    is_open = (held > OPEN_MIN) & (predicted > OPEN_MIN)
    turnover = np.where(is_open, delay * held / np.where(is_open, predicted, 1.0), 0.0)
    until = np.maximum(rest - TURNOVERS_AHEAD * turnover, np.minimum(rest, turnover))
    ample = room > left + OPEN_MIN  # by more than rounding, which matters where nothing is left
    spare = np.where(ample, left / np.where(ample, room, 1.0), 1.0)
    rho, blocking = np.where(last, room / rest, left / until), np.where(last, 1.0, delay / until * spare)
    return np.where(late, rho, even), np.where(late, blocking, np.nan)


def pace_of_one(unspent: float, held: float, predicted: float, delay: float, rest: float) -> tuple[float, float]:
    """`paces` of one lane and one resource."""
    left = unspent - predicted if unspent > predicted else 0.0
    if delay <= DELAY_SHARE_MIN * rest:
        return left / rest, nan
    free = unspent - held if unspent > held else 0.0
    returning = held - predicted if held > predicted else 0.0
    if rest <= delay:
        return (FREE_PER_DELAY * free + returning * (rest / delay)) / rest, 1.0
    room = FREE_PER_DELAY * free + returning
    until = rest
    if held > OPEN_MIN and predicted > OPEN_MIN:
        turnover = delay * held / predicted
        until = max(rest - TURNOVERS_AHEAD * turnover, min(rest, turnover))
    return left / until, delay / until * (left / room if room > left + OPEN_MIN else 1.0)


def blocked(costs: Array, holds: Array, blocking: Array) -> Array:
    """The costs that decisions count as: at least the blocking share of their holds, all in max costs; NaN is no share.

    >>> blocked(np.array([[0.1, 0.6]]), holds=np.ones((1, 2)), blocking=np.array([[0.5, 0.5]]))
    array([[0.5, 0.6]])
    """
    return np.fmax(costs, holds * blocking)


def blocked_of_one(cost: float, hold: float, blocking: float) -> float:
    """`blocked` of one decision and one resource."""
    return max(cost, hold * blocking)


def blind_share(opened: Array, settled: Array, budgets: Array, rho: Array) -> Array | None:
    """The probability of playing in each lane, (lanes,); None if it is 1 in all of them.

    With BLIND_COUNT decisions open and fewer settled nothing is known of the costs yet. The lane then plays at the even
    pace ρ of its scarcest resource, unless a budget, (lanes, d) in max costs, is at most UNPACED_BUDGET_MAX.

    >>> budgets, rho = np.array([[500.0, 200.0]]), np.array([[0.5, 0.2]])
    >>> blind_share(np.array([30.0]), np.array([29.0]), budgets, rho)
    array([0.2])
    """
    blind = (opened >= BLIND_COUNT) & (settled < BLIND_COUNT)
    if not blind.any():
        return None
    paced = blind & (budgets.min(axis=1) > UNPACED_BUDGET_MAX)
    return np.where(paced, np.minimum(1.0, rho.min(axis=1)), 1.0)


def blind_share_of_one(opened: float, settled: float, budgets: list[float], rho: list[float]) -> float:
    """`blind_share` of one lane."""
    if opened < BLIND_COUNT or settled >= BLIND_COUNT or min(budgets) <= UNPACED_BUDGET_MAX:
        return 1.0
    return min(1.0, *rho)


def window_paces(limit: Array, left: Array, time_share: Array, rounds: Array, rest: Array) -> Array:
    """What a decision may cost for a window to last to its end: what is left over the decisions expected until then.

    At least LEFT_SHARE_MIN of what an even plan would have left counts as left, by the share of the window's time that
    is left: a pace near 0 would move the prices without bounds, and a window that is used up refuses by itself.
    rest: the rounds left of the horizon. All (n,).

    >>> limit, half, rounds = np.array([10.0, 10.0]), np.array([0.5, 0.5]), np.array([12.0, 12.5])
    >>> window_paces(limit, np.array([6.0, 0.0]), half, rounds, rest=np.array([100.0, 100.0]))
    array([0.5, 0.1])
    """
    counted = np.maximum(left, LEFT_SHARE_MIN * (limit * time_share))
    return np.asarray(counted / np.maximum(1.0, np.minimum(rest, rounds)))


def window_pace_of_one(limit: float, left: float, time_share: float, rounds: float, rest: float) -> float:
    """`window_paces` of one window."""
    return max(left, LEFT_SHARE_MIN * (limit * time_share)) / max(1.0, min(rest, rounds))
