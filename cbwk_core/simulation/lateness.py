"""Regret of `practical` with delayed outcomes in the suite's scenarios, and lower bounds with known means.

python -m cbwk_core.simulation.lateness --seeds 10
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from cbwk_core.arrays import Array
from cbwk_core.simulation.fluid import CONTEXTS, delay_losses
from cbwk_core.simulation.runner import run
from cbwk_core.simulation.scenarios import Scenario, scenarios


class DelayRow(NamedTuple):
    """Results for one scenario. All regrets are divided by T·OPT."""

    name: str
    undelayed: float  # with the same outcomes and no delay
    delayed: float
    error: float  # standard error of `delayed` over the seeds
    target: float  # 1.5·undelayed + 0.5·delay/T
    informed_bound: float  # lower bound for a policy that knows all means
    waiting_bound: float  # lower bound if it also plays nothing before the first outcome
    used: float  # largest share of a budget, mean over the seeds


def delayed_scenarios(scale: float = 1.0) -> list[Scenario]:
    """Return the scenarios of the suite with delayed outcomes in one environment."""
    return [scenario for scenario in scenarios(scale) if scenario.delay and scenario.world is None]


def loss_bounds(scenario: Scenario) -> tuple[float, float]:
    """Return the two lower bounds of `delay_losses` for the scenario."""
    draw = scenario.environment.draw(np.random.default_rng(0), 0, CONTEXTS)
    unit = scenario.problem(scenario.environment.dimension).unit
    rho = np.array(scenario.budget) / scenario.horizon / unit
    return delay_losses(draw.mean_reward, draw.mean_costs / unit, rho, scenario.delay)


def measure(scenario: Scenario, seeds: int) -> DelayRow:
    """Return the results of the scenario."""
    regret, used = _regrets(scenario, seeds)
    undelayed = float(_regrets(replace(scenario, delay=0.0), seeds)[0].mean())
    target = 1.5 * max(undelayed, 0.0) + 0.5 * scenario.delay
    error = float(regret.std(ddof=1) / np.sqrt(seeds))
    return DelayRow(scenario.name, undelayed, float(regret.mean()), error, target, *loss_bounds(scenario), used)


def _regrets(scenario: Scenario, seeds: int) -> tuple[Array, float]:
    runs = run(
        scenario.policy("practical"),
        scenario.environment,
        horizon=scenario.horizon,
        budget=scenario.budget,
        seeds=range(seeds),
        delays=scenario.delays,
    )
    used = float((runs.spent / np.array(scenario.budget)).max(axis=1).mean())
    return runs.regret(scenario.optimum) / scenario.optimum, used


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description="Measure the regret of `practical` with delayed outcomes, and print lower bounds."
    )
    parser.add_argument("--seeds", type=int, default=10, help="runs per scenario, at least 2")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the horizons")
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        parser.error("--seeds must be at least 2: one run has no standard error")
    with threadpool_limits(limits=1):
        for scenario in delayed_scenarios(options.scale):
            row = measure(scenario, options.seeds)
            print(
                f"{row.name}: regret {row.delayed:.4f} ± {row.error:.4f} of T·OPT, undelayed {row.undelayed:.4f}, "
                f"target {row.target:.4f}; lower bounds: {row.informed_bound:.4f} with known means, "
                f"{row.waiting_bound:.4f} if nothing is played before the first outcome; {row.used:.1%} of budget used"
            )


if __name__ == "__main__":
    main()
