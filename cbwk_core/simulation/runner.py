"""Runs of a policy in an environment, one lane per seed, all lanes in step.

A lane's rounds depend on its seed alone: outcomes of all arms and the policy's uniforms come from streams of their own,
so policies meet the same rounds, and a lane's result does not depend on which lanes run beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.arrays import Array, Integers, finite
from cbwk_core.baselines.policy import Learn, Policy, State
from cbwk_core.simulation.delays import Delays
from cbwk_core.simulation.environment import Environment
from cbwk_core.ticket import BUDGET_EXHAUSTED, NULL_ARM, Ticket

# Rounds drawn at once. Fifty arms in fifty dimensions make 1.3 MB a lane.
CHUNK_ROUNDS = 64
# Points of a curve: more than a picture shows.
CURVE_POINTS_MAX = 200


class Runs(NamedTuple):
    """What came of the runs, lane by lane."""

    reward: Array  # (lanes,), Σ of the mean rewards of the arms played, as the paper counts it
    realised: Array  # (lanes,), Σ of the rewards received
    spent: Array  # (lanes, d), Σ of the costs incurred
    overspend: Array  # (lanes, d), by how much that exceeds the budget
    plays: Integers  # (lanes, arms + 1), null last
    curve_rounds: Integers  # (points,), at most 200
    curve: Array  # (lanes, points), `reward` after so many rounds

    @property
    def played(self) -> Integers:
        """(lanes,), rounds in which a real arm was played."""
        return np.asarray(self.plays[:, :-1].sum(axis=1))

    def regret(self, optimum_total: float) -> Array:
        """(lanes,), T·OPT - reward."""
        return optimum_total - self.reward


class _Streams(NamedTuple):
    """A lane's randomness."""

    outcomes: np.random.Generator
    uniforms: np.random.Generator
    missing: np.random.Generator

    @classmethod
    def of(cls, seed: int) -> _Streams:
        return cls(*(np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)))


class _Chunk(NamedTuple):
    """Some rounds of all lanes; the column of the null arm, last, is 0."""

    features: Array  # (rounds, lanes, ...)
    mean_reward: Array  # (rounds, lanes, arms + 1)
    reward: Array  # (rounds, lanes, arms + 1)
    costs: Array  # (rounds, lanes, arms + 1, d)
    uniforms: Array  # (rounds, lanes)
    reported: NDArray[np.bool_] | None  # (rounds, lanes), None when all are


class _Outcome(NamedTuple):
    """What is settled when its round comes."""

    ticket: Ticket
    rewards: Array
    costs: Array
    learn: Learn


class _Waiting:
    """Outcomes not yet known, by the round in which they will be."""

    def __init__(self, delay: Integers | None) -> None:
        self._delay = delay
        self._due: dict[int, list[_Outcome]] = {}

    def add(self, now: int, outcome: _Outcome) -> None:
        due = now if self._delay is None else now + int(self._delay[now])
        self._due.setdefault(due, []).append(outcome)

    def known(self, now: int) -> list[_Outcome]:
        return self._due.pop(now, [])

    def rest(self) -> Iterator[_Outcome]:
        for due in sorted(self._due):
            yield from self._due.pop(due)

    def __bool__(self) -> bool:
        return bool(self._due)


def run(
    policy: Policy[State],
    environment: Environment,
    *,
    horizon: int,
    budget: ArrayLike,
    seeds: Sequence[int],
    delays: Delays | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Runs:
    """Drive the policy for `horizon` rounds in one lane per seed; `budget` only says what counts as overspending.

    `progress` is told (rounds done, horizon) now and then. Once no lane can pay for anything and nothing is
    outstanding, the rest can only be null and is not played out.

    >>> from cbwk_core.baselines import LinUCB
    >>> from cbwk_core.problem import Problem
    >>> from cbwk_core.simulation import PaperEnvironment
    >>> problem = Problem.of(arms=3, dimension=5, resources=4, horizon=200, budget=50)
    >>> environment = PaperEnvironment(m=5, arms=3)
    >>> runs = run(LinUCB(problem=problem), environment, horizon=200, budget=50, seeds=[1, 2])
    >>> runs.plays.sum(axis=1), runs.curve.shape
    (array([200, 200]), (2, 200))
    """
    _check_fit(policy, environment, horizon, seeds)
    granted = finite("budget", np.broadcast_to(np.asarray(budget), (policy.resources,)), (policy.resources,))
    streams = [_Streams.of(seed) for seed in seeds]
    state = policy.init(len(seeds))
    tally = _Tally(lanes=len(seeds), arms=policy.arms, resources=policy.resources, horizon=horizon)
    waiting = _Waiting(None if delays is None else delays.per_round(horizon))
    for start in range(0, horizon, CHUNK_ROUNDS):
        rounds = min(CHUNK_ROUNDS, horizon - start)
        chunk = _drawn(environment, streams, start, rounds, 0.0 if delays is None else delays.missing)
        state, arms = _played(policy, state, chunk, start, waiting)
        tally.add(chunk, arms)
        if progress is not None:
            progress(start + len(arms), horizon)
        if len(arms) < rounds:
            break
    for outcome in waiting.rest():
        state = policy.settle(state, *outcome)
    return tally.runs(granted)


def _check_fit(policy: Policy[Any], environment: Environment, horizon: int, seeds: Sequence[int]) -> None:
    for name in ("arms", "resources", "model"):
        asked, given = getattr(policy, name), getattr(environment, name)
        if asked != given:
            raise ValueError(f"{name} must be alike, got {asked!r} in the policy and {given!r} in the environment")
    if horizon < 1 or not seeds:
        raise ValueError(f"there must be at least one round and one seed, got {horizon} and {len(seeds)}")


def _drawn(environment: Environment, streams: Sequence[_Streams], start: int, rounds: int, missing: float) -> _Chunk:
    draws = [environment.draw(lane.outcomes, start, rounds) for lane in streams]
    reported = None
    if missing > 0:
        reported = np.stack([lane.missing.random(rounds) for lane in streams], axis=1) >= missing
    return _Chunk(
        features=_in_step([draw.features for draw in draws]),
        mean_reward=_with_null([draw.mean_reward for draw in draws]),
        reward=_with_null([draw.reward for draw in draws]),
        costs=_with_null([draw.costs for draw in draws]),
        uniforms=np.stack([lane.uniforms.random(rounds) for lane in streams], axis=1),
        reported=reported,
    )


def _in_step(lanes: Sequence[Array]) -> Array:
    """Lanes of (rounds, ...) stacked to (rounds, lanes, ...), each round in one piece of memory.

    np.stack would keep the order of its arguments, and that of a broadcast context is scattered.
    """
    stacked = np.empty((lanes[0].shape[0], len(lanes), *lanes[0].shape[1:]))
    for lane, values in enumerate(lanes):
        stacked[:, lane] = values
    return stacked


def _with_null(lanes: Sequence[Array]) -> Array:
    """Lanes of (rounds, arms, ...) stacked to (rounds, lanes, arms + 1, ...) with zeros for the null arm."""
    rounds, arms, *rest = lanes[0].shape
    stacked = np.zeros((rounds, len(lanes), arms + 1, *rest))
    for lane, values in enumerate(lanes):
        stacked[:, lane, :arms] = values
    return stacked


def _played(
    policy: Policy[State], state: State, chunk: _Chunk, start: int, waiting: _Waiting
) -> tuple[State, Integers]:
    """The state after the chunk, and the arms (rounds, lanes): fewer rounds when nothing can happen any more."""
    rounds, lanes = chunk.uniforms.shape
    lane = np.arange(lanes)
    arms = np.full((rounds, lanes), NULL_ARM)
    for row in range(rounds):
        choice = policy.decide(state, chunk.features[row], chunk.uniforms[row])
        if not waiting and all(reason == BUDGET_EXHAUSTED for reason in choice.reason):
            return state, arms[:row]
        state = policy.commit(state, choice.ticket)
        arms[row] = choice.arm
        learn = True if chunk.reported is None else chunk.reported[row]
        reward, costs = chunk.reward[row, lane, choice.arm], chunk.costs[row, lane, choice.arm]
        waiting.add(start + row, _Outcome(choice.ticket, reward, costs, learn))
        for outcome in waiting.known(start + row):
            state = policy.settle(state, *outcome)
        if policy.refresh_due(state):
            state = policy.refresh(state)
    return state, arms


@dataclass
class _Tally:
    """The sums a run leaves behind, added to chunk by chunk."""

    lanes: int
    arms: int
    resources: int
    horizon: int
    rounds: int = 0
    reward: Array = field(init=False)
    realised: Array = field(init=False)
    spent: Array = field(init=False)
    plays: Integers = field(init=False)
    curve_rounds: Integers = field(init=False)
    curve: Array = field(init=False)

    def __post_init__(self) -> None:
        self.reward, self.realised = np.zeros(self.lanes), np.zeros(self.lanes)
        self.spent = np.zeros((self.lanes, self.resources))
        self.plays = np.zeros((self.lanes, self.arms + 1), dtype=np.int64)
        points = min(CURVE_POINTS_MAX, self.horizon)
        self.curve_rounds = np.unique(np.linspace(1, self.horizon, points).round().astype(np.int64))
        self.curve = np.zeros((self.lanes, self.curve_rounds.size))

    def add(self, chunk: _Chunk, arms: Integers) -> None:
        """Count the first len(arms) rounds of a chunk."""
        rounds = arms.shape[0]
        if not rounds:
            return
        index = np.arange(rounds)[:, None], np.arange(self.lanes), arms
        cumulated = self.reward + chunk.mean_reward[index].cumsum(axis=0)
        due = (self.curve_rounds > self.rounds) & (self.curve_rounds <= self.rounds + rounds)
        self.curve[:, due] = cumulated[self.curve_rounds[due] - self.rounds - 1].T
        self.reward = cumulated[-1]
        self.realised = self.realised + chunk.reward[index].sum(axis=0)
        self.spent = self.spent + chunk.costs[index].sum(axis=0)
        np.add.at(self.plays, (index[1], arms), 1)
        self.rounds += rounds

    def runs(self, budget: Array) -> Runs:
        """The result; rounds not played out were null."""
        self.plays[:, NULL_ARM] += self.horizon - self.rounds
        self.curve[:, self.curve_rounds > self.rounds] = self.reward[:, None]
        return Runs(
            reward=self.reward,
            realised=self.realised,
            spent=self.spent,
            overspend=np.maximum(self.spent - budget, 0.0),
            plays=self.plays,
            curve_rounds=self.curve_rounds,
            curve=self.curve,
        )
