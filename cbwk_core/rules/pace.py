"""How fast to spend, and what a decision costs at least while its outcome is awaited (`practical`).

Without delay a round may spend what is left over the rounds left. With a delay of D rounds every open decision holds h
of which h - c comes back, so no more than what is left over h can be open at a time, whatever it will cost: a decision
blocks D rounds' worth of holds. With n decisions a round that is n·h·D <= left, beside n·c·R <= left for R rounds left.
The two are one rule if a decision counts as max(c, h·D/R) against the pace left / R: as long as D·h/c, the rounds in
which holds turn over, is less than R money is short, and later holds are. Three things are finer than that:

- `left` over a delay is what comes back, held less predicted, and what is free. Free money need not wait so long:
  FREE_PER_DELAY times as fast leaves little of it, and the price still chooses who gets it.
- In the last D rounds nothing comes back in time: a decision counts as its hold, whatever it costs.
- Play that is short of holds falls off by c/h a delay, and something is never spent. Spending earlier leaves less: for
  a value of s^α a round the best is R - τ·(ln(1/(1 - α))/α - 1) in place of R, τ = D·h/c. That is R - 0.19·τ for
  α = 0.3 and R - 0.39·τ for α = 0.5; where little more is worth playing for (α near 0) all haste is waste.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cbwk_core.arrays import Array

if TYPE_CHECKING:
    from cbwk_core.problem import Problem
    from cbwk_core.state import State

FREE_PER_DELAY = 4.0
TURNOVERS_AHEAD = 0.25
# A delay of less than this share of the rounds left is none: one comparison, and everything is as without delay.
DELAY_SHARE_MIN = 0.001
# In max costs: less is what rounding left of holds that are gone.
OPEN_MIN = 1e-9


def paces_of(problem: Problem, state: State) -> tuple[Array, Array | None]:
    """`paces` of a state's own account."""
    unspent, held = problem.budgets - state.spent / problem.unit, state.held / problem.unit
    left, free = np.maximum(unspent - state.predicted, 0.0), np.maximum(unspent - held, 0.0)
    delay = state.waited / np.maximum(state.books[:, 2], 1.0)
    rest = np.maximum(problem.horizon - state.books[:, 0], 1.0)
    return paces(left, free, held, state.predicted, delay[:, None], rest[:, None])


def paces(
    left: Array, free: Array, held: Array, predicted: Array, delay: Array, rest: Array
) -> tuple[Array, Array | None]:
    """ρ_t, and the share of its hold that a decision counts as at least, None for nothing: (lanes, d) each.

    left, free, held and predicted (lanes, d) in max costs, none below 0; delay and rest, the rounds left, (lanes, 1).

    >>> money = np.full((1, 1), 10.0)
    >>> paces(money, money, 0 * money, 0 * money, delay=np.zeros((1, 1)), rest=np.full((1, 1), 40.0))
    (array([[0.25]]), None)
    """
    even, late = left / rest, delay > DELAY_SHARE_MIN * rest
    if not late.any():
        return even, None
    last, waited = rest <= delay, np.maximum(delay, DELAY_SHARE_MIN)
    returning = np.maximum(held - predicted, 0.0) * np.minimum(1.0, rest / waited)
    room = FREE_PER_DELAY * free + returning
    is_open = (held > OPEN_MIN) & (predicted > OPEN_MIN)
    turnover = np.where(is_open, delay * held / np.where(is_open, predicted, 1.0), 0.0)
    until = np.maximum(rest - TURNOVERS_AHEAD * turnover, np.minimum(rest, turnover))
    ample = room > left + OPEN_MIN  # by more than rounding: of nothing left, nothing is no more
    spare = np.where(ample, left / np.where(ample, room, 1.0), 1.0)
    rho, blocking = np.where(last, room / rest, left / until), np.where(last, 1.0, delay / until * spare)
    return np.where(late, rho, even), np.where(late, blocking, 0.0)


def late_pace(
    left: float, free: float, held: float, predicted: float, delay: float, rest: float
) -> tuple[float, float]:
    """`paces` of one resource in plain floats, for a delay that counts (delay > DELAY_SHARE_MIN·rest).

    >>> late_pace(left=10.0, free=8.0, held=3.0, predicted=1.0, delay=20.0, rest=16.0)  # (4·8 + 2·16/20) / 16
    (2.1, 1.0)
    """
    back = held - predicted if held > predicted else 0.0
    if rest <= delay:
        return (FREE_PER_DELAY * free + back * (rest / delay)) / rest, 1.0
    room = FREE_PER_DELAY * free + back
    until = rest
    if held > OPEN_MIN and predicted > OPEN_MIN:
        turnover = delay * held / predicted
        until = max(rest - TURNOVERS_AHEAD * turnover, min(rest, turnover))
    return left / until, delay / until * (left / room if room > left + OPEN_MIN else 1.0)
