"""Short tests of the regret of `practical`; `cbwk reproduce` runs the full grids."""

from __future__ import annotations

import csv
from importlib.resources import files

import numpy as np
import pytest

from cbwk_core import Problem
from cbwk_core.simulation.delays import Delays
from cbwk_core.simulation.environments import BumpEnvironment, LinearEnvironment, PaperEnvironment
from cbwk_core.simulation.kinds import MENU_COST_MAX, MENU_DIMENSION, model_menu
from cbwk_core.simulation.measurement import COST_MAX
from cbwk_core.simulation.policies import build_policy
from cbwk_core.simulation.runner import run
from cbwk_core.static_optimum import static_optimum

pytestmark = pytest.mark.slow


def authors_newton(m, arms, horizon):
    """Mean regret of the authors' published code in one cell of their figures."""
    with (files("cbwk_core.simulation") / "paper_reference.csv").open() as lines:
        for row in csv.DictReader(lines):
            if (int(row["m"]), int(row["K"]), int(row["T"]), row["algorithm"]) == (m, arms, horizon, "newton"):
                return float(row["regret_mean"])
    raise AssertionError("no such cell")


def losses(name, environment, horizon, budget, seeds, **options):
    """Regret over T·OPT of every run, after a check that no run overspends."""
    problem = Problem.of(
        arms=environment.arms,
        dimension=environment.dimension,
        resources=environment.resources,
        horizon=horizon,
        budget=budget,
        max_cost=options.pop("max_cost", 1.0),
    )
    delays = options.pop("delays", None)
    policy = build_policy(name, problem, model=environment.model, **options)
    runs = run(policy, environment, horizon=horizon, budget=budget, seeds=range(seeds), delays=delays)
    assert runs.overspend.max() == 0.0
    best = horizon * environment.optimum(problem.rho * problem.unit)
    return (best - runs.reward) / best


@pytest.mark.parametrize(
    ("m", "arms", "horizon", "share"),
    [(10, 3, 2000, 0.12), (5, 3, 1000, 0.18), (52, 3, 2000, 0.1), (52, 10, 2000, 0.1), (52, 51, 2000, 0.22)],
)
def test_practical_regret_is_a_small_share_of_the_authors(m, arms, horizon, share):
    environment = PaperEnvironment(m=m, arms=arms)
    regret = losses("practical", environment, horizon, horizon / 4, seeds=10, max_cost=COST_MAX).mean() * horizon / 2
    assert regret <= share * authors_newton(m, arms, horizon)


def test_practical_has_half_the_regret_of_the_usual_alternatives_on_random_contexts():
    environment = LinearEnvironment(arms=5, dimension=8, resources=3)
    loss = {
        name: losses(name, environment, 2000, 300.0, seeds=6).mean()
        for name in ("practical", "linucb", "thompson-paced", "egreedy-paced")
    }
    assert loss["practical"] < 0.06
    assert loss["practical"] < 0.5 * min(loss["linucb"], loss["thompson-paced"], loss["egreedy-paced"])


def test_an_arm_without_plays_is_not_eliminated_by_the_small_noise_of_other_arms():
    environment = LinearEnvironment(arms=6, dimension=4, resources=1, model="per_arm", seed=3)
    assert losses("practical", environment, 1500, 1500.0, seeds=10).mean() < 0.045


def test_practical_finds_the_price_of_a_budget_sixty_times_smaller_than_another():
    environment = LinearEnvironment(arms=5, dimension=8, resources=4)
    assert losses("practical", environment, 3000, (1800.0, 900.0, 150.0, 30.0), seeds=10).mean() < 0.28


def test_practical_has_low_regret_with_delays_and_missing_outcomes():
    environment = LinearEnvironment(arms=5, dimension=8, resources=3)
    delays = Delays(rounds=100, varying=True, missing=0.3)
    assert losses("practical", environment, 2000, 300.0, seeds=6, delays=delays).mean() < 0.15


def test_aggregation_beats_the_linear_oracle_where_rewards_are_smooth_but_not_linear():
    environment = BumpEnvironment(arms=4, dimension=2, resources=2, seed=5)
    linear = losses("practical", environment, 2000, 400.0, seeds=6)
    aggregate = losses("practical", environment, 2000, 400.0, seeds=6, oracle="aggregate")
    error = np.sqrt((linear.var(ddof=1) + aggregate.var(ddof=1)) / 6)
    assert aggregate.mean() < linear.mean() - 2 * error


def reward_of_the_best_mix(world, horizon, rho, seed):
    """What the best mix that looks at no context earns, if an arm whose max cost is no longer left is null."""
    known = world.draw(np.random.default_rng(1), 0, 10_000)
    best = static_optimum(known.mean_reward.mean(axis=0)[None], known.mean_costs.mean(axis=0)[None], rho)
    rng, left, reward = np.random.default_rng(seed), horizon * rho, 0.0
    draw, uniforms = world.draw(rng, 0, horizon), rng.random((horizon, 1))
    for number, arm in enumerate((best.probabilities.cumsum() <= uniforms).sum(axis=1)):
        if arm < world.arms and MENU_COST_MAX[arm][0] <= left:
            left -= draw.costs[number, arm, 0]
            reward += draw.mean_reward[number, arm]
    return reward


@pytest.mark.parametrize("times", [1.0, 3.0, 30.0, 300.0])
def test_models_whose_costs_are_1_to_18_to_520_earn_what_the_best_fixed_mix_does_but_for_two_hundredths(times):
    """Nothing is spent on the dearest to learn that the budget cannot bear it."""
    horizon, worlds = 3600, [model_menu(seed, 3600) for seed in range(60_001, 60_009)]
    budget, seeds = horizon * times, range(len(worlds))
    sizes = {"arms": 3, "dimension": MENU_DIMENSION, "resources": 1, "horizon": horizon, "budget": budget}
    policy = build_policy("practical", Problem.of(**sizes, max_cost=MENU_COST_MAX), model="per_arm")
    runs = run(policy, worlds, horizon=horizon, budget=budget, seeds=seeds)
    assert runs.overspend.max() == 0.0
    mix = [reward_of_the_best_mix(world, horizon, times, seed) for world, seed in zip(worlds, seeds, strict=True)]
    totals = horizon * np.array([world.optimum(times) for world in worlds])
    assert np.mean((mix - runs.reward) / totals) <= 0.02
