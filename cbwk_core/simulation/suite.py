"""`cbwk simulate --suite`: every policy in every scenario, and one table of regret, spend and overspend."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from cbwk_core.simulation import plots
from cbwk_core.simulation.runner import run
from cbwk_core.simulation.scenarios import SUITE_POLICIES, Scenario, scenarios
from cbwk_core.simulation.worker_pool import run_tasks

QUICK_SCALE, QUICK_SEEDS = 0.1, 3
# Largest difference of regret over T·OPT between `practical` and the best policy with the same oracle.
MARGIN = 0.03
# Smallest share of the scarcest budget that `practical` must use if the budget binds.
USED_MIN = 0.97
# Width of the table in characters.
TABLE_WIDTH = 208
# Approximate duration of a round relative to `practical`, used to start the longest task first.
ROUND_DURATIONS = {"thompson": 1.5, "thompson-paced": 1.7, "vw": 8.0}


class Task(NamedTuple):
    """One policy in one scenario."""

    scenario: Scenario
    policy: str
    seeds: int

    @property
    def relative_duration(self) -> float:
        """Estimate of the duration, in an arbitrary unit."""
        environment = self.scenario.environment
        size = environment.dimension * (environment.dimension + environment.arms)
        return self.scenario.horizon * ROUND_DURATIONS.get(self.policy, 1.0) * (1.0 + size / 3000.0)


class Cell(NamedTuple):
    """The result of a task. The regret is divided by T·OPT. The fields are the columns of suite.csv."""

    family: str
    scenario: str
    policy: str
    horizon: int
    seeds: int
    regret: float
    error: float  # standard error over the seeds
    used: float  # largest share of a budget, mean over the seeds
    overspend: float  # largest over seeds and resources
    seconds: float


def measure(task: Task) -> Cell:
    """Run the task and return its result.

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


def select_scenarios(only: str | None, *, quick: bool) -> list[Scenario]:
    """Return the scenarios whose name or family contains `only`, or all for None.

    >>> [row.name for row in select_scenarios("budgets", quick=True)]
    ['budgets 100 to 1', 'tight: 2·T^¾', 'tight: 1 % of T', 'generous', 'generous, per arm']
    """
    rows = scenarios(QUICK_SCALE if quick else 1.0)
    selected = [row for row in rows if only is None or only in row.name or only in row.family]
    if not selected:
        families = sorted({row.family for row in rows})
        raise ValueError(f"no scenario has {only!r} in its name or family; families are {', '.join(families)}")
    return selected


class Verdict(NamedTuple):
    """The verdict on `practical` in one scenario."""

    gap: float  # its regret minus that of the best policy with the same oracle
    best: str  # name of the best policy
    passed: bool  # gap within MARGIN, no overspend, and a binding budget used


def verdict(scenario: Scenario, cells: dict[str, Cell]) -> Verdict:
    """Return the verdict on `practical` among the policies in `cells`.

    >>> row = scenarios()[0]
    >>> cell = Cell("", "", "practical", 1, 1, 0.05, 0.0, 0.99, 0.0, 0.0)
    >>> verdict(row, {"practical": cell, "linucb": cell._replace(regret=0.01)}).passed
    False
    """
    ours = cells["practical"]
    regrets = {name: cell.regret for name, cell in cells.items() if scenario.same_oracle(name)}
    best = min(regrets, key=lambda name: regrets[name])
    gap = ours.regret - regrets[best]
    within_budget = ours.overspend == 0.0 and (ours.used >= USED_MIN or not scenario.budget_binds)
    return Verdict(gap, best, not scenario.must_pass or (gap <= MARGIN and within_budget))


def run_suite(
    rows: Sequence[Scenario],
    *,
    seeds: int,
    workers: int,
    out: Path,
    console: Console,
    progress_console: Console,
) -> bool:
    """Run the suite, print the table, write suite.csv and plots, and return whether `practical` passed everywhere."""
    out.mkdir(parents=True, exist_ok=True)
    tasks = [Task(row, name, seeds) for row in rows for name in SUITE_POLICIES]
    cells = run_tasks(
        measure, tasks, workers=workers, description=f"{len(rows)} environments", console=progress_console
    )
    results: dict[str, dict[str, Cell]] = {row.name: {} for row in rows}
    for cell in cells:
        results[cell.scenario][cell.policy] = cell
    _write(out / "suite.csv", cells)
    verdicts = [verdict(row, results[row.name]) for row in rows]
    console.print(_table(rows, results, verdicts, seeds))
    for path in draw(out, rows, cells):
        console.print(f"plot: {path}", highlight=False, soft_wrap=True)
    return all(each.passed for each in verdicts)


def _write(path: Path, cells: Sequence[Cell]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Cell._fields)
        writer.writerows(cells)


def _table(
    rows: Sequence[Scenario], results: dict[str, dict[str, Cell]], verdicts: Sequence[Verdict], seeds: int
) -> Table:
    caption = (
        f"regret / T·OPT, mean ± standard error over {seeds} seeds; 0 is the static optimum with known means. used, "
        f"over: budget used and overspend of practical; gap: to the best policy with the same oracle, at most "
        f"{MARGIN:g}; ×: target missed"
    )
    table = Table(title="suite", caption=caption)
    table.add_column("environment", no_wrap=True)
    for name in (*SUITE_POLICIES, "used", "over", "gap", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for row, each in zip(rows, verdicts, strict=True):
        cells = results[row.name]
        regrets = [f"{cells[name].regret:.3f} ± {cells[name].error:.3f}" for name in SUITE_POLICIES]
        ours = cells["practical"]
        mark = "" if each.passed else "×"
        table.add_row(row.name, *regrets, f"{ours.used:.1%}", f"{ours.overspend:g}", f"{each.gap:+.3f}", mark)
    return table


def draw(out: Path, rows: Sequence[Scenario], cells: Sequence[Cell]) -> list[Path]:
    """Draw one plot of all scenarios and one per family, and return their paths."""
    paths = []
    for family in ("", *dict.fromkeys(row.family for row in rows)):
        selected = [cell for cell in cells if family in ("", cell.family)]
        path = out / ("suite.png" if not family else f"suite_{family}.png")
        marks = [plots.Mark(cell.scenario, cell.policy, cell.regret, cell.error) for cell in selected]
        plots.draw_marks(path, f"regret / T·OPT{': ' + family if family else ''}", marks)
        paths.append(path)
    return paths
