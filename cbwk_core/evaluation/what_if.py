"""Simulates the policy of a campaign with other budgets, on the rounds of its own log.

Importance weights cannot answer this question. Other budgets change all later rounds, and the weight of a flight is the
product of the weights of its rounds. A simulation with an outcome model replaces them. Its error is visible: it also
simulates a control flight with the budgets of the campaign, which can be compared to the log.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.evaluation.batches import check_fit, next_batch
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.outcome_model import CHUNK_ROWS, Fitted, OutcomeModel, cross_fit, fold_of
from cbwk_core.evaluation.parallel import Progress, in_parallel
from cbwk_core.evaluation.settlement import commit_and_settle
from cbwk_core.policy import SquareCBwK
from cbwk_core.state import State
from cbwk_core.ticket import NULL_ARM

# What a reader of the flights must know. The service shows this text with the result.
ASSUMPTION = (
    "Assumptions: (1) Requests, and the arms that they offer, do not depend on earlier decisions. "
    "(2) If the policy plays the logged arm, the outcome is the logged one. "
    "(3) Otherwise the outcome is the prediction of a linear model of the whole log plus the error of the model in a "
    "random round of that arm, cut to what is possible: the errors of an arm are alike in all contexts and at all "
    "times, and an arm without outcomes has the model's prediction. "
    "(4) The outcomes that the log lacks are like those that it has. "
    "(5) Every outcome is known before the next decisions, and no decision expires or is voided. "
    "(6) The policy starts untaught, in one stage, plays for the rounds of the log without hold-out or shadow mode, "
    "decides a few rounds at once (a quarter of the root of the rounds before) and does not watch for changes there. "
    "To judge the error of all this, compare the flight that has the original budgets to what happened."
)
# The maximal number of points of a curve: a chart shows no more.
POINTS_MAX = 200


class Flights(NamedTuple):
    """Simulated runs of a policy on the log. A point is a number of rounds since the start.

    >>> flights = Flights(rounds=np.array([1, 2]), reward=np.array([[0.5, 1.0]]), spent=np.array([[[0.2], [0.4]]]),
    ...                   prices=np.ones((1, 2, 1)), matched=np.array([1.0]), plays=np.array([[1, 2]]))
    >>> flights.reward[:, -1].mean()
    np.float64(1.0)
    """

    rounds: Integers  # (points,)
    reward: Array  # (runs, points), total until then
    spent: Array  # (runs, points, d), total until then, in the caller's units
    prices: Array  # (runs, points, d), `marginal_values` at that time
    matched: Array  # (runs,), share of rounds in which the policy plays the logged arm
    plays: Integers  # (runs, points), rounds with a real arm until then


@dataclass(frozen=True)
class WhatIf:
    """The result of `what_if_budgets`.

    >>> log = Log.of(features=np.ones((9, 1)), eligible=np.ones((9, 1), dtype=bool), arm=[0] * 9, propensity=[1.0] * 9,
    ...              reward=np.ones(9), costs=np.full((9, 1), 0.5))
    >>> policy = SquareCBwK(arms=1, dimension=1, resources=1, horizon=9, budget=9, model="per_arm")
    >>> found = what_if_budgets(log, policy, budget=0.5, rng=np.random.default_rng(1), runs=1)
    >>> found.changed.reward[0, -1], found.control.reward[0, -1], found.actual_reward[-1]
    (np.float64(0.0), np.float64(9.0), np.float64(9.0))
    >>> found.assumption == ASSUMPTION
    True
    """

    changed: Flights  # with the new budgets
    control: Flights  # with the budgets of the campaign
    actual_reward: Array  # (points,), of the log, at the points of the flights
    actual_spent: Array  # (points, d)
    assumption: str = ASSUMPTION


class _World(NamedTuple):
    """The log and the outcome model that replaces the world for other arms."""

    log: Log
    fitted: Fitted
    errors: Array  # (rounds with a real arm, 1 + d), outcome - prediction, sorted by arm
    ranges: Array  # (2, 1 + d), what an outcome can be: [0, 1] or [0, max cost], and whatever was logged
    starts: Integers  # (arms + 1,), the first row of each arm in `errors`
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
    """Simulate the policy of a campaign on its log, with new budgets and with its own.

    The policy chooses among the `offered` arms of the log that it can pay. Runs differ in their random draws; both
    budgets use the same draws. jobs: see `in_parallel`. progress: called with (flights done, flights).

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
    changed = replace(policy, budget=budget)
    configuration = OutcomeModel() if model is None else model
    fitted = cross_fit(log, configuration, np.append(1.0, policy.problem.unit), jobs=jobs)
    world = _world(log, fitted, policy.problem.unit)
    streams = rng.spawn(runs)
    arguments = [(world, simulated, deepcopy(stream)) for simulated in (changed, policy) for stream in streams]
    flights = in_parallel(_fly, arguments, jobs=jobs, prefer="processes", per_worker=1, progress=progress)
    rounds = _points(log.rounds)
    return WhatIf(
        changed=_flights(rounds, flights[:runs]),
        control=_flights(rounds, flights[runs:]),
        actual_reward=frozen(log.reward.cumsum()[rounds - 1]),
        actual_spent=frozen(log.costs.cumsum(axis=0)[rounds - 1]),
    )


def marginal_values(policy: SquareCBwK, state: State) -> Array:
    """Return the value of one more unit of each budget, in reward per unit of the resource: (lanes, d).

    The prices λ of the state are per max cost. T·OPT(B) grows by λ with B (the multiplier of eq-OPT-static), so one
    more unit of budget j earns λ_j / max cost_j. The value is 0 if the budget is not scarce.

    >>> policy = SquareCBwK(arms=1, dimension=1, resources=1, horizon=100, budget=50.0, max_cost=2.0, preset="authors")
    >>> state = policy.init()
    >>> policy.quote(state).prices, marginal_values(policy, state)
    (array([[2.]]), array([[1.]]))
    """
    return policy.quote(state).prices / policy.problem.unit


def _points(rounds: int) -> Integers:
    return np.unique(np.linspace(1, rounds, min(POINTS_MAX, rounds)).round().astype(np.int64))


def _world(log: Log, fitted: Fitted, max_cost: Array) -> _World:
    played = np.flatnonzero(log.played)
    order = played[np.argsort(log.arm[played], kind="stable")]
    fold = fold_of(log.rounds, len(fitted.states))
    errors = log.outcomes[order]
    for start in range(0, order.size, CHUNK_ROWS):
        chunk = order[start : start + CHUNK_ROWS]
        predicted = fitted.predict(log.features[chunk], fold[chunk])[np.arange(chunk.size), log.arm[chunk]]
        errors[start : start + CHUNK_ROWS] -= predicted
    logged = log.outcomes
    ranges = np.stack([np.minimum(logged.min(axis=0), 0.0), np.maximum(logged.max(axis=0), np.append(1.0, max_cost))])
    return _World(log, fitted, errors, ranges, np.searchsorted(log.arm[order], np.arange(log.arms + 1)), fold)


class _Flight(NamedTuple):
    """One flight, round by round."""

    outcomes: Array  # (n, 1 + d)
    prices: Array  # (n, d)
    arm: Integers  # (n,)
    matched: float


def _fly(world: _World, policy: SquareCBwK, rng: np.random.Generator) -> _Flight:
    """Simulate one flight of the policy."""
    log = world.log
    uniforms, error_uniforms = rng.random(log.rounds), rng.random(log.rounds)
    outcomes, prices = np.zeros((log.rounds, 1 + log.resources)), np.zeros((log.rounds, log.resources))
    arm, done = np.full(log.rounds, NULL_ARM), 0
    state = policy.init()
    rows = next_batch(policy, state, 0, log.rounds)
    while rows is not None:
        barred = ~log.offered[rows]
        choice = policy.decide(state, log.features[rows], uniforms[rows], exclude=barred if barred.any() else None)
        prices[rows] = marginal_values(policy, state)
        arm[rows] = choice.arm
        outcomes[rows] = _outcomes(world, rows, choice.arm, error_uniforms[rows])
        state = commit_and_settle(policy, state, choice.ticket, outcomes[rows])
        if policy.refresh_due(state):
            state = policy.refresh(state)
        done = rows.stop
        rows = next_batch(policy, state, done, log.rounds)
    prices[done:] = marginal_values(policy, state)
    return _Flight(outcomes, prices, arm, float((arm == log.arm).mean()))


def _outcomes(world: _World, rows: slice, arm: Integers, error_uniforms: Array) -> Array:
    """Return the logged outcomes of logged arms; for other arms the prediction plus the error of a drawn round, cut."""
    log = world.log
    outcomes = log.outcomes_of(rows)
    other = np.flatnonzero((arm != log.arm[rows]) & (arm != NULL_ARM))
    outcomes[arm == NULL_ARM] = 0.0
    if other.size:
        predicted = world.fitted.predict(log.features[rows][other], world.fold[rows][other])
        outcomes[other] = predicted[np.arange(other.size), arm[other]]
        first, count = world.starts[arm[other]], np.diff(world.starts)[arm[other]]
        known = count > 0
        drawn = first[known] + (error_uniforms[other][known] * count[known]).astype(np.int64)
        outcomes[other[known]] += world.errors[drawn]
        outcomes[other] = np.clip(outcomes[other], *world.ranges)
    return outcomes


def _flights(rounds: Integers, flights: list[_Flight]) -> Flights:
    """Return the totals of the flights at these numbers of rounds."""
    cumulated = np.stack([flight.outcomes.cumsum(axis=0)[rounds - 1] for flight in flights])
    return Flights(
        rounds=frozen(rounds),
        reward=frozen(cumulated[:, :, 0].copy()),
        spent=frozen(cumulated[:, :, 1:].copy()),
        prices=frozen(np.stack([flight.prices[rounds - 1] for flight in flights])),
        matched=frozen(np.array([flight.matched for flight in flights])),
        plays=frozen(np.stack([(flight.arm != NULL_ARM).cumsum()[rounds - 1] for flight in flights])),
    )
