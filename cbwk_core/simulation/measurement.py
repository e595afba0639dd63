"""Measurement of one algorithm in one cell of a grid. All runs of a cell are lanes of one simulation."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from cbwk_core.problem import Problem
from cbwk_core.simulation.environments import PaperEnvironment
from cbwk_core.simulation.grids import Cell, Row
from cbwk_core.simulation.policies import build_policy
from cbwk_core.simulation.runner import Runs, run

# With more runs, two cells would share seeds.
RUNS_MAX = 1000

# Max cost of `practical`. The paper's noise is not clipped, so a cost can exceed 1. `practical` holds 2 per decision,
# the same reserve as in the authors' code. The other algorithms have a max cost of 1.
COST_MAX = 2.0


class Task(NamedTuple):
    """One algorithm in one cell."""

    cell: Cell
    algorithm: str  # name in the results
    policy: str
    oracle: str
    runs: int

    @property
    def relative_duration(self) -> float:
        """Estimate of the duration, in an arbitrary unit: the calls of a round plus its matrix operations."""
        return self.cell.T * (1.0 + self.cell.m * (self.cell.m + self.cell.K) / 3000.0)

    @property
    def seeds(self) -> range:
        """Seeds of the runs: equal for all algorithms of a cell, different in every cell."""
        first = ((self.cell.T * 1000 + self.cell.m) * 1000 + self.cell.K) * RUNS_MAX
        return range(first, first + self.runs)


class Measured(NamedTuple):
    """The result of a task."""

    task: Task
    row: Row
    overspend: float  # largest over runs and resources


class SpeedUp(NamedTuple):
    """Durations of the same runs as lanes of one simulation and one after another."""

    task: Task
    lanes_seconds: float
    sequential_seconds: float

    @property
    def factor(self) -> float:
        """Ratio of the two durations."""
        return self.sequential_seconds / self.lanes_seconds


def measure(task: Task) -> Measured:
    """Run the task and return its result.

    >>> cell = Cell(figure="1c_T_m5", m=5, K=3, d=4, T=100, B=25.0)
    >>> measured = measure(Task(cell, "practical", "practical", "newton", runs=3))
    >>> measured.row.T_OPT, measured.row.rounds
    (50.0, 3)
    """
    runs, cell = _run(task, task.seeds), task.cell
    optimum_total = PaperEnvironment(m=cell.m, arms=cell.K, resources=cell.d).optimum(cell.B / cell.T) * cell.T
    regret = runs.regret(optimum_total)
    spread = float(regret.std(ddof=1)) if task.runs > 1 else 0.0
    row = Row(
        *cell,
        rounds=task.runs,
        T_OPT=round(optimum_total, 6),
        algorithm=task.algorithm,
        regret_mean=round(float(regret.mean()), 2),
        regret_std=round(spread, 2),
    )
    return Measured(task, row, float(runs.overspend.max()))


def _run(task: Task, seeds: range) -> Runs:
    cell = task.cell
    max_cost = COST_MAX if task.policy == "practical" else 1.0
    problem = Problem.of(
        arms=cell.K, dimension=cell.m, resources=cell.d, horizon=cell.T, budget=cell.B, max_cost=max_cost
    )
    policy = build_policy(task.policy, problem, oracle=task.oracle, two_stage="off")  # the figures show Algorithm 1
    environment = PaperEnvironment(m=cell.m, arms=cell.K, resources=cell.d)
    return run(policy, environment, horizon=cell.T, budget=cell.B, seeds=seeds)


def speed_up(task: Task) -> SpeedUp:
    """Time the runs of the task in both ways, in this process."""
    with threadpool_limits(limits=1):
        _run(task, task.seeds[:1])  # imports and caches must not count
        start = perf_counter()
        _run(task, task.seeds)
        middle = perf_counter()
        for seed in task.seeds:
            _run(task, range(seed, seed + 1))
        end = perf_counter()
    return SpeedUp(task, middle - start, end - middle)
