"""The `practical` preset for one lane, in plain floats.

An idle service decides one request and learns one outcome at a time. With three resources and ten arms the vectors are
so short that each call into numpy costs more than its arithmetic, so the same rules stand here once more without it:
`quote`, `draw`, `committed` and `settled` do what `SquareCBwK.quote`, `decision.draw_rows` and the lane-wise `commit`
and `settle` do. The tests hold each pair together; anything out of the ordinary goes the general way.
"""

from __future__ import annotations

from itertools import accumulate
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cbwk_core.dual import DualState
from cbwk_core.oracle import Array, frozen
from cbwk_core.presets import (
    BLIND_COUNT,
    DAMPING,
    GAMMA_FACTOR,
    NOISE_MIN,
    PRICE_CEILING,
    PRICE_STEP,
    RESIDUAL_PRIOR,
    RESIDUAL_PRIOR_COUNT,
    WIDTHS,
)
from cbwk_core.problem import NULL_ARM, Problem, Ticket

if TYPE_CHECKING:
    from cbwk_core.squarecbwk import State

# Up to here a loop over plain floats beats numpy.
CANDIDATES_MAX = 32


class PlainProblem(NamedTuple):
    """A problem's numbers as lists."""

    budget: list[float]  # in the caller's units
    budgets: list[float]  # in max costs
    unit: list[float]
    rho: list[float]
    horizon: int

    @classmethod
    def of(cls, problem: Problem) -> PlainProblem:
        """The same problem, ready to loop over."""
        return cls(list(problem.budget), problem.budgets.tolist(), problem.unit.tolist(), problem.rho.tolist(), problem.horizon)


class PlainQuote(NamedTuple):
    """Prices, pace, learning rate and noise of the next decision."""

    prices: list[float]
    rho: list[float]
    gamma: float
    noise: float


def is_ordinary(problem: PlainProblem, state: State, free: list[float] | None) -> bool:
    """Whether nothing needs a mask or a throttle: rounds are left, every arm can be paid, outcomes have come back."""
    if free is None:
        spent, held = state.spent[0].tolist(), state.held[0].tolist()
        free = [budget - used - kept for budget, used, kept in zip(problem.budget, spent, held, strict=True)]
    return (
        int(state.round[0]) < problem.horizon
        and not (state.opened[0] >= BLIND_COUNT and state.settled[0] < BLIND_COUNT)
        and all(left >= unit for left, unit in zip(free, problem.unit, strict=True))
    )


def quote(problem: PlainProblem, state: State, arms: int, dimension: int, gamma: float | str) -> PlainQuote:
    """λ = p·R̂/ρ, ρ_t = what is left over the rounds left, γ from the noise uᵀΣ̂u with u = (1, -λ)."""
    rounds = int(state.round[0])
    value = float(state.value[0]) / max(rounds, 1)
    rounds_left = max(problem.horizon - rounds, 1)
    position, spent, predicted = state.dual.position[0].tolist(), state.spent[0].tolist(), state.predicted[0].tolist()
    prices = [p * (value / rho) for p, rho in zip(position, problem.rho, strict=True)]
    pace = [
        max(budget - used / unit - open_, 0.0) / rounds_left
        for budget, used, unit, open_ in zip(problem.budgets, spent, problem.unit, predicted, strict=True)
    ]
    direction = np.array([1.0, *(-price for price in prices)])
    length = 1.0 + sum(price * price for price in prices)
    total = float(direction @ state.residuals[0] @ direction) + RESIDUAL_PRIOR * RESIDUAL_PRIOR_COUNT * length
    noise = max(total / (int(state.learnt[0]) + RESIDUAL_PRIOR_COUNT), NOISE_MIN)
    if isinstance(gamma, str):
        gamma = GAMMA_FACTOR * sqrt((arms + 1) * (rounds + 1.0) / (noise * dimension))
    return PlainQuote(prices, pace, gamma, noise)


def draw(asked: PlainQuote, predictions: Array, leverage: Array, uniform: float) -> tuple[list[float], int]:
    """Probabilities, null last, and the arm drawn, for one request whose candidates are all allowed.

    predictions (candidates, 1 + d), leverage (candidates,).
    """
    values = (predictions @ np.array([1.0, *(-price for price in asked.prices)])).tolist()
    widths = [WIDTHS * sqrt(each * asked.noise) for each in leverage.tolist()]
    top = max(values)
    best = values.index(top)
    reach = widths[best]
    if top < 0.0:  # the null arm, worth 0 and known, is best
        top, best, reach = 0.0, len(values), 0.0
    count, gamma = len(values) + 1, asked.gamma
    weights = [
        (1.0 if top - value <= width + reach else DAMPING) / (count + gamma * (top - value))
        for value, width in zip(values, widths, strict=True)
    ]
    weights.append(0.0)
    weights[best] = 0.0
    weights[best] = 1.0 - sum(weights)
    arm = best
    for candidate, cumulated in enumerate(accumulate(weights)):
        if uniform < cumulated:
            arm = candidate
            break
    return weights, NULL_ARM if arm == len(values) else arm


def committed(problem: PlainProblem, state: State, ticket: Ticket) -> State:
    """n decisions in order: prices move at (ĉ - ρ_t)/ρ, the energy grows by its square."""
    position, energy = state.dual.position[0].tolist(), state.dual.energy[0].tolist()
    held, predicted = state.held[0].tolist(), state.predicted[0].tolist()
    value, opened = float(state.value[0]), int(state.opened[0])
    rows = zip(
        ticket.arm.tolist(), ticket.costs.tolist(), ticket.rho.tolist(), ticket.hold.tolist(), ticket.value.tolist()
    )
    for arm, costs, rho, hold, best in rows:
        opened += arm != NULL_ARM
        value += best
        for j, (cost, pace, even) in enumerate(zip(costs, rho, problem.rho, strict=True)):
            excess = (cost - pace) / even
            energy[j] += excess * excess
            position[j] = min(max(position[j] + PRICE_STEP * excess / sqrt(1.0 + energy[j]), 0.0), PRICE_CEILING)
            held[j] += hold[j]
            predicted[j] += cost
    return state._replace(
        round=state.round + ticket.arm.shape[0],
        dual=DualState(frozen(np.array([position])), frozen(np.array([energy]))),
        held=frozen(np.array([held])),
        predicted=frozen(np.array([predicted])),
        opened=np.array([opened]),
        value=frozen(np.array([value])),
    )


def released(problem: PlainProblem, state: State, ticket: Ticket, costs: list[list[float]]) -> State:
    """n decisions settled at these costs, or cancelled at none: holds and predictions go, prices move by (c - ĉ)/ρ."""
    position, energy = state.dual.position[0].tolist(), state.dual.energy[0].tolist()
    held, predicted = state.held[0].tolist(), state.predicted[0].tolist()
    spent, opened = state.spent[0].tolist(), int(state.opened[0])
    rows = zip(ticket.arm.tolist(), ticket.costs.tolist(), ticket.hold.tolist(), costs, strict=True)
    for arm, guesses, hold, actual in rows:
        if arm == NULL_ARM:
            continue
        opened -= 1
        for j, (cost, guess) in enumerate(zip(actual, guesses, strict=True)):
            excess = (cost / problem.unit[j] - guess) / problem.rho[j]
            position[j] = min(max(position[j] + PRICE_STEP * excess / sqrt(1.0 + energy[j]), 0.0), PRICE_CEILING)
            held[j] -= hold[j]
            predicted[j] -= guess
            spent[j] += cost
    return state._replace(
        dual=DualState(frozen(np.array([position])), state.dual.energy),
        spent=frozen(np.array([spent])),
        held=frozen(np.array([held])),
        predicted=frozen(np.array([predicted])),
        opened=np.array([opened]),
    )
