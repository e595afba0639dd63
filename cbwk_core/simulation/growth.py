"""Growth of the regret of `practical` with the horizon and with the delay of outcomes, on random contexts.

python -m cbwk_core.simulation.growth --seeds 20
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from cbwk_core.arrays import Array
from cbwk_core.problem import Problem
from cbwk_core.simulation.delays import Delays
from cbwk_core.simulation.environments import LinearEnvironment
from cbwk_core.simulation.fluid import delay_losses
from cbwk_core.simulation.policies import build_policy
from cbwk_core.simulation.runner import run

ENVIRONMENT = LinearEnvironment(arms=5, dimension=8, resources=2)
RHO = 0.25
HORIZONS = (1_000, 3_000, 10_000, 30_000, 100_000)
DELAY_SHARES = (0.0, 0.01, 0.03, 0.1)
DELAY_HORIZON = 10_000
# Contexts for OPT. At T = 100,000 the regret is a few thousandths of T·OPT, so the error of OPT must be a few
# ten-thousandths. The linear program is too slow for this sample; its dual has one variable per resource and is not.
CONTEXTS = 2_000_000
CONTEXTS_PER_DRAW = 50_000
SLOPE_MAX = 0.55


class GrowthRow(NamedTuple):
    """Results for one horizon and delay. The regret is in units of reward."""

    horizon: int
    delay: int
    seeds: int
    optimum_total: float
    regret: float
    error: float  # standard error over the seeds
    used: float  # largest share of a budget, mean over the seeds
    overspend: float  # largest over seeds and resources


def dual_optimum(rewards: Array, costs: Array, rho: Array) -> float:
    """Return min over λ >= 0 of mean max(0, max_a r_a - λᵀc_a) + λᵀρ, the static optimum of the sampled contexts.

    rewards: (n, arms). costs: (n, arms, d).

    >>> from cbwk_core.static_optimum import static_optimum
    >>> rng = np.random.default_rng(0)
    >>> r, c, rho = rng.random((500, 3)), rng.random((500, 3, 2)), np.array([0.2, 0.1])
    >>> bool(abs(dual_optimum(r, c, rho) - static_optimum(r, c, rho).value) < 1e-3)
    True
    """

    def value(prices: Array) -> tuple[float, Array]:
        worth = rewards - costs @ prices
        best = worth.argmax(axis=1)
        index = np.arange(best.size)
        top = worth[index, best]
        played = top > 0
        gradient = rho - (costs[index, best] * played[:, None]).mean(axis=0)
        return float(np.where(played, top, 0.0).mean() + prices @ rho), gradient

    start = np.full(rho.size, rewards.mean() / max(float(costs.mean()), 1e-12))
    return float(minimize(value, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * rho.size).fun)


@lru_cache(maxsize=8)
def _sampled_means(environment: LinearEnvironment) -> tuple[Array, Array]:
    rng, rewards, costs = np.random.default_rng(0), [], []
    for start in range(0, CONTEXTS, CONTEXTS_PER_DRAW):
        draw = environment.draw(rng, start, CONTEXTS_PER_DRAW)
        rewards.append(draw.mean_reward)
        costs.append(draw.mean_costs)
    return np.concatenate(rewards), np.concatenate(costs)


@lru_cache(maxsize=8)
def _precise_optimum(environment: LinearEnvironment, rho: float) -> float:
    """Return OPT over CONTEXTS contexts."""
    return dual_optimum(*_sampled_means(environment), np.full(environment.resources, rho))


def measure(horizon: int, delay: int, seeds: int) -> tuple[Array, GrowthRow]:
    """Return T·OPT minus reward of every run, and the row of the table."""
    problem = Problem.of(
        arms=ENVIRONMENT.arms,
        dimension=ENVIRONMENT.dimension,
        resources=ENVIRONMENT.resources,
        horizon=horizon,
        budget=RHO * horizon,
    )
    policy = build_policy("practical", problem, model=ENVIRONMENT.model)
    delays = Delays(rounds=delay)
    runs = run(policy, ENVIRONMENT, horizon=horizon, budget=problem.budget, seeds=range(seeds), delays=delays)
    total = horizon * _precise_optimum(ENVIRONMENT, RHO)
    regret = runs.regret(total)
    used = float((runs.spent / np.array(problem.budget)).max(axis=1).mean())
    error = float(regret.std(ddof=1) / np.sqrt(seeds))
    return regret, GrowthRow(
        horizon, delay, seeds, total, float(regret.mean()), error, used, float(runs.overspend.max())
    )


def slope(horizons: Sequence[int], regrets: Sequence[Array]) -> tuple[float, float]:
    """Return the slope of log mean regret against log T, and its jackknife standard error over the seeds.

    >>> horizons = [100, 1_000, 10_000]
    >>> slope(horizons, [np.array([1.0, 3.0]) * np.sqrt(T) for T in horizons])
    (0.5, 0.0)
    """
    x, y = np.log(horizons), np.array(regrets)

    def fitted(runs: Array) -> float:
        return float(np.polyfit(x, np.log(np.maximum(runs.mean(axis=1), 1e-9)), 1)[0])

    n = y.shape[1]
    left_out = np.array([fitted(np.delete(y, i, axis=1)) for i in range(n)])
    error = np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    return round(fitted(y), 6), round(float(error), 6)


def allowed_regret(undelayed: GrowthRow, row: GrowthRow) -> float:
    """Return the target for the regret with a delay: 1.5 times the undelayed regret plus half of delay·OPT."""
    return 1.5 * undelayed.regret + 0.5 * row.delay / row.horizon * row.optimum_total


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description="Measure the regret of `practical` over horizons and delays, and write growth.csv."
    )
    parser.add_argument("--seeds", type=int, default=20, help="runs per row")
    parser.add_argument("--horizon-max", type=int, default=max(HORIZONS), help="skip longer horizons")
    parser.add_argument("--out", type=Path, default=Path("out"), help="output directory")
    options = parser.parse_args(arguments)
    with threadpool_limits(limits=1):
        horizons = [horizon for horizon in HORIZONS if horizon <= options.horizon_max]
        measured = [measure(horizon, 0, options.seeds) for horizon in horizons]
        delayed = [measure(DELAY_HORIZON, round(share * DELAY_HORIZON), options.seeds)[1] for share in DELAY_SHARES]
        rho = np.full(ENVIRONMENT.resources, RHO)
        bounds = [delay_losses(*_sampled_means(ENVIRONMENT), rho, share) for share in DELAY_SHARES]
    for _, row in measured:
        share = row.regret / row.optimum_total
        print(f"T = {row.horizon:,}: regret {row.regret:.1f} ± {row.error:.1f}, {share:.4f} of T·OPT")
    found, error = slope(horizons, [regret for regret, _ in measured])
    print(f"slope {found:.2f} ± {error:.2f}, target: at most {SLOPE_MAX}")
    for row, (informed, waiting) in zip(delayed, bounds, strict=True):
        print(
            f"delay {row.delay:,}: regret {row.regret:.1f} ± {row.error:.1f}, "
            f"target {allowed_regret(delayed[0], row):.1f}; lower bounds: {informed * row.optimum_total:.1f} with "
            f"known means, {waiting * row.optimum_total:.1f} if nothing is played before the first outcome; "
            f"{row.used:.1%} of the budget used"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "growth.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(GrowthRow._fields)
        writer.writerows([*(row for _, row in measured), *delayed])


if __name__ == "__main__":
    main()
