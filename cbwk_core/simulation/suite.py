"""The suite: every policy in every scenario, one table of regret, spend and overspend."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from cbwk_core.simulation import plots
from cbwk_core.simulation.measurement import use_one_blas_thread
from cbwk_core.simulation.runner import run
from cbwk_core.simulation.scenarios import POLICIES, Scenario, scenarios

QUICK_SCALE, QUICK_SEEDS = 0.1, 3
# `practical` may lose this share of T·OPT more than the best policy with the same oracle.
MARGIN = 0.03
# And must have used this share of the budget that binds.
USED_MIN = 0.97
# Columns of characters that the table needs.
TABLE_WIDTH = 208
# How much longer one round of a policy takes than one of `practical`, roughly: so that the longest task comes first.
WEIGHTS = {"thompson": 1.5, "thompson-paced": 1.7, "vw": 8.0}


class Task(NamedTuple):
    """One policy in one scenario."""

    scenario: Scenario
    policy: str
    seeds: int

    @property
    def work(self) -> float:
        """How long it takes, roughly and in no unit."""
        world = self.scenario.environment
        size = world.dimension * (world.dimension + world.arms)
        return self.scenario.horizon * WEIGHTS.get(self.policy, 1.0) * (1.0 + size / 3000.0)


class Cell(NamedTuple):
    """What came of a task; regret in shares of T·OPT."""

    family: str
    scenario: str
    policy: str
    horizon: int
    seeds: int
    regret: float
    error: float  # standard error over the seeds
    used: float  # share of the budget that was used most, mean over the seeds
    overspend: float  # the largest over seeds and resources
    seconds: float


def measure(task: Task) -> Cell:
    """Run the task.

    >>> row = scenarios(0.1)[0]
    >>> cell = measure(Task(row, "practical", 2))
    >>> cell.overspend, cell.seeds
    (0.0, 2)
    """
    scenario, started = task.scenario, perf_counter()
    runs = run(
        scenario.policy(task.policy),
        scenario.environment,
        horizon=scenario.horizon,
        budget=scenario.budget,
        seeds=range(task.seeds),
        delays=scenario.delays,
    )
    total = scenario.optimum
    regret = runs.regret(total) / total
    error = regret.std(ddof=1) / np.sqrt(regret.size) if regret.size > 1 else 0.0
    return Cell(
        family=scenario.family,
        scenario=scenario.name,
        policy=task.policy,
        horizon=scenario.horizon,
        seeds=task.seeds,
        regret=float(regret.mean()),
        error=float(error),
        used=float((runs.spent / np.array(scenario.budget)).max(axis=1).mean()),
        overspend=float(runs.overspend.max()),
        seconds=perf_counter() - started,
    )


def measure_all(tasks: Sequence[Task], workers: int) -> Iterator[tuple[Task, Cell]]:
    """Cells as they finish, the longest first; with one worker in this very process."""
    ordered = sorted(tasks, key=lambda task: -task.work)
    if workers == 1:
        with threadpool_limits(limits=1):
            for task in ordered:
                yield task, measure(task)
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=use_one_blas_thread)
    try:
        futures = {pool.submit(measure, task): task for task in ordered}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def chosen_scenarios(only: str | None, *, quick: bool) -> list[Scenario]:
    """The rows whose name or family contains the words, all without any.

    >>> [row.name for row in chosen_scenarios("budgets", quick=True)]
    ['budgets 100 to 1', 'tight: 2·T^¾', 'tight: 1 % of T', 'generous', 'generous, per arm']
    """
    rows = scenarios(QUICK_SCALE if quick else 1.0)
    asked = [row for row in rows if only is None or only in row.name or only in row.family]
    if not asked:
        families = sorted({row.family for row in rows})
        raise ValueError(f"no row of the suite is called {only!r}; families are {', '.join(families)}")
    return asked


class Verdict(NamedTuple):
    """How `practical` stands in one row."""

    gap: float  # its regret minus that of the best policy with the same oracle
    best: str  # which that is
    passed: bool  # among the best, nothing overspent, and the budget used where it binds


def verdict(scenario: Scenario, cells: dict[str, Cell]) -> Verdict:
    """Against the policies there are cells of.

    >>> row = scenarios()[0]
    >>> cell = Cell("", "", "practical", 1, 1, 0.05, 0.0, 0.99, 0.0, 0.0)
    >>> verdict(row, {"practical": cell, "linucb": cell._replace(regret=0.01)}).passed
    False
    """
    ours = cells["practical"]
    others = {name: cell.regret for name, cell in cells.items() if scenario.same_oracle(name)}
    best = min(others, key=lambda name: others[name])
    gap = ours.regret - others[best]
    sound = ours.overspend == 0.0 and (ours.used >= USED_MIN or not scenario.binding)
    return Verdict(gap, best, not scenario.barred or (gap <= MARGIN and sound))


def suite(
    rows: Sequence[Scenario],
    *,
    seeds: int,
    workers: int,
    out: Path,
    console: Console,
    progress_console: Console,
) -> bool:
    """Run it, print the table, write suite.csv and pictures; whether `practical` passed in every row."""
    out.mkdir(parents=True, exist_ok=True)
    tasks = [Task(row, name, seeds) for row in rows for name in POLICIES]
    done: dict[str, dict[str, Cell]] = {row.name: {} for row in rows}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=progress_console) as progress:
        bar = progress.add_task(f"{len(rows)} environments", total=sum(task.work for task in tasks))
        for task, cell in measure_all(tasks, workers):
            done[task.scenario.name][task.policy] = cell
            progress.advance(bar, task.work)
    cells = [done[row.name][name] for row in rows for name in POLICIES]
    _write(out / "suite.csv", cells)
    verdicts = [verdict(row, done[row.name]) for row in rows]
    console.print(_table(rows, done, verdicts, seeds))
    for path in draw(out, rows, cells):
        console.print(f"picture: {path}", highlight=False, soft_wrap=True)
    return all(each.passed for each in verdicts)


def _write(path: Path, cells: Sequence[Cell]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Cell._fields)
        writer.writerows(cells)


def _table(
    rows: Sequence[Scenario], done: dict[str, dict[str, Cell]], verdicts: Sequence[Verdict], seeds: int
) -> Table:
    caption = (
        f"regret / T·OPT, mean ± standard error of {seeds} seeds; 0 is the clairvoyant static program. Used, over: of "
        f"practical; gap: to the best policy with the same oracle, at most {MARGIN:g}; ×: not reached"
    )
    table = Table(title="suite", caption=caption)
    table.add_column("environment", no_wrap=True)
    for name in (*POLICIES, "used", "over", "gap", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for row, each in zip(rows, verdicts, strict=True):
        cells = done[row.name]
        regrets = [f"{cells[name].regret:.3f} ± {cells[name].error:.3f}" for name in POLICIES]
        ours = cells["practical"]
        mark = "" if each.passed else "×"
        table.add_row(row.name, *regrets, f"{ours.used:.1%}", f"{ours.overspend:g}", f"{each.gap:+.3f}", mark)
    return table


def draw(out: Path, rows: Sequence[Scenario], cells: Sequence[Cell]) -> list[Path]:
    """One picture of all rows and one for every family."""
    paths = []
    for family in ("", *dict.fromkeys(row.family for row in rows)):
        mine = [cell for cell in cells if family in ("", cell.family)]
        path = out / ("suite.png" if not family else f"suite_{family}.png")
        marks = [plots.Mark(cell.scenario, cell.policy, cell.regret, cell.error) for cell in mine]
        plots.draw_marks(path, f"regret / T·OPT{': ' + family if family else ''}", marks)
        paths.append(path)
    return paths
