"""The scenarios of the suite: environments with budgets, delays and other properties of real campaigns.

A scenario has one environment for all runs, or a kind of worlds: then every run has a fresh random world of that kind.
No policy may be tuned on them: the suite tests where the defaults fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.baselines import Policy
from cbwk_core.policy import SquareCBwK
from cbwk_core.problem import Problem
from cbwk_core.simulation import kinds
from cbwk_core.simulation.calendar import CalendarLedger, Window, flight
from cbwk_core.simulation.changes import MidpointChange
from cbwk_core.simulation.delays import Delays
from cbwk_core.simulation.dual_regret import static_prices
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
from cbwk_core.simulation.policies import PARETO, PARETO_POLICIES, PEERS, POLICIES, build_policy

SUITE_POLICIES = tuple(name for name in POLICIES if name != "authors")
# The policies that kinds of worlds compare: those that know prices.
PRICED_POLICIES = ("practical", *PEERS)
# The oracle of the baselines. Only policies with the same oracle are compared.
LINEAR_ORACLE = "newton"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One row of the suite.

    rho: budget per round, one value for all resources or one per resource.
    world: the kind of worlds of the runs, run i in the world of seed i. `environment` is then one of them, for sizes.
    cost_max: the max cost of every arm and resource, or one per arm and resource.
    delay: delay of the outcomes as a share of the horizon. varying: delays are uniform up to that share.
    costs_at_once: only rewards are delayed.
    burst: number of rounds that are decided from one state.
    missing: share of the outcomes that are never reported.
    floor_arm: the arm in reserve, if the policies must play.
    windows: limits by hours of the clock, which the runs then have; `days`: the length of their flight.
    horizon_ratio: the horizon that the policies get, divided by the true horizon.
    has_end_date: SquareCBwK gets no horizon but estimates it from traffic by day and night. The baselines get it.
    budget_binds: whether `practical` must use its budget up.
    must_pass: whether `practical` must be close to the best policy.
    """

    name: str
    family: str
    environment: Environment
    horizon: int
    rho: tuple[float, ...]
    world: kinds.Generator | None = None
    cost_max: float | tuple[tuple[float, ...], ...] = 1.0
    oracle: str = LINEAR_ORACLE
    link: str = "identity"
    delay: float = 0.0
    varying: bool = False
    costs_at_once: bool = False
    burst: int = 1
    missing: float = 0.0
    floor_arm: int | None = None
    windows: tuple[Window, ...] = ()
    days: int = 0
    horizon_ratio: float = 1.0
    has_end_date: bool = False
    budget_binds: bool = True
    must_pass: bool = True

    @property
    def budget(self) -> tuple[float, ...]:
        """Budget of each resource."""
        rho_of_each = self.rho * self.environment.resources if len(self.rho) == 1 else self.rho
        return tuple(rho * self.horizon for rho in rho_of_each)

    @property
    def delays(self) -> Delays:
        """Delays in rounds, and the share of missing outcomes."""
        return Delays(
            rounds=round(self.delay * self.horizon),
            varying=self.varying,
            costs_at_once=self.costs_at_once,
            missing=self.missing,
        )

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that the suite runs in this scenario."""
        if self.world is None:
            return SUITE_POLICIES
        problem = self.problem(self.environment.dimension)
        fits = problem.resources == 1 and problem.hold.min() < problem.hold.max() and self.floor_arm is None
        return (*PRICED_POLICIES, *(PARETO_POLICIES if fits else ()))

    def environments(self, seeds: Sequence[int]) -> list[Environment]:
        """Return the environment of each run."""
        if self.world is None:
            return [self.environment] * len(seeds)
        return [self.world(seed, self.horizon) for seed in seeds]

    def prices(self, seeds: Sequence[int]) -> Array:
        """Return the static prices of each run's world, (runs, d), from contexts that no run has."""
        rho = tuple(budget / self.horizon for budget in self.budget)
        return np.stack([static_prices(each, rho, self.horizon) for each in self.environments(seeds)])

    def ledger(self, seeds: Sequence[int], *, foresight: bool = False) -> CalendarLedger | None:
        """Return the ledger of runs with windows; with `foresight` its paces know the traffic to come."""
        if not self.windows:
            return None
        flights = [flight(seed, self.horizon, self.days) for seed in seeds]
        return CalendarLedger(np.array(self.budget), self.windows, flights, self.days, foresight=foresight)

    @property
    def optimum(self) -> float:
        """T·OPT, from a program of sampled contexts. The suite uses the bound of `dual_regret.py` instead."""
        return self.horizon * self.environment.optimum([budget / self.horizon for budget in self.budget])

    def problem(self, dimension: int) -> Problem:
        """Return the problem that a policy with features of this length gets."""
        return Problem.of(
            arms=self.environment.arms,
            dimension=dimension,
            resources=self.environment.resources,
            horizon=max(1, round(self.horizon_ratio * self.horizon)),
            budget=self.budget,
            max_cost=self.cost_max,
            floor_arm=self.floor_arm,
        )

    def policy(self, name: str) -> Policy[Any]:
        """Return the policy of this name for the scenario."""
        environment, problem = self.environment, self.problem(self.environment.dimension)
        policy = build_policy(name, problem, model=environment.model, oracle=self.oracle, link=self.link)
        if self.windows and hasattr(policy, "paced"):
            return cast(Policy[Any], replace(cast(Any, policy), paced=True))
        if self.has_end_date and isinstance(policy, SquareCBwK):
            return Flight(replace(policy, two_stage="off"), tuple(day_and_night(self.horizon).tolist()))
        return policy

    def same_oracle(self, name: str) -> bool:
        """Return whether the policy has the same oracle and link as `practical` in this scenario."""
        is_linear = self.oracle == LINEAR_ORACLE and self.link == "identity" and name not in ("vw", PARETO)
        return name in ("practical", "paper") or is_linear


def scenarios(scale: float = 1.0) -> list[Scenario]:
    """Return all scenarios, with horizons multiplied by the scale.

    >>> rows = scenarios(0.1)
    >>> len({row.name for row in rows}) == len(rows), rows[0].horizon
    (True, 200)
    """
    rows = [*_paper(), *_linear(), *_clicks(), *_noise(), *_arms(), *_resources(), *_budgets(), *_feedback()]
    rows += [*_horizons(), *_changes(), *_smooth(), *_worlds()]
    return [_scaled(row, scale) for row in rows]


def _scaled(row: Scenario, scale: float) -> Scenario:
    horizon = max(100, round(row.horizon * scale))
    environment = row.environment if row.world is None else row.world(0, horizon)
    if isinstance(environment, MidpointChange):
        environment = replace(environment, horizon=horizon)
    return replace(row, horizon=horizon, environment=environment)


LINEAR = LinearEnvironment(arms=5, dimension=8, resources=2)
PER_ARM = LinearEnvironment(arms=5, dimension=5, resources=2, model="per_arm")
CLICKS = LogisticEnvironment(arms=5, dimension=13, rate=0.02, arm_indicators=True)
# Budgets per round at a click rate of 2 %: money, in units of the highest price per click, and impressions.
CLICK_RHO = (0.006, 0.6)


def _paper() -> list[Scenario]:
    sizes = ((10, 3, 2_000), (100, 3, 2_000), (52, 10, 2_000), (52, 51, 2_000), (5, 3, 12_000))
    return [
        Scenario(
            name=f"paper, m = {m}, K = {arms}, T = {horizon:,}",
            family="paper",
            environment=PaperEnvironment(m=m, arms=arms),
            horizon=horizon,
            rho=(0.25,),
            cost_max=COST_MAX,
        )
        for m, arms, horizon in sizes
    ]


def _linear() -> list[Scenario]:
    large = LinearEnvironment(arms=10, dimension=20, resources=3)
    return [
        Scenario(name="linear", family="linear", environment=LINEAR, horizon=5_000, rho=(0.25,)),
        Scenario(name="linear, per arm", family="linear", environment=PER_ARM, horizon=5_000, rho=(0.25,)),
        Scenario(name="linear, m = 20, K = 10", family="linear", environment=large, horizon=5_000, rho=(0.25,)),
    ]


def _clicks() -> list[Scenario]:
    rows = []
    for rate, horizon in ((0.01, 20_000), (0.02, 10_000), (0.03, 10_000)):
        environment, rho = replace(CLICKS, rate=rate), (CLICK_RHO[0] * rate / CLICKS.rate, CLICK_RHO[1])
        common: dict[str, Any] = {"family": "clicks", "environment": environment, "horizon": horizon, "rho": rho}
        rows.append(Scenario(name=f"clicks of {rate:.0%}", **common))
        if rate == CLICKS.rate:
            rows.append(Scenario(name=f"clicks of {rate:.0%}, logistic", link="logistic", **common))
    return rows


def _noise() -> list[Scenario]:
    coins, rare = replace(LINEAR, outcomes="bernoulli"), replace(LINEAR, outcomes="rare")
    common: dict[str, Any] = {"family": "noise", "horizon": 5_000, "rho": (0.25,)}
    return [
        Scenario(name="all or nothing", environment=coins, **common),
        Scenario(name="all or nothing, small rewards", environment=replace(coins, reward_scale=0.1), **common),
        Scenario(name="rare and large", environment=rare, cost_max=RARITY, **common),
    ]


def _arms() -> list[Scenario]:
    few = LinearEnvironment(arms=30, dimension=4, resources=2, model="per_arm", good_arms=3)
    many = LinearEnvironment(arms=50, dimension=8, resources=2)
    common: dict[str, Any] = {"family": "arms", "rho": (0.25,)}
    return [
        Scenario(name="3 good of 30 arms", environment=few, horizon=6_000, **common),
        Scenario(name="50 arms, shared", environment=many, horizon=5_000, **common),
    ]


def _resources() -> list[Scenario]:
    environment = LinearEnvironment(arms=5, dimension=8, resources=4)
    turning = MidpointChange(LinearEnvironment(arms=5, dimension=5, resources=2, model="per_arm"), 1, resource_shift=1)
    common: dict[str, Any] = {"family": "resources", "horizon": 5_000}
    return [
        Scenario(name="one of 4 resources binds", environment=environment, rho=(0.15, 0.9, 0.9, 0.9), **common),
        Scenario(name="budgets 100 to 1", environment=environment, rho=(0.9, 0.3, 0.05, 0.009), **common),
        Scenario(name="resources change roles", environment=turning, rho=(0.15, 0.4), **common),
    ]


def _budgets() -> list[Scenario]:
    tight = 2.0 * 10_000**-0.25
    common: dict[str, Any] = {"family": "budgets"}
    return [
        Scenario(name="tight: 2·T^¾", environment=LINEAR, horizon=10_000, rho=(tight,), **common),
        Scenario(name="tight: 1 % of T", environment=LINEAR, horizon=10_000, rho=(0.01,), **common),
        Scenario(name="generous", environment=LINEAR, horizon=5_000, rho=(1.0,), budget_binds=False, **common),
        Scenario(
            name="generous, per arm", environment=PER_ARM, horizon=5_000, rho=(1.0,), budget_binds=False, **common
        ),
    ]


def _feedback() -> list[Scenario]:
    linear: dict[str, Any] = {"family": "feedback", "environment": LINEAR, "horizon": 5_000, "rho": (0.25,)}
    clicks: dict[str, Any] = {"family": "feedback", "environment": CLICKS, "horizon": 10_000, "rho": CLICK_RHO}
    return [
        Scenario(name="delay of T/100", delay=0.01, **linear),
        Scenario(name="delay of T/10", delay=0.1, **linear),
        Scenario(name="delay of T/10, tight", delay=0.1, **{**linear, "rho": (0.05,)}),
        Scenario(name="delay of T/10, clicks", delay=0.1, **clicks),
        Scenario(name="30 % missing", missing=0.3, **linear),
    ]


def _horizons() -> list[Scenario]:
    common: dict[str, Any] = {"family": "horizon", "environment": LINEAR, "horizon": 5_000, "rho": (0.25,)}
    return [
        Scenario(name="horizon declared at half", horizon_ratio=0.5, must_pass=False, **common),
        Scenario(name="horizon declared at twice", horizon_ratio=2.0, must_pass=False, **common),
        Scenario(name="day and night, end date", has_end_date=True, **common),
    ]


def _changes() -> list[Scenario]:
    drift = MidpointChange(PER_ARM, 1, arm_shift=1)
    common: dict[str, Any] = {"family": "drift", "environment": drift, "horizon": 5_000}
    return [
        Scenario(name="arms change roles", rho=(0.25,), **common),
        Scenario(name="arms change roles, generous", rho=(1.0,), budget_binds=False, **common),
    ]


def _smooth() -> list[Scenario]:
    environment = BumpEnvironment(arms=4, dimension=2, resources=2, seed=5)
    common: dict[str, Any] = {"family": "smooth", "environment": environment, "horizon": 5_000, "rho": (0.2,)}
    return [
        Scenario(name=f"smooth, {oracle}", oracle=oracle, **common) for oracle in ("aggregate", "kernel", LINEAR_ORACLE)
    ]


def _worlds() -> list[Scenario]:
    eight = (0.25,) * 3 + (0.9,) * 4 + (0.003,)
    menu: dict[str, Any] = {"cost_max": kinds.MENU_COST_MAX, "budget_binds": False}
    return [
        _kind("three arms, one poor", kinds.three_arms, 4_000, (0.25,)),
        _kind("two click arms", kinds.click_arms, 10_000, (0.02,)),
        _kind("five arms", kinds.five_arms, 4_000, (0.25,)),
        _kind("costs 1 : 18 : 520, budget of 1", kinds.model_menu, 3_600, (1.0,), **menu),
        _kind("costs 1 : 18 : 520, budget of 3", kinds.model_menu, 3_600, (3.0,), **menu),
        _kind("costs 1 : 18 : 520, budget of 30", kinds.model_menu, 3_600, (30.0,), **menu),
        _kind("costs 1 : 18 : 520, budget of 300", kinds.model_menu, 3_600, (300.0,), **menu),
        *_must_play(),
        _kind("linear model is wrong", kinds.misspecified, 8_000, (0.1,)),
        _kind("linear model is wrong, phases", kinds.traffic, 10_000, (0.2,)),
        _kind("eight resources, a rare one", kinds.eight_resources, 5_000, eight),
        _kind("rare and large rewards", kinds.rare_rewards, 5_000, (0.25,)),
        _kind("seasons", kinds.seasons, 5_000, (0.25,)),
        _kind("bursts of 50", kinds.linear_world, 5_000, (0.25,), burst=50),
        _kind("200 arms, shared", kinds.many_arms, 2_000, (0.25,)),
        *_windows(),
        _kind("late conversions", kinds.late_conversions, 8_000, (0.06,), delay=0.1, varying=True, costs_at_once=True),
    ]


def _must_play() -> list[Scenario]:
    """Return model menus in which every request gets a model, at multiples of what the cheapest one costs.

    Null is worse than the cheapest model at every price that these budgets have, so that T·OPT of the program with
    Σ_a p_a = 1 is that of the program with null.
    """
    menu: dict[str, Any] = {"cost_max": kinds.MENU_COST_MAX, "budget_binds": False, "floor_arm": 0}
    return [_kind(f"must play, budget of {rho:g}", kinds.model_menu, 3_000, (rho,), **menu) for rho in (1.1, 3.0, 30.0)]


def _windows() -> list[Scenario]:
    """Return kinds with traffic by day and night, whose limits are short on most days or in busy hours.

    The budget pays for all limits, for three quarters of them, or for ten times as much.
    """
    days: dict[str, Any] = {"windows": (Window(0, 24, 0.2),), "days": 14, "budget_binds": False}
    hours: dict[str, Any] = {"windows": (Window(0, 1, 0.2),), "days": 4, "budget_binds": False}
    return [
        _kind("day caps", kinds.one_resource, 4_200, (0.25,), **days),
        _kind("day caps and a budget", kinds.one_resource, 4_200, (0.15,), **days),
        _kind("day caps, ample budget", kinds.one_resource, 4_200, (2.0,), **days),
        _kind("hourly caps", kinds.one_resource, 4_800, (0.25,), **hours),
    ]


def _kind(name: str, world: kinds.Generator, horizon: int, rho: tuple[float, ...], **options: Any) -> Scenario:
    """Return the row of one kind of worlds."""
    return Scenario(
        name=name, family="worlds", environment=world(0, horizon), horizon=horizon, rho=rho, world=world, **options
    )
