"""How the regret of `practical` grows with the horizon and with the delay of outcomes, on random contexts.

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
from cbwk_core.simulation.fluid import delay_costs
from cbwk_core.simulation.policies import build_policy
from cbwk_core.simulation.runner import run

ENVIRONMENT = LinearEnvironment(arms=5, dimension=8, resources=2)
PACE = 0.25
HORIZONS = (1_000, 3_000, 10_000, 30_000, 100_000)
DELAY_SHARES = (0.0, 0.01, 0.03, 0.1)
DELAY_HORIZON = 10_000
# Contexts behind OPT: at T = 100,000 the regret is a few thousandths of T·OPT, so OPT must be known to a few
# ten-thousandths. The linear program cannot have so many; its dual, with as many variables as resources, can.
CONTEXTS = 2_000_000
CONTEXTS_PER_DRAW = 50_000
SLOPE_MAX = 0.55


class Row(NamedTuple):
    """One horizon and delay; regret in rewards."""

    horizon: int
    delay: int
    seeds: int
    optimum_total: float
    regret: float
    error: float  # standard error over the seeds
    used: float
    overspend: float


def dual_optimum(rewards: Array, costs: Array, rho: Array) -> float:
    """min over λ >= 0 of mean max(0, max_a r_a - λᵀc_a) + λᵀρ: the static optimum of (n, arms) and (n, arms, d).

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
def _contexts(environment: LinearEnvironment) -> tuple[Array, Array]:
    rng, rewards, costs = np.random.default_rng(0), [], []
    for start in range(0, CONTEXTS, CONTEXTS_PER_DRAW):
        draw = environment.draw(rng, start, CONTEXTS_PER_DRAW)
        rewards.append(draw.mean_reward)
        costs.append(draw.mean_costs)
    return np.concatenate(rewards), np.concatenate(costs)


@lru_cache(maxsize=8)
def fine_optimum(environment: LinearEnvironment, pace: float) -> float:
    """OPT over two million contexts."""
    return dual_optimum(*_contexts(environment), np.full(environment.resources, pace))


def regrets(horizon: int, delay: int, seeds: int) -> tuple[Array, Row]:
    """T·OPT minus reward in every run, and the row of the table."""
    world = ENVIRONMENT
    problem = Problem.of(
        arms=world.arms,
        dimension=world.dimension,
        resources=world.resources,
        horizon=horizon,
        budget=PACE * horizon,
    )
    policy = build_policy("practical", problem, model=world.model)
    delays = Delays(rounds=delay)
    runs = run(policy, world, horizon=horizon, budget=problem.budget, seeds=range(seeds), delays=delays)
    total = horizon * fine_optimum(world, PACE)
    lost = runs.regret(total)
    used = float((runs.spent / np.array(problem.budget)).max(axis=1).mean())
    error = float(lost.std(ddof=1) / np.sqrt(seeds))
    return lost, Row(horizon, delay, seeds, total, float(lost.mean()), error, used, float(runs.overspend.max()))


def slope(horizons: Sequence[int], losses: Sequence[Array]) -> tuple[float, float]:
    """Of log mean regret on log T, and its standard error by leaving out one seed after the other.

    >>> horizons = [100, 1_000, 10_000]
    >>> slope(horizons, [np.array([1.0, 3.0]) * np.sqrt(T) for T in horizons])
    (0.5, 0.0)
    """
    x, y = np.log(horizons), np.array(losses)

    def fitted(part: Array) -> float:
        return float(np.polyfit(x, np.log(np.maximum(part.mean(axis=1), 1e-9)), 1)[0])

    n = y.shape[1]
    left_out = np.array([fitted(np.delete(y, i, axis=1)) for i in range(n)])
    error = np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    return round(fitted(y), 6), round(float(error), 6)


def allowed(undelayed: Row, row: Row) -> float:
    """What regret may come to with a delay: 1.5 times that without, and half of what the delayed rounds could earn."""
    return 1.5 * undelayed.regret + 0.5 * row.delay / row.horizon * row.optimum_total


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Regret of `practical` over horizons and delays.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--horizon-max", type=int, default=max(HORIZONS))
    parser.add_argument("--out", type=Path, default=Path("out"))
    chosen = parser.parse_args(arguments)
    with threadpool_limits(limits=1):
        horizons = [horizon for horizon in HORIZONS if horizon <= chosen.horizon_max]
        measured = [regrets(horizon, 0, chosen.seeds) for horizon in horizons]
        delayed = [regrets(DELAY_HORIZON, round(share * DELAY_HORIZON), chosen.seeds)[1] for share in DELAY_SHARES]
        rho = np.full(ENVIRONMENT.resources, PACE)
        least = [delay_costs(*_contexts(ENVIRONMENT), rho, share) for share in DELAY_SHARES]
    for _, row in measured:
        print(f"T = {row.horizon:,}: {row.regret:.1f} ± {row.error:.1f}, {row.regret / row.optimum_total:.4f} of T·OPT")
    found, error = slope(horizons, [lost for lost, _ in measured])
    print(f"slope {found:.2f} ± {error:.2f}, at most {SLOPE_MAX}")
    for row, (known, waiting) in zip(delayed, least, strict=True):
        print(
            f"delay {row.delay:,}: {row.regret:.1f} ± {row.error:.1f}, allowed {allowed(delayed[0], row):.1f}; "
            f"with everything known at least {known * row.optimum_total:.1f}, "
            f"with nothing played before the first outcome {waiting * row.optimum_total:.1f}; {row.used:.1%} used"
        )
    chosen.out.mkdir(parents=True, exist_ok=True)
    with (chosen.out / "growth.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows([*(row for _, row in measured), *delayed])


if __name__ == "__main__":
    main()
