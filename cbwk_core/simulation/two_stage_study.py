"""Study of Algorithm 2: Z with the paper's and with the measured M(T0), and regret with one stage and with two.

    python -m cbwk_core.simulation.two_stage_study --runs 100 --out out

Budgets are B = 2·T^¾, for which T/B grows with T. The first table has Z and its coverage, from runs of stage one alone.
The second table has regret, from whole runs on the same rounds with one stage and with two. Its last rows have other
sizes, each with the smallest budget for which `auto` chooses two stages. The study takes about an hour on two cores.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from cbwk_core import stage_estimate, two_stage
from cbwk_core.arrays import Array
from cbwk_core.policy import SquareCBwK
from cbwk_core.problem import Problem
from cbwk_core.simulation.environment import Environment
from cbwk_core.simulation.environments import LinearEnvironment, PaperEnvironment
from cbwk_core.simulation.runner import run
from cbwk_core.simulation.worker_pool import run_tasks
from cbwk_core.state import Stage
from cbwk_core.ticket import NULL_ARM

ENVIRONMENTS: dict[str, Environment] = {
    "paper": PaperEnvironment(m=10, arms=3, resources=4),
    "linear": LinearEnvironment(arms=3, dimension=10, resources=4),
    "linear, rewards/10": LinearEnvironment(arms=3, dimension=10, resources=4, reward_scale=0.1),
}
# Every horizon with its number of runs: of stage one alone, and of whole runs.
HORIZONS = {1_000: (100, 20), 3_000: (100, 20), 10_000: (100, 20), 30_000: (100, 20), 100_000: (100, 10)}
# The longest horizon, for stage one alone.
STAGE_ONE_HORIZON, STAGE_ONE_RUNS = 1_000_000, 20
PRESETS = ("authors", "paper")
# Arms, features and resources of the rows with the smallest budget for two stages.
EDGE_SIZES = ((3, 10, 4), (2, 5, 1), (10, 5, 1), (20, 5, 2))
EDGE_HORIZON, EDGE_RUNS = two_stage.AUTO_HORIZON_MIN, 10
# From this horizon on, ln T/√T decreases.
HORIZON_OF_LARGEST_MARGIN = 8


class Setting(NamedTuple):
    """Environment, horizon and budget of a row."""

    name: str
    environment: Environment
    horizon: int
    budget: float

    @property
    def optimum(self) -> float:
        """OPT per round."""
        return self.environment.optimum(self.budget / self.horizon)

    def policy(self, preset: str, mode: str) -> SquareCBwK:
        """Return the policy with this preset and `two_stage`, under rules 1: the study decided their `auto`."""
        return SquareCBwK(
            arms=self.environment.arms,
            dimension=self.environment.dimension,
            resources=self.environment.resources,
            horizon=self.horizon,
            budget=self.budget,
            model=self.environment.model,
            preset=preset,
            two_stage=mode,
            rules=1,
        )


class Radius(NamedTuple):
    """Z after stage one."""

    environment: str
    T: int
    B: float
    T0: int
    largest_radius: float  # T/B
    optimal_radius: float  # T·OPT/B
    paper_margin: float  # M(T0)
    paper_mean: float  # Z, mean over the runs
    measured_margin: float  # M(T0), mean over the runs
    measured_mean: float  # Z, mean over the runs
    measured_low: float  # 5 % quantile of Z
    measured_high: float  # 95 % quantile of Z
    covered: int  # number of runs with T·OPT/B <= Z <= 3(T·OPT/B + 1)
    runs: int


class Regret(NamedTuple):
    """Regret over T·OPT with one stage and with two stages and the measured M(T0)."""

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
    difference_error: float  # standard error of the paired differences
    auto: str  # mode that `two_stage="auto"` chooses
    runs: int

    @property
    def pays(self) -> bool:
        """Whether two stages have less regret by more than two standard errors."""
        return self.difference < -2.0 * self.difference_error


class Task(NamedTuple):
    """A row to compute: a `Radius` row if the preset is None, else a `Regret` row."""

    setting: Setting
    preset: str | None
    runs: int

    @property
    def relative_duration(self) -> float:
        """Estimate of the duration, in an arbitrary unit."""
        horizon = self.setting.horizon
        return float(horizon if self.preset else 10.0 * self.runs**0.5 * horizon**0.5)


def budget_of(horizon: int) -> float:
    """Return 2·T^¾.

    >>> budget_of(10_000)
    2000.0
    """
    return float(2.0 * horizon**0.75)


def smallest_informative_horizon(*, arms: int, dimension: int, resources: int) -> int:
    """Return the smallest T for which the paper's M(T0) is below 1. For smaller T, Z is always T/B.

    T0 is rounded up, so M(T0) increases slightly while T0 is constant. The search looks at horizons where T0 grows.

    >>> f"{smallest_informative_horizon(arms=3, dimension=10, resources=4):,}"
    '50,369,906'
    """

    def problem(horizon: int) -> Problem:
        return Problem.of(arms=arms, dimension=dimension, resources=resources, horizon=horizon, budget=1.0)

    def first_with(t0: int) -> int:
        return _smallest(HORIZON_OF_LARGEST_MARGIN, lambda T: two_stage.theory_length(problem(T), rules=2) >= t0)

    shortest = two_stage.theory_length(problem(HORIZON_OF_LARGEST_MARGIN), rules=2) + 1
    return first_with(_smallest(shortest, lambda t0: two_stage.paper_margin(problem(first_with(t0)), rules=2) < 1.0))


def _smallest(start: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest integer >= start for which `holds` is True. It must stay True for all larger integers."""
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
    """Return what the policy collected in stage one, one lane per seed."""
    rngs = [np.random.default_rng(seed) for seed in seeds]
    rounds = (policy.arms + 1) * two_stage.length(policy)
    draws = [environment.draw(rng, 0, rounds) for rng in rngs]
    uniforms = np.stack([rng.random(rounds) for rng in rngs])
    state, no_costs = policy.init(len(seeds)), np.zeros(policy.resources)
    for t in range(rounds):
        choice = policy.decide(state, np.stack([draw.features[t] for draw in draws]), uniforms[:, t])
        state = policy.commit(state, choice.ticket)
        played = list(zip(draws, choice.arm, strict=True))
        rewards = [0.0 if arm == NULL_ARM else draw.reward[t, arm] for draw, arm in played]
        costs = [no_costs if arm == NULL_ARM else draw.costs[t, arm] for draw, arm in played]
        state = policy.settle(state, choice.ticket, rewards, np.stack(costs))
    if not policy.refresh_due(state):
        raise ArithmeticError(f"stage one must be over after {rounds} rounds")
    return state.stage


def radius_row(setting: Setting, runs: int) -> Radius:
    """Return Z with both margins, from the same runs of stage one in Algorithm 2's order of arms."""
    policy = setting.policy("paper", "measured")
    stage = first_stage(policy, setting.environment, range(runs))
    paper, measured = (stage_estimate.estimate(policy, stage, mode) for mode in ("paper", "measured"))
    largest_radius = setting.horizon / setting.budget
    optimal_radius, z = largest_radius * setting.optimum, measured.radius
    return Radius(
        environment=setting.name,
        T=setting.horizon,
        B=setting.budget,
        T0=two_stage.length(policy),
        largest_radius=largest_radius,
        optimal_radius=optimal_radius,
        paper_margin=two_stage.paper_margin(policy.problem, rules=1),
        paper_mean=float(paper.radius.mean()),
        measured_margin=float(measured.margin.mean()),
        measured_mean=float(z.mean()),
        measured_low=float(np.quantile(z, 0.05)),
        measured_high=float(np.quantile(z, 0.95)),
        covered=int(((z >= optimal_radius) & (z <= 3.0 * (optimal_radius + 1.0))).sum()),
        runs=runs,
    )


def regret_row(setting: Setting, preset: str, runs: int) -> Regret:
    """Return the regret with one stage and with two, on the same rounds."""
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


def compute_row(task: Task) -> Radius | Regret:
    """Return the row of the task."""
    if task.preset is None:
        return radius_row(task.setting, task.runs)
    return regret_row(task.setting, task.preset, task.runs)


def tasks_of(*, horizon_max: int, runs_max: int) -> list[Task]:
    """Return the tasks of all rows, in the order of the tables.

    >>> len(tasks_of(horizon_max=3_000, runs_max=10))
    18
    """
    radii, regrets = [], []
    for name, environment in ENVIRONMENTS.items():
        for horizon, (stages, whole) in HORIZONS.items():
            setting = Setting(name, environment, horizon, budget_of(horizon))
            radii.append(Task(setting, None, stages))
            regrets += [Task(setting, preset, whole) for preset in PRESETS]
        radii.append(
            Task(Setting(name, environment, STAGE_ONE_HORIZON, budget_of(STAGE_ONE_HORIZON)), None, STAGE_ONE_RUNS)
        )
    regrets.sort(key=lambda task: str(task.preset))
    edges = [Task(setting, "paper", EDGE_RUNS) for setting in edge_settings()]
    selected = [task for task in radii + regrets + edges if task.setting.horizon <= horizon_max]
    return [task._replace(runs=min(task.runs, runs_max)) for task in selected]


def edge_settings() -> list[Setting]:
    """Return settings of other sizes, each with the smallest budget for which `auto` chooses two stages.

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
            length = two_stage.theory_length(setting.policy("paper", "off").problem, rules=1)
            settings.append(setting._replace(budget=arms * length / two_stage.AUTO_SHARE_MAX))
    return settings


def markdown(rows: Sequence[Radius | Regret]) -> str:
    """Return both tables in Markdown."""
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
        f"{row.largest_radius:.2f}",
        f"{row.optimal_radius:.2f}",
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
    """Write `two_stage_radius.csv`, `two_stage_regret.csv` and `two_stage.md`."""
    out.mkdir(parents=True, exist_ok=True)
    for kind, name in ((Radius, "radius"), (Regret, "regret")):
        with (out / f"two_stage_{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(kind._fields)
            writer.writerows(row for row in rows if isinstance(row, kind))
    (out / "two_stage.md").write_text(markdown(rows), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure Z and regret of Algorithm 2 at B = 2·T^¾.")
    parser.add_argument("--runs", type=int, default=100, help="largest number of runs per row")
    parser.add_argument("--horizon-max", type=int, default=STAGE_ONE_HORIZON, help="skip longer horizons")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="number of processes")
    parser.add_argument("--out", type=Path, default=Path("out"), help="output directory")
    options = parser.parse_args(arguments)
    if min(options.runs, options.workers) < 1 or options.horizon_max < min(HORIZONS):
        parser.error(f"--runs and --workers must be at least 1, --horizon-max at least {min(HORIZONS)}")
    tasks = tasks_of(horizon_max=options.horizon_max, runs_max=options.runs)
    rows = run_tasks(
        compute_row,
        tasks,
        workers=options.workers,
        description=f"{len(tasks)} rows",
        console=Console(stderr=True),
    )
    write(options.out, rows)
    informative = smallest_informative_horizon(arms=3, dimension=10, resources=4)
    print(markdown(rows))
    print(f"The paper's M(T0) is below 1 from T = {informative:,} on (K = 3, m = 10, d = 4).")


if __name__ == "__main__":
    main()
