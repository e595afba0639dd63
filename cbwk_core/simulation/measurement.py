"""Cells of a grid, measured in worker processes; in each, all runs of a cell advance together as lanes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from time import perf_counter
from typing import NamedTuple

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from cbwk_core.problem import Problem
from cbwk_core.simulation.environments import PaperEnvironment
from cbwk_core.simulation.grids import Cell, Row
from cbwk_core.simulation.policies import build_policy
from cbwk_core.simulation.runner import Runs, run

# More runs of a cell than this would share seeds with another cell.
RUNS_MAX = 1000

# The paper's noise is not clipped, so that a cost may exceed 1. `practical` is told what a cost may come to, and keeps
# that in reserve: 2, as much as the authors' code. The others stop where their algorithm says.
COST_MAX = 2.0


class Task(NamedTuple):
    """One algorithm in one cell."""

    cell: Cell
    algorithm: str  # its name in the results
    policy: str
    oracle: str
    runs: int

    @property
    def work(self) -> float:
        """How long it takes, roughly and in no unit: the calls of a round, and the matrices that are moved in it."""
        return self.cell.T * (1.0 + self.cell.m * (self.cell.m + self.cell.K) / 3000.0)

    @property
    def seeds(self) -> range:
        """Its runs' seeds: the same for all algorithms of a cell, others in every cell."""
        first = ((self.cell.T * 1000 + self.cell.m) * 1000 + self.cell.K) * RUNS_MAX
        return range(first, first + self.runs)


class Measured(NamedTuple):
    """What came of a task."""

    task: Task
    row: Row
    overspend: float  # the largest over runs and resources


class SpeedUp(NamedTuple):
    """The same runs, all at once and one after another."""

    task: Task
    together_seconds: float
    apart_seconds: float

    @property
    def factor(self) -> float:
        """How many times faster all at once is."""
        return self.apart_seconds / self.together_seconds


def measure(task: Task) -> Measured:
    """Run the task.

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
    policy = build_policy(task.policy, problem, oracle=task.oracle, two_stage="off")  # the figures are of Algorithm 1
    environment = PaperEnvironment(m=cell.m, arms=cell.K, resources=cell.d)
    return run(policy, environment, horizon=cell.T, budget=cell.B, seeds=seeds)


def measure_all(tasks: Iterable[Task], workers: int) -> Iterator[Measured]:
    """Measure the tasks as they finish, the longest first; with one worker in this very process."""
    ordered = sorted(tasks, key=lambda task: -task.work)
    if workers == 1:
        with threadpool_limits(limits=1):
            yield from map(measure, ordered)
        return
    # Spawned, not forked: a fork of a process with threads (BLAS, a progress bar) may hang.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=use_one_blas_thread)
    try:
        for future in as_completed([pool.submit(measure, task) for task in ordered]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def use_one_blas_thread() -> None:
    """Keep this process to one thread: small matrices are slower on several, and workers would get in each other's way.

    >>> use_one_blas_thread()
    """
    threadpool_limits(limits=1)


def speed_up(task: Task) -> SpeedUp:
    """Time the task's runs both ways, in this process."""
    with threadpool_limits(limits=1):
        _run(task, task.seeds[:1])  # the first run of a process pays for imports and caches
        start = perf_counter()
        _run(task, task.seeds)
        middle = perf_counter()
        for seed in task.seeds:
            _run(task, range(seed, seed + 1))
        end = perf_counter()
    return SpeedUp(task, middle - start, end - middle)
