"""Runs of a policy in an environment: one lane per seed, and all lanes play the same round at the same time.

The rounds of a lane depend on its seed alone. The outcomes of all arms and the uniforms of the policy come from
separate random streams, so all policies get the same rounds, and a lane's result does not depend on the other lanes.
All lanes may share one environment, or every lane has an environment of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.arrays import Array, Integers, finite
from cbwk_core.baselines.policy import Policy, State
from cbwk_core.baselines.throttle import nulled
from cbwk_core.simulation.delays import Delays
from cbwk_core.simulation.dual_regret import lagrangian_sums
from cbwk_core.simulation.environment import Environment
from cbwk_core.simulation.ledger import Ledger
from cbwk_core.simulation.pending import Outcome, PendingOutcomes, pending_outcomes
from cbwk_core.ticket import BUDGET_EXHAUSTED, NULL_ARM, Ticket

# Rounds per draw. Fifty arms in fifty dimensions take 1.3 MB per lane.
CHUNK_ROUNDS = 64
# Points of a reward curve: more than a plot can show.
CURVE_POINTS_MAX = 200


class Runs(NamedTuple):
    """The results of all lanes.

    >>> from cbwk_core.baselines import EpsilonGreedy
    >>> from cbwk_core.problem import Problem
    >>> from cbwk_core.simulation import LinearEnvironment
    >>> environment = LinearEnvironment(arms=2, dimension=3, resources=1)
    >>> problem = Problem.of(arms=2, dimension=3, resources=1, horizon=100, budget=20)
    >>> runs = run(EpsilonGreedy(problem=problem), environment, horizon=100, budget=20, seeds=range(4))
    >>> runs.regret(100 * environment.optimum(0.2)).shape, bool((runs.spent <= 20).all())
    ((4,), True)
    """

    reward: Array  # (lanes,), sum of the mean rewards of the played arms, as in the paper's regret
    realised: Array  # (lanes,), sum of the realised rewards
    spent: Array  # (lanes, d), sum of the realised costs
    overspend: Array  # (lanes, d), spend above the budget, 0 if there is none
    plays: Integers  # (lanes, arms + 1), rounds per arm, the null arm last
    curve_rounds: Integers  # (points,), round numbers, at most CURVE_POINTS_MAX of them
    curve: Array  # (lanes, points), `reward` after these rounds
    gap: Array  # (lanes,), sum of the Lagrangian gaps at the prices of the run, 0 without prices (see `dual_regret.py`)
    bound: Array  # (lanes,), sum of the best Lagrangians at these prices, 0 without prices

    @property
    def played(self) -> Integers:
        """(lanes,), number of rounds with a real arm."""
        return np.asarray(self.plays[:, :-1].sum(axis=1))

    def regret(self, optimum_total: float) -> Array:
        """Return T·OPT - reward, (lanes,)."""
        return optimum_total - self.reward


class _Streams(NamedTuple):
    """The random streams of one lane."""

    outcomes: np.random.Generator
    uniforms: np.random.Generator
    missing: np.random.Generator

    @classmethod
    def of(cls, seed: int) -> _Streams:
        return cls(*(np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)))


class _Chunk(NamedTuple):
    """Consecutive rounds of all lanes. The null arm is the last column and all its outcomes are 0."""

    features: Array  # (rounds, lanes, ...)
    mean_reward: Array  # (rounds, lanes, arms + 1)
    mean_costs: Array  # (rounds, lanes, arms + 1, d)
    reward: Array  # (rounds, lanes, arms + 1)
    costs: Array  # (rounds, lanes, arms + 1, d)
    uniforms: Array  # (rounds, lanes)
    reported: NDArray[np.bool_] | None  # (rounds, lanes), None if all are reported


def run(
    policy: Policy[State],
    environment: Environment | Sequence[Environment],
    *,
    horizon: int,
    budget: ArrayLike,
    seeds: Sequence[int],
    delays: Delays | None = None,
    burst: int = 1,
    prices: ArrayLike | None = None,
    ledger: Ledger | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Runs:
    """Run the policy for `horizon` rounds in one lane per seed and return the results.

    environment: one for all lanes, or one per lane; these must have the same sizes and the same model.
    budget: used only to compute the overspend and, in bursts, what is free. The policy has its own budget.
    burst: the number of consecutive rounds that are decided from one state and committed together. An arm whose hold no
        longer fits, because of earlier decisions of its burst, becomes null, as a ledger in front of the policy does.
    prices: per unit of cost, (d,), (lanes, d) or (horizon, lanes, d). With prices the results have `gap` and `bound`.
    ledger: what is free before each round, and more arguments of `decide`; only without delays and bursts.
    progress: called with (rounds played, horizon) after every chunk of rounds.
    The run stops early when the budget of every lane is exhausted and no outcome is pending: all remaining rounds would
    play the null arm, and the result counts them as such.

    >>> from cbwk_core.baselines import LinUCB
    >>> from cbwk_core.problem import Problem
    >>> from cbwk_core.simulation import PaperEnvironment
    >>> problem = Problem.of(arms=3, dimension=5, resources=4, horizon=200, budget=50)
    >>> environment = PaperEnvironment(m=5, arms=3)
    >>> runs = run(LinUCB(problem=problem), environment, horizon=200, budget=50, seeds=[1, 2])
    >>> runs.plays.sum(axis=1), runs.curve.shape
    (array([200, 200]), (2, 200))
    """
    environments = environment if isinstance(environment, Sequence) else [environment] * len(seeds)
    _check_fit(policy, environments, horizon, seeds)
    budget_of_each = finite("budget", np.broadcast_to(np.asarray(budget), (policy.resources,)), (policy.resources,))
    streams = [_Streams.of(seed) for seed in seeds]
    state = policy.init(len(seeds))
    price_of_each = None
    if prices is not None:
        by_round = (horizon,) if np.ndim(prices) == 3 else ()
        shape = (*by_round, len(seeds), policy.resources)
        price_of_each = finite("prices", np.broadcast_to(prices, shape), shape)
    totals = _Totals(len(seeds), policy.arms, policy.resources, horizon, price_of_each)
    if ledger is not None and ((delays is not None and delays.rounds) or burst != 1):
        raise ValueError("a ledger is for runs without delays and bursts")
    burst_ledger = None if burst == 1 else _Ledger(budget_of_each, totals)
    pending = pending_outcomes(policy, delays, horizon)
    is_over, chunk_rounds = False, CHUNK_ROUNDS if burst == 1 else burst
    for start in range(0, horizon, chunk_rounds):
        rounds = min(chunk_rounds, horizon - start)
        chunk = _draw_chunk(environments, streams, start, rounds, 0.0 if delays is None else delays.missing)
        if is_over:
            arms = np.full((0, len(seeds)), NULL_ARM)
        elif burst_ledger is None:
            state, arms = _play_chunk(policy, state, chunk, start, pending, ledger)
        else:
            state, arms = _play_burst(policy, state, chunk, burst_ledger)
        totals.add(chunk, arms)
        is_over = len(arms) < rounds
        if progress is not None:
            progress(start + len(arms), horizon)
        if is_over and price_of_each is None:  # the bound needs the contexts of all rounds
            break
    for outcome in pending.pop_all():
        state = pending.settle(policy, state, outcome)
    return totals.runs(budget_of_each)


def _check_fit(policy: Policy[Any], environments: Sequence[Environment], horizon: int, seeds: Sequence[int]) -> None:
    if len(environments) != len(seeds):
        raise ValueError(f"there must be one environment per seed, got {len(environments)} and {len(seeds)}")
    for environment in environments:
        for name in ("arms", "resources", "model"):
            ours, theirs = getattr(policy, name), getattr(environment, name)
            if ours != theirs:
                raise ValueError(f"{name} must be equal, got {ours!r} in the policy and {theirs!r} in the environment")
    if horizon < 1 or not seeds:
        raise ValueError(f"there must be at least one round and one seed, got {horizon} and {len(seeds)}")


def _draw_chunk(
    environments: Sequence[Environment], streams: Sequence[_Streams], start: int, rounds: int, missing: float
) -> _Chunk:
    pairs = zip(environments, streams, strict=True)
    draws = [environment.draw(lane.outcomes, start, rounds) for environment, lane in pairs]
    reported = None
    if missing > 0:
        reported = np.stack([lane.missing.random(rounds) for lane in streams], axis=1) >= missing
    return _Chunk(
        features=_stack_lanes([draw.features for draw in draws]),
        mean_reward=_stack_lanes_with_null([draw.mean_reward for draw in draws]),
        mean_costs=_stack_lanes_with_null([draw.mean_costs for draw in draws]),
        reward=_stack_lanes_with_null([draw.reward for draw in draws]),
        costs=_stack_lanes_with_null([draw.costs for draw in draws]),
        uniforms=np.stack([lane.uniforms.random(rounds) for lane in streams], axis=1),
        reported=reported,
    )


def _stack_lanes(lanes: Sequence[Array]) -> Array:
    """Stack lanes of shape (rounds, ...) to (rounds, lanes, ...), every round contiguous in memory.

    np.stack keeps the memory order of its arguments, and the rounds of a broadcast context are not contiguous.
    """
    stacked = np.empty((lanes[0].shape[0], len(lanes), *lanes[0].shape[1:]))
    for lane, values in enumerate(lanes):
        stacked[:, lane] = values
    return stacked


def _stack_lanes_with_null(lanes: Sequence[Array]) -> Array:
    """Stack lanes of shape (rounds, arms, ...) to (rounds, lanes, arms + 1, ...) with zeros for the null arm."""
    rounds, arms, *rest = lanes[0].shape
    stacked = np.zeros((rounds, len(lanes), arms + 1, *rest))
    for lane, values in enumerate(lanes):
        stacked[:, lane, :arms] = values
    return stacked


def _play_chunk(
    policy: Policy[Any],
    state: State,
    chunk: _Chunk,
    start: int,
    pending: PendingOutcomes,
    ledger: Ledger | None,
) -> tuple[State, Integers]:
    """Return the state after the chunk and the played arms, (rounds, lanes), fewer rounds if the run stops early."""
    rounds, lanes = chunk.uniforms.shape
    lane = np.arange(lanes)
    arms = np.full((rounds, lanes), NULL_ARM)
    for row in range(rounds):
        terms = {} if ledger is None else ledger.offer(start + row)
        choice = policy.decide(state, chunk.features[row], chunk.uniforms[row], **terms)
        if ledger is None and not pending and all(reason == BUDGET_EXHAUSTED for reason in choice.reason):
            return state, arms[:row]
        state = policy.commit(state, choice.ticket)
        arms[row] = choice.arm
        learn = True if chunk.reported is None else chunk.reported[row]
        reward, costs = chunk.reward[row, lane, choice.arm], chunk.costs[row, lane, choice.arm]
        if ledger is not None:
            ledger.book(start + row, costs)
        state = pending.add(policy, state, start + row, Outcome(choice.ticket, reward, costs, learn))
        for outcome in pending.pop_known(start + row):
            state = pending.settle(policy, state, outcome)
        if policy.refresh_due(state):
            state = policy.refresh(state)
    return state, arms


def _play_burst(policy: Policy[State], state: State, chunk: _Chunk, ledger: _Ledger) -> tuple[State, Integers]:
    """Return the state after a burst and the played arms: all rounds are decided from one state, then settled."""
    rounds, lanes = chunk.uniforms.shape
    lane, free = np.arange(lanes), ledger.free()
    arms = np.full((rounds, lanes), NULL_ARM)
    tickets: list[Ticket] = []
    for row in range(rounds):
        choice = policy.decide(state, chunk.features[row], chunk.uniforms[row])
        if row == 0 and all(reason == BUDGET_EXHAUSTED for reason in choice.reason):
            return state, arms[:0]
        refused = np.asarray((choice.ticket.hold > free).any(axis=1))
        ticket = nulled(choice, refused).ticket if refused.any() else choice.ticket
        free -= ticket.hold
        arms[row] = ticket.arm
        tickets.append(_with_round(ticket, ticket.round + row))
    state = policy.commit(state, _joined(tickets))
    for row in range(rounds):
        learn = True if chunk.reported is None else chunk.reported[row]
        reward, costs = chunk.reward[row, lane, arms[row]], chunk.costs[row, lane, arms[row]]
        state = policy.settle(state, tickets[row], reward, costs, learn)
    if policy.refresh_due(state):
        state = policy.refresh(state)
    return state, arms


def _with_round(ticket: Ticket, rounds: Integers) -> Ticket:
    return Ticket.of(
        arm=ticket.arm,
        features=ticket.features,
        reward=ticket.reward,
        costs=ticket.costs,
        rho=ticket.rho,
        value=ticket.value,
        round=rounds,
        hold=ticket.hold,
        context=ticket.context,
    )


def _joined(tickets: Sequence[Ticket]) -> Ticket:
    """Return one ticket of all rows, in order."""
    return Ticket(
        np.concatenate([ticket.arm for ticket in tickets]),
        np.concatenate([ticket.features for ticket in tickets]),
        np.concatenate([ticket.numbers for ticket in tickets]),
        None if tickets[0].context is None else np.concatenate([np.asarray(ticket.context) for ticket in tickets]),
    )


@dataclass
class _Totals:
    """The sums of a run. `add` adds one chunk."""

    lanes: int
    arms: int
    resources: int
    horizon: int
    prices: Array | None = None  # (lanes, d) or (horizon, lanes, d), per unit of cost
    rounds: int = 0
    drawn: int = 0  # rounds added, with those after an early stop
    reward: Array = field(init=False)
    realised: Array = field(init=False)
    spent: Array = field(init=False)
    plays: Integers = field(init=False)
    curve_rounds: Integers = field(init=False)
    curve: Array = field(init=False)
    gap: Array = field(init=False)
    bound: Array = field(init=False)

    def __post_init__(self) -> None:
        self.reward, self.realised = np.zeros(self.lanes), np.zeros(self.lanes)
        self.spent = np.zeros((self.lanes, self.resources))
        self.plays = np.zeros((self.lanes, self.arms + 1), dtype=np.int64)
        points = min(CURVE_POINTS_MAX, self.horizon)
        self.curve_rounds = np.unique(np.linspace(1, self.horizon, points).round().astype(np.int64))
        self.curve = np.zeros((self.lanes, self.curve_rounds.size))
        self.gap, self.bound = np.zeros(self.lanes), np.zeros(self.lanes)

    def add(self, chunk: _Chunk, arms: Integers) -> None:
        """Add the first len(arms) rounds of a chunk; the other rounds count in the bound and as null."""
        rounds = arms.shape[0]
        if self.prices is not None:
            at = slice(self.drawn, self.drawn + len(chunk.uniforms))
            prices = self.prices[at] if self.prices.ndim == 3 else self.prices
            gap, bound = lagrangian_sums(chunk.mean_reward, chunk.mean_costs, prices, arms)
            self.drawn = at.stop
            self.gap, self.bound = self.gap + gap, self.bound + bound
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
        """Return the results. Rounds after an early stop count as null."""
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
            gap=self.gap,
            bound=self.bound,
        )


@dataclass(frozen=True)
class _Ledger:
    """What is free to hold when no decision is open."""

    budget: Array  # (d,)
    totals: _Totals

    def free(self) -> Array:
        return np.asarray(self.budget - self.totals.spent)
