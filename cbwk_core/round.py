"""Algorithm 1 for rows: many requests of one state, one request per lane, or one of each of several policies.

A state has one lane or as many lanes as there are rows. The formulas are in `rules/`; this module applies them to rows
in order: mask, weigh, draw; then count decisions, and replace predictions by outcomes.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cbwk_core import must_play, two_stage
from cbwk_core.arrays import Array, Integers, Mask, folded, frozen
from cbwk_core.configuration import Configuration
from cbwk_core.problem import ProblemRows
from cbwk_core.quoting import delay_of, paces_of, quote, rest_of
from cbwk_core.rules import dual, pace
from cbwk_core.rules.dear_arms import try_limits
from cbwk_core.rules.inverse_gap import (
    inverse_gap_weights,
    optimistic_weights,
    plausible_weights,
    played_share,
    sample,
    widths,
)
from cbwk_core.rules.lagrangian import direction, scores
from cbwk_core.rules.noise import in_ranges, summed_residuals
from cbwk_core.state import LEARNT, OPENED, ROUND, SETTLED, VALUE, Quote, State, columns
from cbwk_core.ticket import (
    ALL_EXCLUDED,
    BUDGET_EXHAUSTED,
    ENDED,
    NULL_ARM,
    POLICY,
    Choice,
    Thought,
    Ticket,
)

# Where it divides: a candidate whose features are all 0 has no leverage.
_LEVERAGE_MIN = 1e-300


class Request(NamedTuple):
    """n requests, and everything about them that does not depend on money."""

    x: Array  # (n, candidates, dimension), or (n, 1, dimension) for "per_arm"
    predictions: Array  # (n, candidates, 1 + d)
    leverage: Array | None  # (n, candidates), φᵀA⁻¹φ
    asked: Mask | None  # (n, candidates), neither excluded nor retired; None if that is all of them
    holds: Array  # (1 or n, candidates, d), in the caller's units
    uniforms: Array  # (n,)
    pace: Array | None = None  # (1 or n, d), what the caller allows a round to cost, in max costs
    prices: Array | None = None  # (1, d), what the caller adds to the prices, per max cost
    floor: must_play.Floor | None = None  # if the policy must play


class Lanes(NamedTuple):
    """The lanes that decide: one state of one policy, or the only lane of each of several policies of one shape."""

    policy: Configuration  # any of them: what they have in common
    problem: ProblemRows
    state: State
    quoted: Quote


# What n requests get: probabilities (n, candidates + 1), null last; arms (n,), NULL_ARM for null; reasons (n,); what
# takes the place of null (n,), if the policy must play.
Drawn = tuple[Array, Integers, tuple[str, ...], Integers | None]


def decide(
    policy: Configuration, problem: ProblemRows, state: State, gone: Array | float, request: Request, account: Array
) -> Choice:
    """The choice for n requests, of one state or of as many lanes; account (lanes, d): what is free to hold."""
    rows, lanes = len(request.uniforms), len(state.books)
    rounds = state.books[:, ROUND] if rows == lanes else state.books[:, ROUND] + np.arange(rows)
    quoted = quote(policy, problem, state, gone, request.prices)
    quoted = quoted if request.pace is None else quoted._replace(rho=np.minimum(quoted.rho, request.pace))
    weights, arm, reason, base = _draw(Lanes(policy, problem, state, quoted), request, rounds, account)
    resting = quoted.resting([each == BUDGET_EXHAUSTED for each in reason]) if policy.prices_rest else quoted
    source = partial(ticket, policy, resting, request, rounds, arm, base)
    thought = Thought(frozen(request.predictions), frozen(quoted.prices), frozen(quoted.gamma))
    probability = weights[np.arange(rows), arm]
    return Choice(frozen(arm), frozen(probability), frozen(weights), reason, source, thought)


def _draw(lanes: Lanes, request: Request, rounds: Array, account: Array) -> Drawn:
    """Draw all rows at once; where money may run out within them, one by one, each from what the last one left."""
    rows = len(rounds)
    plenty = rows == 0 or (request.floor is None and _is_plenty(lanes, account, rows))
    if plenty or len(account) == rows:
        return _draw_rows(lanes, request, rounds, None if plenty else account)
    # Whole numbers stay whole, unless holds are not: rounded down they would leave a part of what they take.
    whole = account.dtype.kind in "iu" and (request.holds == np.floor(request.holds)).all()
    left, drawn = account.astype(account.dtype if whole else np.float64), []
    for row in range(rows):
        one = _row(request, row)
        part = _draw_rows(lanes, one, rounds[row : row + 1], left)
        drawn.append(part)
        arm = part[1][0]
        if arm != NULL_ARM:
            left = left - one.holds[0, arm].astype(left.dtype)
    weights, arms, reasons, bases = zip(*drawn, strict=True)
    base = None if request.floor is None else np.concatenate(bases)
    return np.concatenate(weights), np.concatenate(arms), sum(reasons, ()), base


def _is_plenty(lanes: Lanes, account: Array, rows: int) -> bool:
    """Whether every row finds what it needs, whatever the other rows of its lane take."""
    needed = lanes.problem.dearest * (rows // len(account))
    return bool((account > needed).all() if lanes.policy.variant.exits else (account >= needed).all())


def affordable(policy: Configuration, problem: ProblemRows, account: Array, holds: Array) -> Mask | None:
    """Candidates whose hold is free in every resource, (rows, candidates); None if that is all of them.

    Where the preset exits, one resource with no more than a max cost left ends everything: spent >= B - 1.
    """
    if policy.variant.exits:
        alive = np.asarray((account > problem.dearest).all(axis=1))
        return None if alive.all() else alive[:, None]
    if (account >= problem.dearest).all():
        return None
    return np.asarray((account[:, None, :] >= holds).all(axis=2))


def _draw_rows(lanes: Lanes, request: Request, rounds: Array, account: Array | None) -> Drawn:
    """Mask first, then weigh, so that the probability is exact; account (1 or n, d): None if it pays everything."""
    values = scores(_charged(lanes, request), direction(lanes.quoted.prices))
    rows, candidates = values.shape
    ended = rounds >= lanes.problem.horizon
    payable = None if account is None else affordable(lanes.policy, lanes.problem, account, request.holds)
    allowed, base = None, None
    if request.asked is not None or payable is not None or ended.any() or request.floor is not None:
        allowed = np.ones((rows, candidates), dtype=bool)
        for mask in (request.asked, payable, ~ended[:, None]):
            if mask is not None:
                allowed[:, :-1] &= mask
    reasons = _reasons(allowed, request.asked, ended)
    if request.floor is not None and account is not None and allowed is not None:
        known = must_play.costs_of(lanes.state)
        base = must_play.masked(lanes.policy.problem, known, request.floor, allowed, request.holds, account, rounds)
    weights, best = _weights(lanes, request, values, allowed, base)
    two_stage.override(lanes.policy, lanes.state.stage, rounds, allowed, weights, best)
    arm = sample(weights, best, request.uniforms)
    arm[arm == candidates - 1] = NULL_ARM
    return weights, arm, reasons, None if base is None else base.candidate


def _charged(lanes: Lanes, request: Request) -> Array:
    """Predictions with costs that are at least what a decision blocks."""
    blocking = lanes.quoted.blocking
    if blocking is None:
        return request.predictions
    charged, holds = request.predictions.copy(), request.holds / lanes.problem.unit[:, None]
    charged[..., 1:] = pace.blocked(charged[..., 1:], holds, blocking[:, None])
    return charged


def _weights(
    lanes: Lanes, request: Request, values: Array, allowed: Mask | None, base: must_play.Base | None
) -> tuple[Array, Integers]:
    policy, problem, state, quoted = lanes
    if not policy.variant.value_prices:
        return inverse_gap_weights(values, quoted.gamma, allowed)
    limits = _try_limits(lanes, request, allowed, base) if policy.limits_dear_arms else None
    if request.leverage is not None and policy.tries_plausible_arms:
        rounds, plays = state.books[:, ROUND], state.books[:, OPENED] + state.books[:, SETTLED]
        weigh: Any = partial(plausible_weights, share=played_share(plays, rounds))
        if request.prices is not None and policy.is_optimistic_at_prices:
            weigh = optimistic_weights
        weights, best = weigh(
            values,
            request.leverage,
            quoted.gamma,
            quoted.noise,
            allowed,
            limits=limits,
            left=rest_of(problem, rounds),
            parameters=policy.parameters,
        )
    else:
        reach = None if request.leverage is None else widths(request.leverage, quoted.noise)
        weights, best = inverse_gap_weights(
            values, quoted.gamma, allowed, explore_null=False, widths=reach, limits=limits
        )
    share = pace.blind_share(state.books[:, OPENED], state.books[:, SETTLED], problem.budgets, problem.rho)
    if share is not None:
        weights[:, :-1] *= share[:, None]
        # Where the share is 1, rounding could give the null arm a small probability, even one below 0.
        weights[:, -1] = np.where(share < 1.0, 1.0 - weights[:, :-1].sum(axis=1), weights[:, -1])
        if base is not None:
            must_play.on_base(weights, base)
    return weights, best


def _try_limits(lanes: Lanes, request: Request, allowed: Mask | None, base: must_play.Base | None) -> Array | None:
    """`try_limits` of a state's own account; None if the oracle does not say how much it knows."""
    policy, problem, state, _ = lanes
    if request.leverage is None or (request.holds == request.holds[:, :1]).all():
        return None
    first = policy.regressor.spread(policy.first_oracle, policy.lifted(request.x))
    assert first is not None, "the oracle knows its leverage after outcomes, and so before"
    free = problem.budgets * problem.unit - state.spent - state.held if base is None else base.spare
    unknown = request.leverage / np.maximum(first, _LEVERAGE_MIN)
    asked = None if allowed is None else allowed[:, :-1]
    limits = try_limits(free, request.holds, asked, unknown, rest_of(problem, state.books[:, ROUND]))
    return limits if base is None else must_play.without_limit(limits, base)


def _reasons(allowed: Mask | None, asked: Mask | None, ended: Mask) -> tuple[str, ...]:
    if allowed is None:
        return (POLICY,) * len(ended)
    playable = np.asarray(allowed[:, :-1].any(axis=1))
    some_asked = np.ones_like(ended) if asked is None else np.asarray(asked.any(axis=1))
    reason = np.where(ended, ENDED, np.where(some_asked, np.where(playable, POLICY, BUDGET_EXHAUSTED), ALL_EXCLUDED))
    return tuple(reason.tolist())


def _row(request: Request, row: int) -> Request:
    rows: list[Any] = [None if each is None else each[row : row + 1] for each in request]
    holds = request.holds if len(request.holds) == 1 else request.holds[row : row + 1]
    return Request(*rows)._replace(holds=holds, floor=request.floor)


def ticket(
    policy: Configuration,
    quoted: Quote,
    request: Request,
    rounds: Array | Integers,
    arm: Integers,
    base: Integers | None = None,
) -> Ticket:
    """The ticket of n decisions for these arms; base (n,): what takes the place of null."""
    index, null = np.arange(len(arm)), arm == NULL_ARM
    predicted = request.predictions[index, arm]
    chosen = request.x[index, arm] if policy.model == "shared" else request.x[:, 0].copy()
    hold = request.holds[0, arm] if len(request.holds) == 1 else request.holds[index, arm]
    if null.any():
        predicted[null], chosen[null], hold[null] = 0.0, 0.0, 0.0
    costs = predicted[:, 1:]
    return Ticket.of(
        arm=arm,
        features=chosen,
        reward=predicted[:, 0],
        costs=np.maximum(costs, 0.0) if policy.variant.value_prices else costs,
        rho=quoted.rho,
        value=np.maximum(predicted[:, 0], 0.0) if base is None else must_play.beyond(request.predictions, base, arm),
        round=rounds,
        hold=hold,
        context=two_stage.context(policy, rounds, request.x),
    )


def commit(policy: Configuration, problem: ProblemRows, state: State, ticket: Ticket) -> State:
    """Count n decisions in order: rounds advance, prices move at predicted costs, holds are taken."""
    lanes = len(state.books)
    if not policy.variant.value_prices:
        for part in folded(len(ticket.arm), lanes):
            state = _commit_entropic(policy, state, ticket.rows(part))
        return state
    costs, rho, hold = (_by_lane(part, lanes) for part in (ticket.costs, ticket.rho, ticket.hold))
    steps = len(costs)
    where, books = columns(state.resources), state.books.copy()
    held, predicted = dual.accumulated(state.held, hold), dual.accumulated(state.predicted, costs)
    charged = costs
    if pace.is_late(delay_of(state), rest_of(problem, books[:, ROUND] + steps - 1.0)).any():
        rounds = books[:, ROUND] + np.arange(steps)[:, None]
        before = np.concatenate([state.held[None], held[:-1]]), np.concatenate([state.predicted[None], predicted[:-1]])
        _, blocking = paces_of(problem, state, *before, rounds)
        if blocking is not None:
            charged = pace.blocked(costs, hold / problem.unit, blocking)
    tight = dual.tightness(rho, problem.rho) if policy.paced else None
    tight = must_play.tightness(policy.problem, rho, state.floor) if policy.must_play else tight
    excess = (charged - rho) / problem.rho
    position, energy = dual.value_steps(state.position, state.energy, excess, tight, policy.energy_kept)
    books[:, ROUND] += steps
    books[:, OPENED] += _counted(ticket.arm != NULL_ARM, lanes)
    books[:, VALUE] = dual.accumulated(state.value, ticket.value.reshape(steps, lanes))[-1]
    books[:, where.position], books[:, where.energy] = position, energy
    books[:, where.held], books[:, where.predicted] = held[-1], predicted[-1]
    return state._replace(books=frozen(books))


def _commit_entropic(policy: Configuration, state: State, ticket: Ticket) -> State:
    """One row per lane, with the dual of the paper and Algorithm 2."""
    moved = _entropic_move(policy, state, ticket.costs - ticket.rho)
    return (
        state.replaced(log_weights=moved)
        .booked(
            round=1.0,
            opened=ticket.arm != NULL_ARM,
            value=ticket.value,
            held=ticket.hold,
            predicted=ticket.costs,
        )
        ._replace(stage=two_stage.committed(policy, state.stage, ticket))
    )


def release(
    policy: Configuration, state: State, ticket: Ticket, costs: Array, target: Array, weight: Array, settled: Mask
) -> State:
    """Close n decisions in order: holds and predictions go, costs (n, d) come, prices move by the difference.

    target (n, 1 + d): the outcomes in max costs. weight (n,): 1 where the oracle learns. settled (n,): the decisions
    that have an outcome; the others are cancelled.
    """
    lanes, unit = len(state.books), policy.problem.unit
    if not policy.variant.value_prices:
        for part in folded(len(ticket.arm), lanes):
            one = ticket.rows(part)
            moved = _entropic_move(policy, state, costs[part] / unit - one.costs)
            state = (
                state.replaced(log_weights=moved)
                .booked(
                    opened=-1.0 * (one.arm != NULL_ARM),
                    settled=settled[part],
                    learnt=weight[part],
                    spent=costs[part],
                    held=-one.hold,
                    predicted=-one.costs,
                )
                ._replace(stage=two_stage.returned(policy, state.stage, one, target[part], weight[part]))
            )
        return state
    paid, guess, hold = (_by_lane(part, lanes) for part in (costs, ticket.costs, ticket.hold))
    where, books = columns(state.resources), state.books.copy()
    difference = (paid / unit - guess) / policy.problem.rho
    waited = np.maximum(books[:, ROUND] - 1.0 - ticket.round.reshape(-1, lanes), 0.0) * settled.reshape(-1, lanes)
    tight = dual.tightness(_by_lane(ticket.rho, lanes), policy.problem.rho) if policy.paced else None
    if policy.must_play:
        floors = must_play.floors(policy.problem, state.floor, ticket.arm, paid, settled)
        tight = must_play.tightness(policy.problem, _by_lane(ticket.rho, lanes), floors[:-1])
        books[:, where.width :] = floors[-1]
    books[:, where.position] = dual.value_replacements(
        state.position, state.energy, difference, tight, in_own_root=policy.surprise_in_own_root
    )
    books[:, OPENED] -= _counted(ticket.arm != NULL_ARM, lanes)
    books[:, SETTLED] += _counted(settled, lanes)
    books[:, LEARNT] += _counted(weight, lanes)
    books[:, where.waited] += waited.sum(axis=0)[:, None]
    for name, added in ((where.spent, paid), (where.held, -hold), (where.predicted, -guess)):
        books[:, name] = dual.accumulated(books[:, name], added)[-1]
    return state._replace(books=frozen(books))


def correct(policy: Configuration, state: State, costs: Array) -> State:
    """Signed costs (n, d) on top of what was settled or cancelled, in order: prices move, oracles do not learn."""
    lanes = len(state.books)
    if not policy.variant.value_prices:
        for part in folded(len(costs), lanes):
            moved = _entropic_move(policy, state, costs[part] / policy.problem.unit)
            state = state.replaced(log_weights=moved).booked(spent=costs[part])
        return state
    by_lane = _by_lane(costs, lanes)
    difference = by_lane / policy.problem.unit / policy.problem.rho
    moved = dual.value_corrections(state.position, state.energy, difference)
    return state.replaced(position=moved, spent=dual.accumulated(state.spent, by_lane)[-1])


def _entropic_move(policy: Configuration, state: State, excess: Array) -> Array:
    terms = two_stage.terms(policy, state.stage)
    return dual.entropic_step(state.log_weights, excess, terms.scale, terms.dual_rate)


def teach(policy: Configuration, update: Any, state: State, ticket: Ticket, target: Array, weight: Array) -> State:
    """The oracle learns the rows that have weight, and how far the predictions on their tickets were off."""
    lanes = len(state.books)
    block = np.maximum(ticket.arm, 0) if policy.regressor.blocks > 1 else None
    oracle = update(state.oracle, policy.lifted(ticket.features), target, block, weight)
    surprise = target.copy()
    surprise[:, 0] -= ticket.reward
    surprise[:, 1:] -= ticket.costs
    if policy.ranges is not None:
        surprise = in_ranges(surprise, target, policy.ranges[ticket.arm])
    surprise *= weight[:, None]
    return State(state.books, oracle, summed_residuals(state.residuals, _by_lane(surprise, lanes)), state.stage)


def _by_lane(rows: Array, lanes: int) -> Array:
    """Rows (n, ...) as (steps, lanes, ...)."""
    return rows.reshape(-1, lanes, *rows.shape[1:])


def _counted(flags: Any, lanes: int) -> Array:
    """Σ of the rows of each lane, (lanes,)."""
    return np.asarray(flags.reshape(-1, lanes).sum(axis=0))
