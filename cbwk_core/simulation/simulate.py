"""`cbwk simulate`: policies in one environment, a table of regret and spend, and a plot of regret over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from cbwk_core.problem import Problem
from cbwk_core.simulation import plots
from cbwk_core.simulation.delays import Delays
from cbwk_core.simulation.environment import Environment
from cbwk_core.simulation.environments import (
    BumpEnvironment,
    LinearEnvironment,
    LogisticEnvironment,
    PaperEnvironment,
)
from cbwk_core.simulation.policies import build_policy
from cbwk_core.simulation.runner import Runs, run

# Costs are nominally in [0, 1] in every environment, so this is the paper's B = T/4.
BUDGET_SHARE = 0.25
HORIZON_MAX = 10_000_000
RUNS_MAX = 10_000
SEED_MAX = 2**62
# Seed of the environment's parameters. Outcomes and uniforms of a run come from the seed of the run.
ENVIRONMENT_SEED = 0


class Sizes(NamedTuple):
    """Sizes of an environment."""

    arms: int
    dimension: int
    resources: int


DEFAULT_SIZES = {
    "paper": Sizes(arms=3, dimension=10, resources=4),
    "linear": Sizes(arms=5, dimension=8, resources=2),
    "logistic": Sizes(arms=5, dimension=8, resources=2),
    "bumps": Sizes(arms=3, dimension=1, resources=2),
}


def build_environment(
    name: str, *, arms: int | None = None, dimension: int | None = None, resources: int | None = None
) -> Environment:
    """Return the environment of this name. Sizes that are None have their default.

    >>> build_environment("paper", arms=5).arms, build_environment("logistic").resources
    (5, 2)
    """
    if name not in DEFAULT_SIZES:
        raise ValueError(f"environment must be one of {', '.join(DEFAULT_SIZES)}, got {name!r}")
    default = DEFAULT_SIZES[name]
    size = Sizes(
        default.arms if arms is None else arms,
        default.dimension if dimension is None else dimension,
        default.resources if resources is None else resources,
    )
    if min(size) < 1:
        raise ValueError(f"arms, dimension and resources must be at least 1, got {', '.join(map(str, size))}")
    if name == "paper":
        return PaperEnvironment(m=size.dimension, arms=size.arms, resources=size.resources)
    if name == "linear":
        return LinearEnvironment(*size, seed=ENVIRONMENT_SEED)
    if name == "bumps":
        return BumpEnvironment(*size, seed=ENVIRONMENT_SEED)
    if size.resources != default.resources:
        raise ValueError(f"the logistic environment has 2 resources, money and impressions, got {size.resources}")
    return LogisticEnvironment(size.arms, size.dimension, seed=ENVIRONMENT_SEED)


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The parameters of a simulation.

    budget: one value for all resources or one per resource. Empty: a quarter of the horizon.
    delay: number of rounds until an outcome is known. missing: share of the outcomes that are never reported.
    seed: seed of the first run; run i has seed + i. oracle, link: options of SquareCBwK.

    >>> Simulation(environment="paper", policies=("practical",)).problem.budget
    (500.0, 500.0, 500.0, 500.0)
    """

    environment: str
    policies: tuple[str, ...]
    horizon: int = 2000
    runs: int = 10
    seed: int = 0
    delay: int = 0
    missing: float = 0.0
    budget: tuple[float, ...] = ()
    arms: int | None = None
    dimension: int | None = None
    resources: int | None = None
    oracle: str = "newton"
    link: str = "identity"

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("horizon", self.horizon, 1, HORIZON_MAX),
            ("runs", self.runs, 1, RUNS_MAX),
            ("seed", self.seed, 0, SEED_MAX),
            ("delay", self.delay, 0, HORIZON_MAX),
            ("missing", self.missing, 0, 1),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} must lie in {low}..{high}, got {value}")
        if not self.policies:
            raise ValueError("there must be at least one policy, got none")
        if len(self.budget) not in (0, 1, self.built_environment.resources):
            raise ValueError(f"budget must be one number or {self.built_environment.resources}, got {len(self.budget)}")
        for name in self.policies:
            build_policy(name, self.problem, model=self.built_environment.model, oracle=self.oracle, link=self.link)

    @cached_property
    def built_environment(self) -> Environment:
        """The environment."""
        return build_environment(self.environment, arms=self.arms, dimension=self.dimension, resources=self.resources)

    @cached_property
    def problem(self) -> Problem:
        """The problem that the policies get."""
        budget = self.budget or (BUDGET_SHARE * self.horizon,)
        environment = self.built_environment
        return Problem.of(
            arms=environment.arms,
            dimension=environment.dimension,
            resources=environment.resources,
            horizon=self.horizon,
            budget=budget[0] if len(budget) == 1 else budget,
        )

    @cached_property
    def delays(self) -> Delays:
        """Delays in rounds, and the share of missing outcomes."""
        return Delays(rounds=self.delay, missing=self.missing)

    def run(self, policy: str, progress: Callable[[int, int], None] | None = None) -> Runs:
        """Return the results of all runs of one policy."""
        built = build_policy(
            policy, self.problem, model=self.built_environment.model, oracle=self.oracle, link=self.link
        )
        return run(
            built,
            self.built_environment,
            horizon=self.horizon,
            budget=self.problem.budget,
            seeds=range(self.seed, self.seed + self.runs),
            delays=self.delays,
            progress=progress,
        )


def simulate(simulation: Simulation, *, out: Path, console: Console, progress_console: Console) -> Path:
    """Run the simulation, print the table, draw the plot, and return its path."""
    out.mkdir(parents=True, exist_ok=True)
    with threadpool_limits(limits=1):
        optimum = simulation.built_environment.optimum(simulation.problem.rho)
        results = _results(simulation, progress_console)
    console.print(_table(simulation, optimum, results))
    tracks = [
        plots.Track(name, runs.curve_rounds, optimum * runs.curve_rounds - runs.curve)
        for name, runs in zip(simulation.policies, results, strict=True)
    ]
    path = out / f"simulate_{simulation.environment}.png"
    plots.draw_tracks(path, _title(simulation), tracks)
    console.print(f"plot of regret over time: {path}", highlight=False, soft_wrap=True)
    return path


def _results(simulation: Simulation, console: Console) -> list[Runs]:
    results = []
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        for name in simulation.policies:
            bar = progress.add_task(name, total=simulation.horizon)

            def report(done: int, horizon: int, bar: TaskID = bar) -> None:
                progress.update(bar, completed=done, total=horizon)

            results.append(simulation.run(name, report))
            progress.update(bar, completed=simulation.horizon)
    return results


def _table(simulation: Simulation, optimum: float, results: Sequence[Runs]) -> Table:
    total = optimum * simulation.horizon
    table = Table(
        title=_title(simulation),
        caption=f"T·OPT = {total:,.1f}; mean ± standard error over the runs; budget used: the resource used most",
    )
    for name in ("policy", "regret / T·OPT", "regret", "budget used", "overspend"):
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for name, runs in zip(simulation.policies, results, strict=True):
        regret = runs.regret(total)
        error = regret.std(ddof=1) / np.sqrt(regret.size) if regret.size > 1 else 0.0
        used = (runs.spent / np.array(simulation.problem.budget)).max(axis=1).mean()
        table.add_row(
            name,
            f"{regret.mean() / total:.4f} ± {error / total:.4f}",
            f"{regret.mean():,.1f} ± {error:,.1f}",
            f"{used:.1%}",
            f"{runs.overspend.max():g}",
        )
    return table


def _title(simulation: Simulation) -> str:
    problem = simulation.problem
    parts = [f"{simulation.environment} environment: T = {problem.horizon:,}", f"{problem.arms} arms"]
    parts.append(
        f"dimension {problem.dimension}, budgets {', '.join(f'{each:g}' for each in _distinct(problem.budget))}"
    )
    if simulation.delay:
        parts.append(f"delay {simulation.delay}")
    if simulation.missing:
        parts.append(f"{simulation.missing:.0%} missing")
    return ", ".join(parts)


def _distinct(budget: tuple[float, ...]) -> tuple[float, ...]:
    """Return one budget if all are equal, else all."""
    return budget[:1] if len(set(budget)) == 1 else budget
