"""Must play: every request gets an arm as long as one can be paid (`SquareCBwK(must_play=True, floor_arm=…)`).

What the floor arm needs for the rounds left stays in reserve (`rules/reserve.py`). Other arms are masked where their
hold would eat it, before anything is weighed, so the probability is exact. A request always keeps one arm, its base:
the floor arm, or the cheapest arm that it can pay if the floor arm is excluded or too dear; the reserve does not mask
the base. Without the floor arm the base is the only arm left. Null is allowed where there is no base.

The base takes the place of null: in the program of `static_optimum.py` with Σ_a p_a = 1 in place of at most 1, every
arm is worth what it earns and costs beyond the floor, and the budget per round is what the floor leaves, ρ_t - m̂. Hence
the value of a decision counts beyond its base, a step of a price is that of a policy with the pace ρ_t - m̂, dear arms
are tried as often as what is spare bears, and where little is known the policy plays the base instead of null.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, Mask, finite
from cbwk_core.configuration import Configuration
from cbwk_core.presets import SURPLUS_SHARE_MIN
from cbwk_core.problem import Problem
from cbwk_core.quoting import delay_of
from cbwk_core.rules import dual
from cbwk_core.rules.reserve import cheapest, moments, reserve
from cbwk_core.state import State
from cbwk_core.ticket import NULL_ARM


class Floor(NamedTuple):
    """What a request says about the floor arm."""

    candidate: int  # the floor arm among the candidates, -1 if none of them is
    kept: Array | None  # (1, d), what must stay free for it in place of the policy's own reserve


class Costs(NamedTuple):
    """What a policy knows of costs, for one row per lane or for all."""

    floor: Array  # (lanes, 1 + 2d), as `State.floor`
    held: Array  # (lanes, d), in the caller's units
    predicted: Array  # (lanes, d), of what is held, in max costs
    delay: Array  # (lanes,), mean number of rounds until an outcome


class Base(NamedTuple):
    """What takes the place of null for n requests."""

    candidate: Integers  # (n,), the last column where nothing can be paid
    spare: Array  # (n, d), what other arms may hold, in the caller's units


def checked_floor(policy: Configuration, kept: ArrayLike | None, floor: int | None, candidates: int) -> Floor | None:
    """What `decide` was given, checked; the floor arm is itself where the candidates are the arms."""
    if not policy.must_play:
        if floor is not None or kept is not None:
            raise ValueError(f"kept and floor need a policy with must_play, got {kept!r} and {floor!r}")
        return None
    assert policy.floor_arm is not None
    if floor is None:
        floor = policy.floor_arm if candidates == policy.arms else -1
    if isinstance(floor, bool) or floor not in range(-1, candidates):
        raise ValueError(f"floor must be one of {candidates} candidates or -1, got {floor!r}")
    return Floor(floor, None if kept is None else finite("kept", kept, (policy.resources,))[None])


def base_of(policy: Configuration, rows: int, candidates: int) -> Integers:
    """The floor arm for each row, (rows,); the last column where the candidates are not the arms."""
    return np.full(rows, policy.floor_arm if candidates == policy.arms else candidates)


def checked_rounds(policy: Configuration, rounds: float, lanes: int) -> Array:
    """That many rounds for each lane, (lanes, 1)."""
    if not policy.must_play:
        raise ValueError("a reserve needs a policy with must_play")
    if isinstance(rounds, bool) or not isinstance(rounds, int | float | np.number) or not 0 <= rounds < np.inf:
        raise ValueError(f"rounds must be a number of at least 0, got {rounds!r}")
    return np.full((lanes, 1), float(rounds))


def costs_of(state: State) -> Costs:
    """What a state knows of costs."""
    return Costs(state.floor, state.held, state.predicted, delay_of(state))


def _known(problem: Problem, floor: Array) -> tuple[tuple[Array, Array, Array], Array]:
    """The moments of the floor's cost from the columns `State.floor` (..., 1 + 2d), and its hold, in max costs."""
    d = problem.resources
    hold = problem.hold[problem.floor_arm] / problem.unit
    return moments(floor[..., :1], floor[..., 1 : 1 + d], floor[..., 1 + d :], hold), hold


def needed(problem: Problem, costs: Costs, rounds: Array) -> Array:
    """`reserve` for that many rounds (lanes, 1), in the caller's units: (lanes, d)."""
    known, hold = _known(problem, costs.floor)
    return reserve(rounds, costs.delay[:, None], known, hold) * problem.unit


def _spare(problem: Problem, costs: Costs, floor: Floor, free: Array, rounds: Array | Integers) -> Array:
    """What arms other than the base may hold: (n, d), for requests in these rounds (n,) and with that free (n, d).

    It is what is free, and what comes back of open decisions in time, less the reserve for the rounds after this one.
    The next request must find what the floor holds, even if the rest is on its way back.
    """
    rest = np.maximum(problem.horizon - rounds - 1.0, 0.0)[:, None]
    next_hold = (rest > 0.0) * problem.hold[problem.floor_arm]
    if floor.kept is None:
        returning = np.maximum(costs.held - costs.predicted * problem.unit, 0.0)
        back = returning * np.minimum(1.0, rest / np.maximum(costs.delay[:, None], 1.0))
        kept = needed(problem, costs, rest) - back
    else:
        kept = floor.kept
    return np.asarray(free - np.maximum(kept, next_hold))


def masked(
    problem: Problem, costs: Costs, floor: Floor, allowed: Mask, holds: Array, free: Array, rounds: Array | Integers
) -> Base:
    """Mask what would eat the reserve, and null where any arm is left; allowed (n, c + 1) changes in place.

    allowed: neither excluded nor too dear. holds (1 or n, c, d), free (n, d), rounds (n,).
    """
    rows, real = np.arange(len(allowed)), allowed[:, :-1]
    spare = _spare(problem, costs, floor, free, rounds)
    base, some = cheapest(free, holds, real), real.any(axis=1)
    has_floor = np.zeros(len(allowed), dtype=bool)
    if floor.candidate >= 0:
        has_floor = real[:, floor.candidate].copy()
        base = np.where(has_floor, floor.candidate, base)
    real &= (holds <= spare[:, None, :]).all(axis=2) & has_floor[:, None]
    real[rows, base] |= some
    allowed[:, -1] = ~some
    return Base(np.where(some, base, real.shape[1]), spare)


def without_limit(limits: Array, base: Base) -> Array:
    """The limits (n, c) of `dear_arms.py`; the base has none, whatever it costs."""
    rows = np.flatnonzero(base.candidate < limits.shape[1])
    limits = np.broadcast_to(limits, (len(base.candidate), limits.shape[1])).copy()
    limits[rows, base.candidate[rows]] = 1.0
    return limits


def on_base(weights: Array, base: Base) -> None:
    """Give what null would get to the base, in place: weights (n, c + 1)."""
    rows, null = np.arange(len(weights)), weights[:, -1].copy()
    weights[:, -1] = 0.0
    weights[rows, base.candidate] += null


def beyond(predictions: Array, base: Integers, arm: Integers) -> Array:
    """What n decisions are predicted to earn beyond their base, at least 0 and 0 for null: (n,)."""
    rows, none = np.arange(len(arm)), base == predictions.shape[1]
    earned = predictions[rows, arm, 0] - np.where(none, 0.0, predictions[rows, np.where(none, 0, base), 0])
    return np.where(arm == NULL_ARM, 0.0, np.maximum(earned, 0.0))


def beyond_floor(problem: Problem, rho: Array, floor: Array) -> Array:
    """What the floor leaves of the pace ρ_t, (..., lanes, d), at `State.floor` (..., lanes, 1 + 2d), above 0."""
    (_, mean, _), _ = _known(problem, floor)
    return np.maximum(rho - mean, SURPLUS_SHARE_MIN * problem.rho)


def tightness(problem: Problem, rho: Array, floor: Array) -> Array:
    """`dual.tightness` of what the floor leaves of the pace: (n, lanes, d)."""
    return dual.tightness(beyond_floor(problem, rho, floor), problem.rho)


def floors(problem: Problem, floor: Array, arm: Integers, paid: Array, settled: Mask) -> Array:
    """`State.floor` before each of n settlements in order and after the last: (n + 1, lanes, 1 + 2d).

    floor: before the first; arm (n·lanes,), paid (n, lanes, d) in the caller's units, settled (n·lanes,).
    """
    counts = ((arm == problem.floor_arm) & settled).reshape(-1, len(floor), 1).astype(np.float64)
    cost = paid / problem.unit
    added = np.concatenate([np.ones_like(counts), cost, cost * cost], axis=2) * counts
    return np.concatenate([floor[None], dual.accumulated(floor, added)])
