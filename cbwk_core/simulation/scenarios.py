"""The suite's environments: what campaigns look like, each with its budgets, delays and whatever else is odd about it.

Nothing in the policies may be tuned to them: they are here to find out what a default does not cope with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cbwk_core.baselines import Policy
from cbwk_core.policy import SquareCBwK
from cbwk_core.problem import Problem
from cbwk_core.simulation.changes import Halves
from cbwk_core.simulation.delays import Delays
from cbwk_core.simulation.environment import Environment
from cbwk_core.simulation.environments import (
    RARITY,
    BumpEnvironment,
    LinearEnvironment,
    LogisticEnvironment,
    PaperEnvironment,
)
from cbwk_core.simulation.flight import Flight, day_and_night
from cbwk_core.simulation.measurement import COST_MAX
from cbwk_core.simulation.policies import build_policy
from cbwk_core.simulation.vw import IS_INSTALLED

POLICIES = (
    *("practical", "paper", "linucb", "egreedy", "thompson", "egreedy-paced", "thompson-paced"),
    *(["vw"] if IS_INSTALLED else []),
)
# The oracle of the baselines; only policies with the same one are compared.
LINEAR = "newton"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One row of the suite.

    pace: budget per round, one for all resources or one for each. cost_max: what a cost may come to.
    declared: the horizon the policies are told as a multiple of the true one. dated: the horizon is not told at all,
    but estimated from traffic by day and night (by `practical` and `paper`; the baselines know it). binding: whether
    the budget runs short. barred: whether `practical` must be among the best here.
    """

    name: str
    family: str
    environment: Environment
    horizon: int
    pace: tuple[float, ...]
    cost_max: float = 1.0
    oracle: str = LINEAR
    link: str = "identity"
    delay: float = 0.0
    missing: float = 0.0
    declared: float = 1.0
    dated: bool = False
    binding: bool = True
    barred: bool = True

    @property
    def budget(self) -> tuple[float, ...]:
        """Of each resource."""
        paces = self.pace * self.environment.resources if len(self.pace) == 1 else self.pace
        return tuple(pace * self.horizon for pace in paces)

    @property
    def delays(self) -> Delays:
        """When outcomes are known."""
        return Delays(rounds=round(self.delay * self.horizon), missing=self.missing)

    @property
    def optimum(self) -> float:
        """T·OPT."""
        return self.horizon * self.environment.optimum([budget / self.horizon for budget in self.budget])

    def policy(self, name: str) -> Policy[Any]:
        """The policy of that name for this scenario."""
        world = self.environment
        problem = Problem.of(
            arms=world.arms,
            dimension=world.dimension,
            resources=world.resources,
            horizon=max(1, round(self.declared * self.horizon)),
            budget=self.budget,
            max_cost=self.cost_max,
        )
        policy = build_policy(name, problem, model=world.model, oracle=self.oracle, link=self.link)
        if self.dated and isinstance(policy, SquareCBwK):
            return Flight(replace(policy, two_stage="off"), tuple(day_and_night(self.horizon).tolist()))
        return policy

    def same_oracle(self, name: str) -> bool:
        """Whether that policy's predictions are of the kind `practical` has here."""
        linear = self.oracle == LINEAR and self.link == "identity" and name != "vw"
        return name in ("practical", "paper") or linear


def scenarios(scale: float = 1.0) -> list[Scenario]:
    """All rows, with horizons multiplied by the scale.

    >>> rows = scenarios(0.1)
    >>> len({row.name for row in rows}) == len(rows), rows[0].horizon
    (True, 200)
    """
    rows = [*_paper(), *_linear(), *_clicks(), *_noise(), *_arms(), *_resources(), *_budgets(), *_feedback()]
    rows += [*_horizons(), *_changes(), *_smooth()]
    return [_scaled(row, scale) for row in rows]


def _scaled(row: Scenario, scale: float) -> Scenario:
    horizon = max(100, round(row.horizon * scale))
    world = row.environment
    if isinstance(world, Halves):
        world = replace(world, horizon=horizon)
    return replace(row, horizon=horizon, environment=world)


LINEAR_WORLD = LinearEnvironment(arms=5, dimension=8, resources=2)
PER_ARM_WORLD = LinearEnvironment(arms=5, dimension=5, resources=2, model="per_arm")
CLICK_WORLD = LogisticEnvironment(arms=5, dimension=13, rate=0.02, named=True)
# Money at a click rate of 2 %, in clicks of the highest price per round; and impressions, a hundred times as many.
CLICK_PACE = (0.006, 0.6)


def _paper() -> list[Scenario]:
    sizes = ((10, 3, 2_000), (100, 3, 2_000), (52, 10, 2_000), (52, 51, 2_000), (5, 3, 12_000))
    return [
        Scenario(
            name=f"paper, m = {m}, K = {arms}, T = {horizon:,}",
            family="paper",
            environment=PaperEnvironment(m=m, arms=arms),
            horizon=horizon,
            pace=(0.25,),
            cost_max=COST_MAX,
        )
        for m, arms, horizon in sizes
    ]


def _linear() -> list[Scenario]:
    large = LinearEnvironment(arms=10, dimension=20, resources=3)
    return [
        Scenario(name="linear", family="linear", environment=LINEAR_WORLD, horizon=5_000, pace=(0.25,)),
        Scenario(name="linear, per arm", family="linear", environment=PER_ARM_WORLD, horizon=5_000, pace=(0.25,)),
        Scenario(name="linear, m = 20, K = 10", family="linear", environment=large, horizon=5_000, pace=(0.25,)),
    ]


def _clicks() -> list[Scenario]:
    rows = []
    for rate, horizon in ((0.01, 20_000), (0.02, 10_000), (0.03, 10_000)):
        world, pace = replace(CLICK_WORLD, rate=rate), (CLICK_PACE[0] * rate / CLICK_WORLD.rate, CLICK_PACE[1])
        common: dict[str, Any] = {"family": "clicks", "environment": world, "horizon": horizon, "pace": pace}
        rows.append(Scenario(name=f"clicks of {rate:.0%}", **common))
        if rate == CLICK_WORLD.rate:
            rows.append(Scenario(name=f"clicks of {rate:.0%}, logistic", link="logistic", **common))
    return rows


def _noise() -> list[Scenario]:
    coins, rare = replace(LINEAR_WORLD, outcomes="bernoulli"), replace(LINEAR_WORLD, outcomes="rare")
    common: dict[str, Any] = {"family": "noise", "horizon": 5_000, "pace": (0.25,)}
    return [
        Scenario(name="all or nothing", environment=coins, **common),
        Scenario(name="all or nothing, small rewards", environment=replace(coins, reward_scale=0.1), **common),
        Scenario(name="rare and large", environment=rare, cost_max=RARITY, **common),
    ]


def _arms() -> list[Scenario]:
    few = LinearEnvironment(arms=30, dimension=4, resources=2, model="per_arm", good=3)
    many = LinearEnvironment(arms=50, dimension=8, resources=2)
    common: dict[str, Any] = {"family": "arms", "pace": (0.25,)}
    return [
        Scenario(name="3 good of 30 arms", environment=few, horizon=6_000, **common),
        Scenario(name="50 arms, shared", environment=many, horizon=5_000, **common),
    ]


def _resources() -> list[Scenario]:
    world = LinearEnvironment(arms=5, dimension=8, resources=4)
    turning = Halves(LinearEnvironment(arms=5, dimension=5, resources=2, model="per_arm"), 1, resources_turned=1)
    common: dict[str, Any] = {"family": "resources", "horizon": 5_000}
    return [
        Scenario(name="one of 4 resources binds", environment=world, pace=(0.15, 0.9, 0.9, 0.9), **common),
        Scenario(name="budgets 100 to 1", environment=world, pace=(0.9, 0.3, 0.05, 0.009), **common),
        Scenario(name="resources change roles", environment=turning, pace=(0.15, 0.4), **common),
    ]


def _budgets() -> list[Scenario]:
    tight = 2.0 * 10_000**-0.25
    common: dict[str, Any] = {"family": "budgets"}
    return [
        Scenario(name="tight: 2·T^¾", environment=LINEAR_WORLD, horizon=10_000, pace=(tight,), **common),
        Scenario(name="tight: 1 % of T", environment=LINEAR_WORLD, horizon=10_000, pace=(0.01,), **common),
        Scenario(name="generous", environment=LINEAR_WORLD, horizon=5_000, pace=(1.0,), binding=False, **common),
        Scenario(
            name="generous, per arm", environment=PER_ARM_WORLD, horizon=5_000, pace=(1.0,), binding=False, **common
        ),
    ]


def _feedback() -> list[Scenario]:
    linear: dict[str, Any] = {"family": "feedback", "environment": LINEAR_WORLD, "horizon": 5_000, "pace": (0.25,)}
    clicks: dict[str, Any] = {"family": "feedback", "environment": CLICK_WORLD, "horizon": 10_000, "pace": CLICK_PACE}
    return [
        Scenario(name="delay of T/100", delay=0.01, **linear),
        Scenario(name="delay of T/10", delay=0.1, **linear),
        Scenario(name="delay of T/10, tight", delay=0.1, **{**linear, "pace": (0.05,)}),
        Scenario(name="delay of T/10, clicks", delay=0.1, **clicks),
        Scenario(name="30 % missing", missing=0.3, **linear),
    ]


def _horizons() -> list[Scenario]:
    common: dict[str, Any] = {"family": "horizon", "environment": LINEAR_WORLD, "horizon": 5_000, "pace": (0.25,)}
    return [
        Scenario(name="horizon declared at half", declared=0.5, barred=False, **common),
        Scenario(name="horizon declared at twice", declared=2.0, barred=False, **common),
        Scenario(name="day and night, end date", dated=True, **common),
    ]


def _changes() -> list[Scenario]:
    drift = Halves(PER_ARM_WORLD, 1, arms_turned=1)
    common: dict[str, Any] = {"family": "drift", "environment": drift, "horizon": 5_000}
    return [
        Scenario(name="arms change roles", pace=(0.25,), **common),
        Scenario(name="arms change roles, generous", pace=(1.0,), binding=False, **common),
    ]


def _smooth() -> list[Scenario]:
    world = BumpEnvironment(arms=4, dimension=2, resources=2, seed=5)
    common: dict[str, Any] = {"family": "smooth", "environment": world, "horizon": 5_000, "pace": (0.2,)}
    return [Scenario(name=f"smooth, {oracle}", oracle=oracle, **common) for oracle in ("aggregate", "kernel", LINEAR)]
