"""What late outcomes cost `practical` in the suite's rows, beside what they cost whoever knows everything.

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
from cbwk_core.simulation.fluid import CONTEXTS, delay_costs
from cbwk_core.simulation.runner import run
from cbwk_core.simulation.scenarios import Scenario, scenarios


class Row(NamedTuple):
    """One row of the suite; regret over T·OPT."""

    name: str
    at_once: float  # with the same outcomes, not late
    late: float
    error: float  # its standard error over the seeds
    allowed: float  # 1.5 times that at once, and half of the share of T that outcomes are late by
    known: float  # lost at least by whoever knows everything
    waited: float  # and who besides plays nothing before the first outcome
    used: float  # of the budget that is used most


def delayed(scale: float = 1.0) -> list[Scenario]:
    """The suite's rows in which outcomes are late."""
    return [scenario for scenario in scenarios(scale) if scenario.delay]


def least(scenario: Scenario) -> tuple[float, float]:
    """What the delay costs at least, over T·OPT: see `delay_costs`."""
    draw = scenario.environment.draw(np.random.default_rng(0), 0, CONTEXTS)
    unit = scenario.cost_max
    rho = np.array(scenario.budget) / scenario.horizon / unit
    return delay_costs(draw.mean_reward, draw.mean_costs / unit, rho, scenario.delay)


def measured(scenario: Scenario, seeds: int) -> Row:
    """The row of the table."""
    lost, used = _regrets(scenario, seeds)
    at_once = float(_regrets(replace(scenario, delay=0.0), seeds)[0].mean())
    allowed = 1.5 * max(at_once, 0.0) + 0.5 * scenario.delay
    error = float(lost.std(ddof=1) / np.sqrt(seeds))
    return Row(scenario.name, at_once, float(lost.mean()), error, allowed, *least(scenario), used)


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
    """The command line."""
    parser = argparse.ArgumentParser(description="What late outcomes cost `practical`, and what they cost anybody.")
    parser.add_argument("--seeds", type=int, default=10, help="at least 2")
    parser.add_argument("--scale", type=float, default=1.0, help="of the horizons")
    chosen = parser.parse_args(arguments)
    if chosen.seeds < 2:
        parser.error("--seeds must be at least 2: of one there is no standard error")
    with threadpool_limits(limits=1):
        for scenario in delayed(chosen.scale):
            row = measured(scenario, chosen.seeds)
            print(
                f"{row.name}: {row.late:.4f} ± {row.error:.4f}, at once {row.at_once:.4f}, allowed {row.allowed:.4f}; "
                f"with everything known at least {row.known:.4f}, with nothing played before the first outcome "
                f"{row.waited:.4f}; {row.used:.1%} used"
            )


if __name__ == "__main__":
    main()
