"""Re-solving: certainty equivalence. The prices solve the program of recent contexts at the predictions of today."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core import must_play
from cbwk_core.arrays import Array, Integers, Mask, frozen
from cbwk_core.baselines.priced import PricedLearner, PricedState, View
from cbwk_core.ticket import Choice, Ticket

# The program is solved after each of the first rounds, then less and less often, at least SOLVES times.
SOLVES = 200
ITERATIONS = 6
TEMPERATURE_MIN = 1e-9
# Steps that a Newton iteration tries along its direction; the best one counts.
STEP_LENGTHS = (1.0, 0.25, 0.0625)


class Program(NamedTuple):
    """The prices of the last solution and the contexts of the next one."""

    relative: Array  # (lanes, d), λ·ρ_t: the share of the value that each resource has
    prices: Array  # (lanes, d), λ per max cost
    temperature: Array  # (lanes,), τ of the last solution
    contexts: tuple[Array, ...]  # the last features, (lanes, arms or 1, dimension) each
    solved: int  # the round after which the program was solved
    rho: Array | None = None  # (lanes, d), the pace of the last round, if the policy is paced


@dataclass(frozen=True, kw_only=True)
class Resolving(PricedLearner[Program]):
    """Plays the solution of max Σ p·r̂ with Σ p·ĉ <= ρ_t over the last `window` contexts, solved again and again.

    A program over one context, or a few, has a solution that mixes arms of equal worth, which prices alone do not give.
    So the program carries an entropy: its solution is p_a ∝ exp((r̂_a - λᵀĉ_a)/τ), null included, with τ = `temperature`
    times the mean best reward, and its prices minimise λᵀρ + τ·mean log(1 + Σ_a exp((r̂_a - λᵀĉ_a)/τ)), a smooth convex
    function. Optimism of `width` standard deviations of the Lagrangian takes the place of forced exploration in play;
    prices follow from the predictions alone.

    >>> from cbwk_core.problem import Problem
    >>> policy = Resolving(problem=Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=50))
    >>> policy.decide(policy.init(), np.eye(2)[None], [0.5]).probabilities.round(3)
    array([[0.5, 0.5, 0. ]])
    """

    window: int = 64
    temperature: float = 0.02
    width: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1:
            raise ValueError(f"window must be at least 1, got {self.window}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be positive, got {self.temperature}")
        if not self.width >= 0:
            raise ValueError(f"width must not be negative, got {self.width}")

    def first_dual(self, lanes: int) -> Program:
        """Return prices of 0 and no contexts."""
        zeros = frozen(np.zeros((lanes, self.resources)))
        return Program(zeros, zeros, frozen(np.full(lanes, TEMPERATURE_MIN)), (), 0)

    def prices(self, state: PricedState[Program], rho: Array | None = None) -> Array:
        """Return the prices of the last solution: (lanes, d)."""
        del rho
        return state.dual.prices

    def decide(
        self,
        state: PricedState[Program],
        features: ArrayLike,
        uniforms: ArrayLike,
        free: Array | None = None,
        pace: Array | None = None,
        prices: ArrayLike | None = None,
    ) -> Choice:
        """Return one arm per lane; the ticket keeps the context for the next program."""
        choice = super().decide(state, features, uniforms, free, pace, prices)
        context = np.asarray(features, dtype=np.float64)
        context = context[:, None, :] if self.model == "per_arm" else context
        return choice._replace(ticket_source=choice.ticket._replace(context=frozen(context.copy())))

    def moved(self, before: Program, excess: Array, ticket: Ticket, tight: Array | None) -> Program:
        """Return the program with the context of this round; the prices do not move."""
        del excess, tight
        if ticket.context is None:
            return before
        rho = None
        if self.paced:  # the pace is 0 while nothing can be paid
            rho = np.where(ticket.rho > 0.0, ticket.rho, ticket.rho if before.rho is None else before.rho)
        return before._replace(contexts=(*before.contexts, ticket.context)[-self.window :], rho=rho)

    def replaced(self, before: Program, difference: Array, tight: Array | None) -> Program:
        """Return the program unchanged: the next solution sees what is left."""
        del difference, tight
        return before

    def refresh_due(self, state: object) -> bool:
        """Return whether enough rounds have passed since the last solution."""
        assert isinstance(state, PricedState)
        rounds, program = int(state.account.round[0]), state.dual
        pause = max(1, min(rounds // 10, self.problem.horizon // SOLVES))
        return bool(program.contexts) and rounds - program.solved >= pause

    def refresh(  # type: ignore[override]
        self, state: PricedState[Program], prices: ArrayLike = 0.0
    ) -> PricedState[Program]:
        """Return the state with the prices that solve the program now.

        prices: what the caller adds to them in `decide`; the program counts rewards less these prices.
        """
        contexts = np.stack(state.dual.contexts)  # (window, lanes, arms or 1, m)
        window, lanes = contexts.shape[:2]
        x = np.ones((window * lanes, contexts.shape[2], contexts.shape[3] + 1))
        x[..., :-1] = contexts.reshape(window * lanes, *contexts.shape[2:])
        predictions = self.predict(state, x).reshape(window, lanes, self.arms, -1)
        added = np.broadcast_to(np.asarray(prices) * self.problem.unit, (lanes, self.resources))
        predictions[..., 0] -= np.matvec(predictions[..., 1:], added)
        rho = np.maximum(self.paces(state)[0] if state.dual.rho is None else state.dual.rho, 1e-12)
        floor = self.problem.floor_arm
        if floor is not None:  # what the other arms earn and cost beyond it
            rho = must_play.beyond_floor(self.problem, rho, state.books.floor)
            predictions = np.delete(predictions - predictions[:, :, floor, None], floor, axis=2)
        rewards, costs = predictions[..., 0], predictions[..., 1:] / rho[:, None, :]
        best = rewards.max(axis=2, initial=0.0).mean(axis=0)
        temperature = np.maximum(self.temperature * best, TEMPERATURE_MIN)
        relative = solved_prices(rewards, costs, state.dual.relative, temperature)
        program = state.dual._replace(
            relative=frozen(relative),
            prices=frozen(relative / rho),
            temperature=frozen(temperature),
            solved=int(state.account.round[0]),
        )
        return state._replace(dual=program)

    def weigh(self, state: PricedState[Program], view: View, allowed: Mask, uniforms: Array) -> tuple[Array, Integers]:
        """Return the probabilities of the program's solution at the optimistic scores."""
        del uniforms
        optimistic = view.scores.copy()
        optimistic[:, :-1] += self.width * view.deviations
        masked = np.where(allowed, optimistic, -np.inf)
        best: Integers = masked.argmax(axis=1)
        top = masked.max(axis=1, keepdims=True)
        weights = np.exp((masked - top) / state.dual.temperature[:, None])
        return weights / weights.sum(axis=1, keepdims=True), best


def solved_prices(rewards: Array, costs: Array, start: Array, temperature: Array) -> Array:
    """Return q >= 0, (lanes, d), that minimises Σ_j q_j + τ·mean log(1 + Σ_a exp((r_a - qᵀc_a)/τ)) in each lane.

    rewards (n, lanes, arms) and costs (n, lanes, arms, d), costs as multiples of the pace; τ (lanes,). Projected Newton
    iterations from `start`; q_j never exceeds the largest reward, because q*ᵀ1 is at most the optimum.

    >>> r, c = np.array([[[1.0, 0.4]]]), np.array([[[[2.0], [0.4]]]])  # a pace of ½: q* = 0.375 = 0.75·½
    >>> solved_prices(r, c, start=np.zeros((1, 1)), temperature=np.array([0.001])).round(2)
    array([[0.38]])
    """
    ceiling = np.maximum(rewards.max(axis=(0, 2)), 1e-9)[:, None]
    q = np.minimum(start, ceiling)
    value, gradient, curvature = _smoothed_dual(rewards, costs, q, temperature)
    identity = np.eye(q.shape[1])
    for _ in range(ITERATIONS):
        free = ~((q <= 0.0) & (gradient > 0.0)) & ~((q >= ceiling) & (gradient < 0.0))
        both = free[:, :, None] & free[:, None, :]
        system = np.where(both, curvature, 0.0) + identity / ceiling[:, :, None]
        step = np.linalg.solve(system, (gradient * free)[..., None])[..., 0]
        for length in STEP_LENGTHS:
            tried = np.clip(q - length * step, 0.0, ceiling)
            result = _smoothed_dual(rewards, costs, tried, temperature)
            better = result[0] < value
            q = np.where(better[:, None], tried, q)
            value = np.where(better, result[0], value)
            gradient = np.where(better[:, None], result[1], gradient)
            curvature = np.where(better[:, None, None], result[2], curvature)
    return np.asarray(q)


def _smoothed_dual(rewards: Array, costs: Array, q: Array, temperature: Array) -> tuple[Array, Array, Array]:
    """Return the value, the gradient and the Hessian of the smoothed dual: (lanes,), (lanes, d), (lanes, d, d)."""
    worth = (rewards - np.matvec(costs, q[None])) / temperature[:, None]
    top = np.maximum(worth.max(axis=2, keepdims=True), 0.0)
    weights = np.exp(worth - top)
    total = weights.sum(axis=2, keepdims=True) + np.exp(-top)
    probabilities = weights / total
    value = q.sum(axis=1) + temperature * (top + np.log(total))[..., 0].mean(axis=0)
    weighted = costs * probabilities[..., None]
    spend = weighted.sum(axis=2)  # (n, lanes, d)
    second = np.matmul(weighted.swapaxes(2, 3), costs) - spend[..., :, None] * spend[..., None, :]
    return value, 1.0 - spend.mean(axis=0), second.mean(axis=0) / temperature[:, None, None]
