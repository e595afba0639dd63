"""What a state asks of its next decision: prices, pace and learning rate."""

from __future__ import annotations

import numpy as np

from cbwk_core import two_stage
from cbwk_core.arrays import Array
from cbwk_core.configuration import Configuration
from cbwk_core.problem import ProblemRows
from cbwk_core.rules import dual, gamma, pace
from cbwk_core.rules.lagrangian import direction
from cbwk_core.rules.noise import noise
from cbwk_core.state import LEARNT, ROUND, SETTLED, Quote, State


def quote(
    policy: Configuration, problem: ProblemRows, state: State, gone: Array | float, added: Array | None = None
) -> Quote:
    """Prices, pace and learning rate of the next decision.

    gone: the outcomes that the oracle has forgotten. added: to the prices, per max cost.
    """
    if not policy.variant.value_prices:
        terms = two_stage.terms(policy, state.stage)
        prices = dual.entropic_prices(state.log_weights, state.stage.radius, terms.scale)
        prices = prices if added is None else prices + added
        return Quote(prices, terms.pace, terms.gamma, np.ones((len(prices), 1)))
    rounds, learnt = state.books[:, ROUND], state.books[:, LEARNT]
    rho, blocking = paces_of(problem, state, state.held, state.predicted, rounds)
    prices = dual.value_prices(state.position, state.value / np.maximum(rounds, 1.0), problem.rho)
    prices = prices if added is None else prices + added
    u = direction(prices)[:, None]
    variance = noise(state.residuals, learnt, u if policy.ranges is None else u * problem.ranges)
    if policy.gamma == "auto":
        mean = variance.mean(axis=1)
        rate = gamma.practical_gamma(policy.arms + 1, policy.parameters, rounds, mean, learnt, gone)
    else:
        rate = np.full((len(rho), 1), float(policy.gamma))
    return Quote(prices, rho, rate, variance, blocking)


def paces_of(
    problem: ProblemRows, state: State, held: Array, predicted: Array, rounds: Array
) -> tuple[Array, Array | None]:
    """`pace.paces` of a state's own account, with that much held and predicted, after that many rounds."""
    unspent, delay, rest = problem.budgets - state.spent / problem.unit, delay_of(state), rest_of(problem, rounds)
    return pace.paces(unspent, held / problem.unit, predicted, delay[:, None], rest[..., None])


def delay_of(state: State) -> Array:
    """The mean number of rounds between a decision and its outcome, (lanes,)."""
    return np.asarray(state.waited / np.maximum(state.books[:, SETTLED], 1.0))


def rest_of(problem: ProblemRows, rounds: Array) -> Array:
    """The rounds left, at least 1."""
    return np.maximum(problem.horizon - rounds, 1.0)
