"""What if the budgets had been others: the campaign's policy is flown again over the rounds of its own log.

Importance weights cannot answer this: with other budgets all later rounds change, and the weight of a flight is the
product of those of its rounds. So the flight is played out instead, with a model in place of the world. That is honest
only with its error beside it: the same flight with the budgets the campaign had is held against what really happened.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.evaluation.advance import advanced
from cbwk_core.evaluation.along import check_fit, next_batch
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.marginal import marginal_values
from cbwk_core.evaluation.outcome_model import CHUNK_ROWS, Fitted, OutcomeModel, cross_fit, fold_of
from cbwk_core.evaluation.parallel import Progress, in_parallel
from cbwk_core.policy import SquareCBwK
from cbwk_core.ticket import NULL_ARM

ASSUMPTION = (
    "Requests come as they came, whatever is answered. Where the policy plays the arm that was played, the outcome is "
    "the logged one; elsewhere it is the outcome model's prediction with the error it made in some round of that arm. "
    "How far that can be trusted is shown by the same flight with the budgets there were, beside what happened."
)
# Points of a curve: more than a picture shows.
POINTS_MAX = 200


class Flights(NamedTuple):
    """Runs of the policy over the log."""

    rounds: Integers  # (points,), rounds flown
    reward: Array  # (runs, points), earned until then
    spent: Array  # (runs, points, d), in the caller's units
    prices: Array  # (runs, points, d), reward per unit of the resource: what one more unit was worth
    matched: Array  # (runs,), share of rounds with the arm that was played in the log
    plays: Integers  # (runs, points), rounds with a real arm until then


@dataclass(frozen=True)
class WhatIf:
    """The answer."""

    changed: Flights  # with the budgets asked about
    control: Flights  # with the budgets there were
    actual_reward: Array  # (points,), in the log, at the same rounds
    actual_spent: Array  # (points, d)
    assumption: str = ASSUMPTION


class _World(NamedTuple):
    """The log, and what stands in for the rest of the world."""

    log: Log
    fitted: Fitted
    errors: Array  # (played rounds, 1 + d), outcome minus prediction, sorted by arm
    starts: Integers  # (arms + 1,), where the errors of each arm begin
    fold: Integers  # (n,)


def what_if_budgets(
    log: Log,
    policy: SquareCBwK,
    *,
    budget: ArrayLike,
    rng: np.random.Generator,
    runs: int = 4,
    model: OutcomeModel | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> WhatIf:
    """Fly the campaign's policy over its log again, with these budgets and with its own.

    The log's `offered` arms are what requests asked for; what can be paid for is worked out anew. Runs differ in the
    uniforms and errors drawn, which are the same with either budget. progress: told (flights done, flights).

    >>> n = 400
    >>> log = Log.of(features=np.ones((n, 1)), eligible=np.ones((n, 1), dtype=bool), arm=[0] * n, propensity=[1.0] * n,
    ...              reward=np.full(n, 0.5), costs=np.full((n, 1), 0.25))
    >>> policy = SquareCBwK(arms=1, dimension=1, resources=1, horizon=n, budget=200, model="per_arm")
    >>> found = what_if_budgets(log, policy, budget=50, rng=np.random.default_rng(1), runs=1)
    >>> bool(found.changed.reward[0, -1] < 110), round(found.control.reward[0, -1]), round(found.actual_reward[-1])
    (True, 200, 200)
    """
    check_fit(policy, log)
    if isinstance(runs, bool) or not isinstance(runs, int | np.integer) or runs < 1:
        raise ValueError(f"runs must be a whole number of at least 1, got {runs!r}")
    other = replace(policy, budget=budget)
    chosen = OutcomeModel() if model is None else model
    fitted = cross_fit(log, chosen, np.append(1.0, policy.problem.unit), jobs=jobs)
    world = _world(log, fitted)
    streams = rng.spawn(runs)
    flights = [(world, flyer, deepcopy(stream)) for flyer in (other, policy) for stream in streams]
    flown = in_parallel(_fly, flights, jobs=jobs, prefer="processes", per_worker=1, progress=progress)
    rounds = _points(log.rounds)
    return WhatIf(
        changed=_together(rounds, flown[:runs]),
        control=_together(rounds, flown[runs:]),
        actual_reward=frozen(log.reward.cumsum()[rounds - 1]),
        actual_spent=frozen(log.costs.cumsum(axis=0)[rounds - 1]),
    )


def _points(rounds: int) -> Integers:
    return np.unique(np.linspace(1, rounds, min(POINTS_MAX, rounds)).round().astype(np.int64))


def _world(log: Log, fitted: Fitted) -> _World:
    played = np.flatnonzero(log.played)
    order = played[np.argsort(log.arm[played], kind="stable")]
    fold = fold_of(log.rounds, len(fitted.states))
    errors = log.outcomes[order]
    for start in range(0, order.size, CHUNK_ROWS):
        part = order[start : start + CHUNK_ROWS]
        predicted = fitted.predict(log.features[part], fold[part])[np.arange(part.size), log.arm[part]]
        errors[start : start + CHUNK_ROWS] -= predicted
    return _World(log, fitted, errors, np.searchsorted(log.arm[order], np.arange(log.arms + 1)), fold)


class _Flown(NamedTuple):
    """One flight, round by round."""

    outcomes: Array  # (n, 1 + d)
    prices: Array  # (n, d)
    arm: Integers  # (n,)
    matched: float


def _fly(world: _World, policy: SquareCBwK, rng: np.random.Generator) -> _Flown:
    log = world.log
    uniforms, luck = rng.random(log.rounds), rng.random(log.rounds)
    outcomes, prices = np.zeros((log.rounds, 1 + log.resources)), np.zeros((log.rounds, log.resources))
    arm, flown = np.full(log.rounds, NULL_ARM), 0
    state = policy.init()
    rows = next_batch(policy, np.asarray(policy.budget), 0, log.rounds)
    while rows is not None:
        barred = ~log.offered[rows]
        choice = policy.decide(state, log.features[rows], uniforms[rows], exclude=barred if barred.any() else None)
        prices[rows] = marginal_values(policy, state)
        arm[rows] = choice.arm
        outcomes[rows] = _outcomes(world, rows, choice.arm, luck[rows])
        state = advanced(policy, state, choice.ticket, outcomes[rows])
        if policy.refresh_due(state):
            state = policy.refresh(state)
        flown = rows.stop
        rows = next_batch(policy, np.asarray(policy.budget) - state.spent[0], flown, log.rounds)
    prices[flown:] = marginal_values(policy, state)
    return _Flown(outcomes, prices, arm, float((arm == log.arm).mean()))


def _outcomes(world: _World, rows: slice, arm: Integers, luck: Array) -> Array:
    """Logged where the arm is the logged one; elsewhere predicted, with the error of a round drawn for that arm."""
    log = world.log
    outcomes = log.outcomes_of(rows)
    other = np.flatnonzero((arm != log.arm[rows]) & (arm != NULL_ARM))
    outcomes[arm == NULL_ARM] = 0.0
    if other.size:
        predicted = world.fitted.predict(log.features[rows][other], world.fold[rows][other])
        outcomes[other] = predicted[np.arange(other.size), arm[other]]
        first, count = world.starts[arm[other]], np.diff(world.starts)[arm[other]]
        known = count > 0
        drawn = first[known] + (luck[other][known] * count[known]).astype(np.int64)
        outcomes[other[known]] += world.errors[drawn]
    return outcomes


def _together(rounds: Integers, flown: list[_Flown]) -> Flights:
    cumulated = np.stack([flight.outcomes.cumsum(axis=0)[rounds - 1] for flight in flown])
    return Flights(
        rounds=frozen(rounds),
        reward=frozen(cumulated[:, :, 0].copy()),
        spent=frozen(cumulated[:, :, 1:].copy()),
        prices=frozen(np.stack([flight.prices[rounds - 1] for flight in flown])),
        matched=frozen(np.array([flight.matched for flight in flown])),
        plays=frozen(np.stack([(flight.arm != NULL_ARM).cumsum()[rounds - 1] for flight in flown])),
    )
