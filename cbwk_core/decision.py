"""From predictions to an arm: mask, weigh, draw (Algorithm 1, lines 5-8).

For any number of requests, one state or one per lane; `plain.py` has the same rules for a single request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbwk_core import two_stage
from cbwk_core.arrays import Array, Integers
from cbwk_core.presets import BLIND_COUNT, UNPACED_BUDGET_MAX, elimination_damping
from cbwk_core.problem import ALL_EXCLUDED, BUDGET_EXHAUSTED, ENDED, NULL_ARM, POLICY
from cbwk_core.rules.inverse_gap import inverse_gap_weights, sample
from cbwk_core.rules.lagrangian import scores

if TYPE_CHECKING:
    from cbwk_core.policy import SquareCBwK
    from cbwk_core.state import Quote, State

Mask = NDArray[np.bool_]


class Request(NamedTuple):
    """n requests, as far as they can be worked out before money is looked at."""

    predictions: Array  # (n, candidates, 1 + d)
    leverage: Array | None  # (n, candidates), φᵀA⁻¹φ
    rounds: Integers  # (n,)
    asked: Mask | None  # (n, candidates), neither excluded nor retired; None when all are
    holds: Array  # (1 or n, candidates, d), in the caller's units
    uniforms: Array  # (n,)


class Drawn(NamedTuple):
    """What came out for n requests."""

    weights: Array  # (n, candidates + 1), null last
    arm: Integers  # (n,), NULL_ARM for null
    reason: tuple[str, ...]  # (n,)


def draw(policy: SquareCBwK, state: State, quote: Quote, request: Request, account: Array) -> Drawn:
    """Probabilities, arms and reasons; where money may run out inside a batch, what is free walks row by row."""
    rows = request.uniforms.shape[0]
    if account.shape[0] == rows or rows == 0 or _is_plenty(policy, account, rows):
        return draw_rows(policy, state, quote, request, affordable(policy, account, request.holds))
    # Whole numbers stay whole, unless holds are not: rounded down they would leave something of what they take.
    whole = account.dtype.kind in "iu" and (request.holds == np.floor(request.holds)).all()
    left, parts = account.astype(account.dtype if whole else np.float64), []
    for row in range(rows):
        one = _row(request, row)
        part = draw_rows(policy, state, quote, one, affordable(policy, left, one.holds))
        parts.append(part)
        if part.arm[0] != NULL_ARM:
            left = left - one.holds[0, part.arm[0]].astype(left.dtype)
    return Drawn(
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.arm for part in parts]),
        tuple(part.reason[0] for part in parts),
    )


def _is_plenty(policy: SquareCBwK, account: Array, rows: int) -> bool:
    """Whether no row of a batch can find less than it needs, whatever those before it take."""
    needed = rows * policy.problem.unit
    return bool((account > needed).all() if policy.rules.exits else (account >= needed).all())


def affordable(policy: SquareCBwK, account: Array, holds: Array) -> Mask | None:
    """Candidates whose hold is free in every resource, (rows, candidates); None when all are.

    Where the preset exits, one resource with no more than a max cost left ends everything: spent >= B - 1.
    """
    unit = policy.problem.unit
    if policy.rules.exits:
        alive = np.asarray((account > unit).all(axis=1))
        return None if alive.all() else alive[:, None]
    if (account >= unit).all():
        return None
    return np.asarray((account[:, None, :] >= holds).all(axis=2))


def draw_rows(policy: SquareCBwK, state: State, quote: Quote, request: Request, payable: Mask | None) -> Drawn:
    """Mask first, then weight, so that the probability is exact."""
    values = scores(_charged(policy, quote, request), quote.prices, quote.rho)
    rows, columns = values.shape
    ended = request.rounds >= policy.horizon
    allowed = None
    if request.asked is not None or payable is not None or ended.any():
        allowed = np.ones((rows, columns), dtype=bool)
        for mask in (request.asked, payable, ~ended[:, None]):
            if mask is not None:
                allowed[:, :-1] &= mask
    weights, best = _weights(policy, state, quote, request, values, allowed)
    two_stage.override(policy, state.stage, request.rounds, allowed, weights, best)
    arm = sample(weights, best, request.uniforms)
    arm[arm == columns - 1] = NULL_ARM
    return Drawn(weights, arm, _reasons(allowed, request.asked, ended))


def _charged(policy: SquareCBwK, quote: Quote, request: Request) -> Array:
    """Predictions with costs that are at least what a decision blocks (pace.py)."""
    if quote.blocking is None:
        return request.predictions
    charged = request.predictions.copy()
    least = request.holds / policy.problem.unit * quote.blocking[:, None, :]
    np.maximum(charged[..., 1:], least, out=charged[..., 1:])
    return charged


def _weights(
    policy: SquareCBwK, state: State, quote: Quote, request: Request, values: Array, allowed: Mask | None
) -> tuple[Array, Integers]:
    if not policy.rules.value_prices:
        return inverse_gap_weights(values, quote.gamma, allowed)
    if allowed is not None:
        values = np.where(allowed, values, -np.inf)
    damping = None
    if request.leverage is not None:
        damping = elimination_damping(values, request.leverage, quote.noise)
    weights, best = inverse_gap_weights(values, quote.gamma, allowed, explore_null=False, damping=damping)
    blind = is_blind(policy, state)
    if blind.any():
        share = np.where(blind, np.minimum(1.0, policy.problem.rho.min()), 1.0)
        weights[:, :-1] *= share[:, None]
        weights[:, -1] = 1.0 - weights[:, :-1].sum(axis=1)
    return weights, best


def is_blind(policy: SquareCBwK, state: State) -> Mask:
    """Many decisions are out and next to nothing has come back, (lanes,): nothing is known of the costs."""
    many = policy.problem.budgets.min() > UNPACED_BUDGET_MAX
    return np.asarray((state.opened >= BLIND_COUNT) & (state.settled < BLIND_COUNT) & many)


def _reasons(allowed: Mask | None, asked: Mask | None, ended: Mask) -> tuple[str, ...]:
    if allowed is None:
        return (POLICY,) * len(ended)
    playable = np.asarray(allowed[:, :-1].any(axis=1))
    some_asked = np.ones_like(ended) if asked is None else np.asarray(asked.any(axis=1))
    reason = np.where(ended, ENDED, np.where(some_asked, np.where(playable, POLICY, BUDGET_EXHAUSTED), ALL_EXCLUDED))
    return tuple(reason.tolist())


def _row(request: Request, row: int) -> Request:
    part = slice(row, row + 1)
    return Request(
        predictions=request.predictions[part],
        leverage=None if request.leverage is None else request.leverage[part],
        rounds=request.rounds[part],
        asked=None if request.asked is None else request.asked[part],
        holds=request.holds if request.holds.shape[0] == 1 else request.holds[part],
        uniforms=request.uniforms[part],
    )
