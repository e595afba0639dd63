"""Two campaigns of one portfolio: how much of the optimum of the joint program policies earn at shared prices.

The campaigns take turns. Each has a world, a budget and a policy of its own, and a value of its rewards; the portfolio
has a budget for both and the prices of `shared_prices.py`. A decision that the portfolio cannot pay becomes null, as a
ledger in front of the policies does. Peers get the same prices in the same way; the program of re-solving counts
rewards less these prices.

The joint program has the contexts of both worlds, rewards at their values, and three resources: what is shared, and the
budget of each. Regret is that of `dual_regret.py` at its prices. `SPLIT` does not share: each campaign gets a half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from cbwk_core import shared_prices
from cbwk_core.arrays import Array
from cbwk_core.baselines.throttle import nulled
from cbwk_core.problem import Problem
from cbwk_core.simulation import kinds
from cbwk_core.simulation.environment import Draw, Environment
from cbwk_core.simulation.policies import PEERS, build_policy
from cbwk_core.simulation.worker_pool import run_tasks
from cbwk_core.simulation.worlds import LinearWorld
from cbwk_core.static_optimum import static_optimum

SPLIT = "practical, split"
POLICIES = ("practical", *PEERS, SPLIT)
# Contexts of each world in the joint program, and their seed.
CONTEXTS, PROGRAM_SEED = 2_000, 3_000_017
CHUNK_ROUNDS = 50


def linear(seed: int, horizon: int) -> Environment:
    """Return a linear world with one resource and parameters for each arm."""
    del horizon
    return LinearWorld(arms=5, dimension=5, scales=(1.0, 1.0), rarities=(0.0, 0.0), seed=seed, model="per_arm")


@dataclass(frozen=True)
class Row:
    """Two campaigns of one kind of worlds with one resource.

    rounds: of each campaign. own: budget of each per round of its own. shared: the portfolio's, per round of any of
    them. values: what a reward of 1 is worth in each.
    """

    name: str
    world: kinds.Generator
    rounds: int
    own: float
    shared: float
    values: tuple[float, float]

    @property
    def budget(self) -> float:
        """The budget that the campaigns share."""
        return self.shared * 2 * self.rounds


ROWS = (
    Row("five arms, values 1 : 0.4", kinds.five_arms, 2_000, own=0.25, shared=0.12, values=(1.0, 0.4)),
    Row("five arms, values 1 : 0.1", kinds.five_arms, 2_000, own=0.25, shared=0.12, values=(1.0, 0.1)),
    Row("three arms, values 1 : 0.6", kinds.three_arms, 2_000, own=0.4, shared=0.15, values=(1.0, 0.6)),
    Row("clicks, values 1 : 0.5", kinds.click_arms, 5_000, own=0.03, shared=0.015, values=(1.0, 0.5)),
    Row("linear, values 1 : 0.5", linear, 2_000, own=0.25, shared=0.12, values=(1.0, 0.5)),
)


class Task(NamedTuple):
    """One policy in one row."""

    row: Row
    policy: str
    seeds: int

    @property
    def relative_duration(self) -> float:
        """Estimate of the duration, in an arbitrary unit."""
        return float(self.row.rounds * self.seeds)


class Result(NamedTuple):
    """The regret of each run over T·OPT, and the share of the shared budget that was spent: (seeds,) each."""

    regret: Array
    used: Array


class _Side:
    """One campaign in all runs, one lane per seed."""

    def __init__(self, row: Row, name: str, side: int, seeds: int) -> None:
        self.value = row.values[side]
        self.worlds = [row.world(2 * seed + side, row.rounds) for seed in range(seeds)]
        world, split = self.worlds[0], name == SPLIT
        budget = min(row.own * row.rounds, row.budget / 2) if split else row.own * row.rounds
        sizes = {"arms": world.arms, "dimension": world.dimension, "resources": 1, "horizon": row.rounds}
        problem = Problem.of(**sizes, budget=budget)
        policy = build_policy("practical" if split else name, problem, model=world.model, two_stage="off")
        self.policy: Any = policy
        self.state = self.policy.init(seeds)
        self._streams = [np.random.default_rng([17, seed, side]) for seed in range(seeds)]

    def draw(self, start: int) -> tuple[list[Draw], Array]:
        """Return the next rounds of each lane, and uniforms."""
        pairs = zip(self.worlds, self._streams, strict=True)
        draws = [world.draw(stream, start, CHUNK_ROUNDS) for world, stream in pairs]
        return draws, np.stack([stream.random(CHUNK_ROUNDS) for stream in self._streams], axis=1)


class _Portfolio:
    """The shared budget in all runs; a split one has no prices and refuses nothing."""

    def __init__(self, row: Row, name: str, seeds: int) -> None:
        self.is_split, self.budget, self.rest = name == SPLIT, row.budget, 2 * row.rounds
        self.states = [shared_prices.first_state(1) for _ in range(seeds)]
        self.spent = np.zeros(seeds)

    def play(self, side: _Side, features: Array, uniforms: Array) -> Any:
        """Return the ticket of one decision per lane, which is committed."""
        if self.is_split:
            ticket = side.policy.decide(side.state, features, uniforms).ticket
            side.state = side.policy.commit(side.state, ticket)
            return ticket
        left = self.budget - self.spent
        self.states = [shared_prices.called(state, [self.budget], self.rest) for state in self.states]
        choice = side.policy.decide(side.state, features, uniforms, prices=self._prices(side))
        refused = (choice.ticket.hold > left[:, None]).any(axis=1)
        ticket = nulled(choice, refused).ticket if refused.any() else choice.ticket
        values = np.maximum(ticket.reward, 0.0) * (ticket.arm >= 0) * side.value
        pace = np.maximum(left, 0.0) / self.rest
        self.states = [
            shared_prices.decided(state, cost[None], value[None], each[None], paced=False)
            for state, cost, value, each in zip(self.states, np.maximum(ticket.costs, 0.0), values, pace, strict=True)
        ]
        side.state = side.policy.commit(side.state, ticket)
        return ticket

    def settle(self, side: _Side, ticket: Any, rewards: Array, costs: Array) -> None:
        """Book the outcomes of one decision per lane."""
        side.state = side.policy.settle(side.state, ticket, rewards, costs[:, None])
        self.states = [
            shared_prices.settled(state, np.maximum(guess, 0.0), cost[None])
            for state, guess, cost in zip(self.states, ticket.costs, costs, strict=True)
        ]
        self.spent += costs
        self.rest -= 1
        if side.policy.refresh_due(side.state):
            side.state = side.policy.refresh(side.state, prices=self._prices(side))

    def _prices(self, side: _Side) -> Array:
        """Return what is added to the prices of a campaign, in its rewards per unit of cost: (seeds, 1)."""
        return np.array([state.prices / side.value for state in self.states])


def measure(task: Task) -> Result:
    """Run one policy in one row, one lane per seed.

    >>> from dataclasses import replace
    >>> result = measure(Task(replace(ROWS[0], rounds=100), "practical", 2))
    >>> result.regret.shape, bool((result.used <= 1.0).all())
    ((2,), True)
    """
    row, name, seeds = task
    sides, portfolio = [_Side(row, name, side, seeds) for side in (0, 1)], _Portfolio(row, name, seeds)
    prices, optima = _programs(row, sides)
    lanes, left, gaps = np.arange(seeds), np.full((seeds, 2), row.own * row.rounds), np.zeros(seeds)
    for start in range(0, row.rounds, CHUNK_ROUNDS):
        drawn = [each.draw(start) for each in sides]
        for at in range(CHUNK_ROUNDS):
            for number, side in enumerate(sides):
                draws, uniforms = drawn[number]
                reward, cost, mean_reward, mean_cost = (
                    np.stack([part[at].ravel() for part in parts])
                    for parts in zip(
                        *((each.reward, each.costs, each.mean_reward, each.mean_costs) for each in draws), strict=True
                    )
                )
                ticket = portfolio.play(side, np.stack([each.features[at] for each in draws]), uniforms[at])
                arm, real = ticket.arm, ticket.arm >= 0
                paid = cost[lanes, arm] * real
                portfolio.settle(side, ticket, reward[lanes, arm] * real, paid)
                left[:, number] -= paid
                worth = side.value * mean_reward - (prices[:, 0] + prices[:, 1 + number])[:, None] * mean_cost
                gaps += np.maximum(worth.max(axis=1), 0.0) - worth[lanes, arm] * real
    regret = gaps + (prices * np.column_stack([row.budget - portfolio.spent, left])).sum(axis=1)
    return Result(regret / optima, portfolio.spent / row.budget)


def _programs(row: Row, sides: list[_Side]) -> tuple[Array, Array]:
    """Return the prices of each run's joint program, (seeds, 3), and its T·OPT, (seeds,)."""
    rho = np.array([row.budget, row.own * row.rounds, row.own * row.rounds]) / (2 * row.rounds)
    prices, optima = [], []
    for worlds in zip(*(side.worlds for side in sides), strict=True):
        rewards, costs = [], []
        for number, world in enumerate(worlds):
            draw = world.draw(np.random.default_rng(PROGRAM_SEED), 0, CONTEXTS)
            of_both = np.zeros((*draw.mean_reward.shape, 3))
            of_both[..., 0] = of_both[..., 1 + number] = draw.mean_costs[..., 0]
            rewards.append(sides[number].value * draw.mean_reward)
            costs.append(of_both)
        best = static_optimum(np.concatenate(rewards), np.concatenate(costs), rho)
        prices.append(best.prices)
        optima.append(2 * row.rounds * best.value)
    return np.array(prices), np.array(optima)


def study(
    seeds: int, console: Console, rows: tuple[Row, ...] = ROWS, workers: int = 1
) -> dict[tuple[str, str], Result]:
    """Run every policy in every row, print a table of regret over T·OPT, and return the results."""
    tasks = [Task(row, name, seeds) for row in rows for name in POLICIES]
    results = run_tasks(measure, tasks, workers=workers, description="shared budgets", console=console)
    table = Table(title=f"two campaigns that share a budget, {seeds} worlds: regret over T·OPT, share of it spent")
    for column in ("", *POLICIES):
        table.add_column(column)
    found = {(task.row.name, task.policy): result for task, result in zip(tasks, results, strict=True)}
    for row in rows:
        table.add_row(row.name, *(_shown(found[row.name, name]) for name in POLICIES))
    console.print(table)
    return found


def _shown(result: Result) -> str:
    error = result.regret.std(ddof=1) / np.sqrt(result.regret.size) if result.regret.size > 1 else 0.0
    return f"{result.regret.mean():.3f} ± {error:.3f}, {result.used.mean():.0%}"


if __name__ == "__main__":
    study(20, Console(width=200), workers=2)
