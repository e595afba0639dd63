"""Requests, trained policies and the timed calls. Everything is prepared before the clock starts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np

from cbwk_core import CategoryFeature, ContextEncoder, HashFeature, NumberFeature, SquareCBwK, State, Ticket
from cbwk_core.arrays import Array, Integers
from cbwk_core.features.feature import Feature
from tests.benchmarks.clock import Contender, each

RESOURCES = 3
BATCH_ROWS = 256
# Neither ends while the clock runs, and costs, ½ on average, do not use up the pace: decisions for the null arm, which
# teach nothing and are therefore cheap to settle, would flatter us.
HORIZON = 10**9
BUDGET = 0.75 * HORIZON


@dataclass(frozen=True)
class Size:
    """One problem size: `model` is "shared" (features per arm) or "per_arm" (one context for all arms)."""

    model: str
    arms: int
    dimension: int

    def policy(self) -> SquareCBwK:
        """Return a policy of this size, with three costs."""
        return SquareCBwK(
            arms=self.arms,
            dimension=self.dimension,
            resources=RESOURCES,
            horizon=HORIZON,
            budget=BUDGET,
            model=self.model,
        )

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one request's features."""
        return (self.dimension,) if self.model == "per_arm" else (self.arms, self.dimension)


@dataclass(frozen=True)
class Round:
    """One request, an arm, and its reward and costs."""

    features: Array  # (1, *row_shape)
    uniforms: Array  # (1,)
    arm: Integers  # (1,)
    reward: Array  # (1,)
    costs: Array  # (1, resources)


def make_rounds(size: Size, count: int, rng: np.random.Generator) -> list[Round]:
    """Return different rounds."""
    return [
        Round(
            features=rng.random((1, *size.row_shape)),
            uniforms=rng.random(1),
            arm=rng.integers(size.arms, size=1),
            reward=rng.random(1),
            costs=rng.random((1, RESOURCES)),
        )
        for _ in range(count)
    ]


def warm_state(policy: SquareCBwK, rounds: list[Round], count: int) -> State:
    """Return the state after learning `count` rounds."""
    state = policy.init()
    for one in islice(cycle(rounds), count):
        state = policy.learn(state, one.features, one.arm, one.reward, one.costs)
    return state


def decide(policy: SquareCBwK, state: State, rounds: list[Round], name: str = "decide") -> Contender:
    """Return a contender: one row per decide."""
    return Contender(name, each(rounds, lambda one: policy.decide(state, one.features, one.uniforms)))


def decide_batch(policy: SquareCBwK, state: State, size: Size, rng: np.random.Generator) -> Contender:
    """Return a contender: 256 rows per decide."""
    batches = [(rng.random((BATCH_ROWS, *size.row_shape)), rng.random(BATCH_ROWS)) for _ in range(4)]
    run = each(batches, lambda batch: policy.decide(state, *batch))
    return Contender(f"decide, {BATCH_ROWS} rows", run, decisions=BATCH_ROWS)


def learn(policy: SquareCBwK, state: State, rounds: list[Round], name: str = "learn") -> Contender:
    """Return a contender: one row per learn, each from the previous state."""

    def one_more(one: Round) -> None:
        nonlocal state
        state = policy.learn(state, one.features, one.arm, one.reward, one.costs)

    return Contender(name, each(rounds, one_more))


def commit_settle(policy: SquareCBwK, state: State, rounds: list[Round]) -> Contender:
    """Return a contender: commit and settle of a ticket, which together do what learn does."""
    tickets = [(policy.decide(state, one.features, one.uniforms).ticket, one) for one in rounds]

    def one_more(pair: tuple[Ticket, Round]) -> None:
        nonlocal state
        ticket, one = pair
        state = policy.settle(policy.commit(state, ticket), ticket, one.reward, one.costs)

    return Contender("commit + settle", each(tickets, one_more))


def encode_context(rng: np.random.Generator) -> Contender:
    """Return a contender: the encoding of twenty mixed features by name."""
    features: tuple[Feature, ...] = (
        *(NumberFeature(f"number{i}", 0, 24) for i in range(8)),
        *(CategoryFeature(f"category{i}", ("a", "b", "c", "d")) for i in range(8)),
        *(HashFeature(f"hash{i}", 16) for i in range(4)),
    )
    encoder = ContextEncoder(features)
    contexts = [
        {
            **{f"number{i}": float(rng.uniform(0, 24)) for i in range(8)},
            **{f"category{i}": "abcd"[rng.integers(4)] for i in range(8)},
            **{f"hash{i}": f"site{rng.integers(10**6)}.example" for i in range(4)},
        }
        for _ in range(64)
    ]
    return Contender("encode a context", each(contexts, encoder.encode))
