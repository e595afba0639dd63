"""Does Algorithm 2 pay? Z with the paper's M(T0) and with the measured one, and the regret of one stage and of two.

    python -m cbwk_core.simulation.two_stage_study --runs 100 --out out

Budgets are B = 2·T^¾, where T/B grows and T·OPT/B need not. Z and its coverage come from stage one alone, in as many
runs as asked for; regret comes from whole runs, where fewer do, on the same rounds for one stage and for two. A third
table has other sizes and the smallest budget at which `auto` has two stages. All takes about an hour on two cores.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cbwk_core import stage_estimate, two_stage
from cbwk_core.arrays import Array
from cbwk_core.policy import SquareCBwK
from cbwk_core.problem import Problem
from cbwk_core.simulation.environment import Environment
from cbwk_core.simulation.environments import LinearEnvironment, PaperEnvironment
from cbwk_core.simulation.measurement import use_one_blas_thread
from cbwk_core.simulation.runner import run
from cbwk_core.state import Stage
from cbwk_core.ticket import NULL_ARM

ENVIRONMENTS: dict[str, Environment] = {
    "paper": PaperEnvironment(m=10, arms=3, resources=4),
    "linear": LinearEnvironment(arms=3, dimension=10, resources=4),
    "linear, rewards/10": LinearEnvironment(arms=3, dimension=10, resources=4, reward_scale=0.1),
}
# Every horizon with the runs it is worth: of stage one, and whole ones.
HORIZONS = {1_000: (100, 20), 3_000: (100, 20), 10_000: (100, 20), 30_000: (100, 20), 100_000: (100, 10)}
# Z is also computed here, but no policy is run for so long.
LAST_HORIZON, LAST_RUNS = 1_000_000, 20
PRESETS = ("authors", "paper")
# Arms, features and resources of the third table.
EDGE_SIZES = ((3, 10, 4), (2, 5, 1), (10, 5, 1), (20, 5, 2))
EDGE_HORIZON, EDGE_RUNS = two_stage.AUTO_HORIZON_MIN, 10
# ln T/√T falls from here on.
HORIZON_OF_LARGEST_MARGIN = 8


class Setting(NamedTuple):
    """Where a row is computed."""

    name: str
    environment: Environment
    horizon: int
    budget: float

    @property
    def optimum(self) -> float:
        """OPT, per round."""
        return self.environment.optimum(self.budget / self.horizon)

    def policy(self, preset: str, mode: str) -> SquareCBwK:
        """A policy for it."""
        return SquareCBwK(
            arms=self.environment.arms,
            dimension=self.environment.dimension,
            resources=self.environment.resources,
            horizon=self.horizon,
            budget=self.budget,
            model=self.environment.model,
            preset=preset,
            two_stage=mode,
        )


class Radius(NamedTuple):
    """What stage one says."""

    environment: str
    T: int
    B: float
    T0: int
    widest: float  # T/B
    wanted: float  # T·OPT/B
    paper_margin: float  # M(T0)
    paper_mean: float  # Z
    measured_margin: float  # M(T0), mean over the runs
    measured_mean: float  # Z
    measured_low: float  # its 5 % quantile
    measured_high: float  # its 95 % quantile
    covered: int  # runs with T·OPT/B <= Z <= 3(T·OPT/B + 1)
    runs: int


class Regret(NamedTuple):
    """One stage against two with the measured M(T0), in shares of T·OPT."""

    environment: str
    K: int
    m: int
    d: int
    T: int
    B: float
    preset: str
    one: float
    one_error: float  # standard error
    two: float
    two_error: float
    difference: float  # two - one
    difference_error: float  # of the differences run by run
    auto: str  # what `two_stage: auto` does
    runs: int

    @property
    def pays(self) -> bool:
        """Whether two stages have less regret, by more than two standard errors."""
        return self.difference < -2.0 * self.difference_error


class Task(NamedTuple):
    """A row to be computed; without a preset that of Z."""

    setting: Setting
    preset: str | None
    runs: int

    @property
    def work(self) -> float:
        """How long it takes, roughly and in no unit."""
        horizon = self.setting.horizon
        return float(horizon if self.preset else 10.0 * self.runs**0.5 * horizon**0.5)


def budget_of(horizon: int) -> float:
    """2·T^¾.

    >>> budget_of(10_000)
    2000.0
    """
    return float(2.0 * horizon**0.75)


def smallest_informative_horizon(*, arms: int, dimension: int, resources: int) -> int:
    """The least T at which the paper's M(T0) is below 1; before, Z can only be T/B.

    T0 is rounded up, so M(T0) rises a little between two values of T0; the horizons where T0 grows are searched.

    >>> f"{smallest_informative_horizon(arms=3, dimension=10, resources=4):,}"
    '19,063,233'
    """

    def problem(horizon: int) -> Problem:
        return Problem.of(arms=arms, dimension=dimension, resources=resources, horizon=horizon, budget=1.0)

    def first_with(t0: int) -> int:
        return _least(HORIZON_OF_LARGEST_MARGIN, lambda T: two_stage.theory_length(problem(T)) >= t0)

    shortest = two_stage.theory_length(problem(HORIZON_OF_LARGEST_MARGIN)) + 1
    return first_with(_least(shortest, lambda t0: stage_estimate.paper_margin(problem(first_with(t0))) < 1.0))


def _least(start: int, holds: Callable[[int], bool]) -> int:
    """The least whole number from `start` on for which it holds, if it holds for all after the first."""
    step = 1
    while not holds(start + step):
        step *= 2
    low, high = start + step // 2, start + step
    if step == 1 and holds(start):
        return start
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def first_stage(policy: SquareCBwK, environment: Environment, seeds: Sequence[int]) -> Stage:
    """What the policy has collected when stage one is over, one lane per seed."""
    rngs = [np.random.default_rng(seed) for seed in seeds]
    rounds = (policy.arms + 1) * two_stage.length(policy)
    draws = [environment.draw(rng, 0, rounds) for rng in rngs]
    uniforms = np.stack([rng.random(rounds) for rng in rngs])
    state, nothing = policy.init(len(seeds)), np.zeros(policy.resources)
    for t in range(rounds):
        choice = policy.decide(state, np.stack([draw.features[t] for draw in draws]), uniforms[:, t])
        state = policy.commit(state, choice.ticket)
        played = list(zip(draws, choice.arm, strict=True))
        rewards = [0.0 if arm == NULL_ARM else draw.reward[t, arm] for draw, arm in played]
        costs = [nothing if arm == NULL_ARM else draw.costs[t, arm] for draw, arm in played]
        state = policy.settle(state, choice.ticket, rewards, np.stack(costs))
    if not policy.refresh_due(state):
        raise ArithmeticError(f"stage one must be over after {rounds} rounds")
    return state.stage


def radius_row(setting: Setting, runs: int) -> Radius:
    """Z of many runs of stage one in Algorithm 2's order of arms, by both margins from the same outcomes."""
    policy = setting.policy("paper", "measured")
    stage = first_stage(policy, setting.environment, range(runs))
    paper, measured = (stage_estimate.estimate(policy, stage, mode) for mode in ("paper", "measured"))
    widest = setting.horizon / setting.budget
    wanted, z = widest * setting.optimum, measured.radius
    return Radius(
        environment=setting.name,
        T=setting.horizon,
        B=setting.budget,
        T0=two_stage.length(policy),
        widest=widest,
        wanted=wanted,
        paper_margin=stage_estimate.paper_margin(policy.problem),
        paper_mean=float(paper.radius.mean()),
        measured_margin=float(measured.margin.mean()),
        measured_mean=float(z.mean()),
        measured_low=float(np.quantile(z, 0.05)),
        measured_high=float(np.quantile(z, 0.95)),
        covered=int(((z >= wanted) & (z <= 3.0 * (wanted + 1.0))).sum()),
        runs=runs,
    )


def regret_row(setting: Setting, preset: str, runs: int) -> Regret:
    """Whole runs with one stage and with two, on the same rounds."""
    environment = setting.environment
    one, two = (_regret(setting, setting.policy(preset, mode), runs) for mode in ("off", "measured"))
    return Regret(
        environment=setting.name,
        K=environment.arms,
        m=environment.dimension,
        d=environment.resources,
        T=setting.horizon,
        B=setting.budget,
        preset=preset,
        one=float(one.mean()),
        one_error=_standard_error(one),
        two=float(two.mean()),
        two_error=_standard_error(two),
        difference=float((two - one).mean()),
        difference_error=_standard_error(two - one),
        auto=two_stage.mode_of(setting.policy(preset, "auto")),
        runs=runs,
    )


def _regret(setting: Setting, policy: SquareCBwK, runs: int) -> Array:
    total = setting.horizon * setting.optimum
    results = run(policy, setting.environment, horizon=setting.horizon, budget=setting.budget, seeds=range(runs))
    return results.regret(total) / total


def _standard_error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan


def _row(task: Task) -> Radius | Regret:
    if task.preset is None:
        return radius_row(task.setting, task.runs)
    return regret_row(task.setting, task.preset, task.runs)


def tasks_of(*, horizon_max: int, runs_max: int) -> list[Task]:
    """All rows, in the order of the tables.

    >>> len(tasks_of(horizon_max=3_000, runs_max=10))
    18
    """
    radii, regrets = [], []
    for name, environment in ENVIRONMENTS.items():
        for horizon, (stages, whole) in HORIZONS.items():
            setting = Setting(name, environment, horizon, budget_of(horizon))
            radii.append(Task(setting, None, stages))
            regrets += [Task(setting, preset, whole) for preset in PRESETS]
        radii.append(Task(Setting(name, environment, LAST_HORIZON, budget_of(LAST_HORIZON)), None, LAST_RUNS))
    regrets.sort(key=lambda task: str(task.preset))
    edges = [Task(setting, "paper", EDGE_RUNS) for setting in edge_settings()]
    asked = [task for task in radii + regrets + edges if task.setting.horizon <= horizon_max]
    return [task._replace(runs=min(task.runs, runs_max)) for task in asked]


def edge_settings() -> list[Setting]:
    """Other sizes, each with the smallest budget for which `auto` has two stages.

    >>> {two_stage.mode_of(setting.policy("paper", "auto")) for setting in edge_settings()}
    {'measured'}
    """
    settings = []
    for arms, dimension, resources in EDGE_SIZES:
        linear = LinearEnvironment(arms=arms, dimension=dimension, resources=resources)
        environments: dict[str, Environment] = {
            "linear": linear,
            "linear, rewards/10": replace(linear, reward_scale=0.1),
            "linear, 0 or 1": replace(linear, outcomes="bernoulli"),
            "linear, per arm": replace(linear, model="per_arm"),
        }
        if arms < dimension:
            environments["paper"] = PaperEnvironment(m=dimension, arms=arms, resources=resources)
        for name, environment in environments.items():
            setting = Setting(name, environment, EDGE_HORIZON, 1.0)
            length = two_stage.theory_length(setting.policy("paper", "off").problem)
            settings.append(setting._replace(budget=arms * length / two_stage.AUTO_SHARE_MAX))
    return settings


def _rows(tasks: Sequence[Task], workers: int) -> Iterator[tuple[Task, Radius | Regret]]:
    """Rows as they are done, the longest first."""
    ordered = sorted(tasks, key=lambda task: -task.work)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=use_one_blas_thread)
    try:
        futures = {pool.submit(_row, task): task for task in ordered}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def study(tasks: Sequence[Task], *, workers: int, console: Console) -> list[Radius | Regret]:
    """The rows of the tasks, in their order."""
    done: dict[Task, Radius | Regret] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task(f"{len(tasks)} rows", total=sum(task.work for task in tasks))
        for task, row in _rows(tasks, workers):
            done[task] = row
            progress.advance(bar, task.work)
    return [done[task] for task in tasks]


def markdown(rows: Sequence[Radius | Regret]) -> str:
    """All tables."""
    heads = ["environment", "T", "B", "T0", "T/B", "T·OPT/B", "paper's M", "its Z", "measured M", "its Z", "covered"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [_radius_line(row) for row in rows if isinstance(row, Radius)]
    heads = ["preset", "environment", "K, m, d", "T", "B", "one stage", "two stages", "two − one", "pays", "auto"]
    lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [_regret_line(row) for row in rows if isinstance(row, Regret)]
    return "\n".join([*lines, ""])


def _radius_line(row: Radius) -> str:
    cells = (
        row.environment,
        f"{row.T:,}",
        f"{row.B:,.0f}",
        f"{row.T0:,}",
        f"{row.widest:.2f}",
        f"{row.wanted:.2f}",
        f"{row.paper_margin:.2f}",
        f"{row.paper_mean:.2f}",
        f"{row.measured_margin:.3f}",
        f"{row.measured_mean:.2f} ({row.measured_low:.2f}–{row.measured_high:.2f})",
        f"{row.covered} of {row.runs}",
    )
    return f"| {' | '.join(cells)} |"


def _regret_line(row: Regret) -> str:
    cells = (
        row.preset,
        row.environment,
        f"{row.K}, {row.m}, {row.d}",
        f"{row.T:,}",
        f"{row.B:,.0f}",
        f"{row.one:.3f} ± {row.one_error:.3f}",
        f"{row.two:.3f} ± {row.two_error:.3f}",
        f"{row.difference:+.3f} ± {row.difference_error:.3f}".replace("-", "−"),
        "yes" if row.pays else "no",
        "one" if row.auto == "off" else "two",
    )
    return f"| {' | '.join(cells)} |"


def write(out: Path, rows: Sequence[Radius | Regret]) -> None:
    """`two_stage_radius.csv`, `two_stage_regret.csv` and `two_stage.md`."""
    out.mkdir(parents=True, exist_ok=True)
    for kind, name in ((Radius, "radius"), (Regret, "regret")):
        with (out / f"two_stage_{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(kind._fields)
            writer.writerows(row for row in rows if isinstance(row, kind))
    (out / "two_stage.md").write_text(markdown(rows), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Z and regret of Algorithm 2 at B = 2·T^¾.")
    parser.add_argument("--runs", type=int, default=100, help="at most, for any row")
    parser.add_argument("--horizon-max", type=int, default=LAST_HORIZON, help="leave out longer rows")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the tables go")
    chosen = parser.parse_args(arguments)
    if min(chosen.runs, chosen.workers) < 1 or chosen.horizon_max < min(HORIZONS):
        parser.error(f"--runs and --workers must be at least 1, --horizon-max at least {min(HORIZONS)}")
    tasks = tasks_of(horizon_max=chosen.horizon_max, runs_max=chosen.runs)
    rows = study(tasks, workers=chosen.workers, console=Console(stderr=True))
    write(chosen.out, rows)
    least = smallest_informative_horizon(arms=3, dimension=10, resources=4)
    print(markdown(rows))
    print(f"The paper's M(T0) is below 1 from T = {least:,} on (K = 3, m = 10, d = 4).")


if __name__ == "__main__":
    main()
