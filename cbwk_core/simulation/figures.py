"""The paper's figures 1(a)-(d) and Table 3 anew: our policies on the authors' grids, beside the authors' own curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from cbwk_core.simulation import plots, scaling
from cbwk_core.simulation.grids import Cell, Figure, Row, cells, curve, write_rows
from cbwk_core.simulation.measurement import RUNS_MAX, Measured, SpeedUp, Task, measure_all, speed_up

# Small enough that ten runs one after another take seconds.
SPEED_UP_CELL = Cell("1c_T_m5", m=5, K=3, d=4, T=1000, B=250.0)


class Algorithm(NamedTuple):
    """One of our curves."""

    name: str  # in the results
    policy: str
    oracle: str
    label: str
    colour: str
    theory: dict[str, float]


ALGORITHMS = (
    Algorithm("practical", "practical", "newton", "practical (default)", plots.GREEN, scaling.NEWTON),
    Algorithm("paper", "paper", "newton", "paper, Newton", plots.PURPLE, scaling.NEWTON),
    Algorithm("authors-newton", "authors", "newton", "authors' γ, Newton", plots.BLUE, scaling.NEWTON),
    Algorithm("authors-gradient", "authors", "gradient", "authors' γ, gradient", plots.ORANGE, scaling.GRADIENT),
    Algorithm("linucb", "linucb", "newton", "LinUCB", plots.RED, scaling.LINUCB),
)


class Theirs(NamedTuple):
    """One of the authors' curves."""

    name: str  # in the reference
    label: str
    colour: str
    theory: dict[str, float]


REFERENCES = (
    Theirs("newton", "published code, Newton", plots.BLUE, scaling.NEWTON),
    Theirs("ogd", "published code, gradient", plots.ORANGE, scaling.GRADIENT),
    Theirs("linucb", "published code, LinUCB", plots.RED, scaling.LINUCB),
)


class Reproduction(NamedTuple):
    """All that was measured."""

    measured: list[Measured]
    speed_up: SpeedUp

    @property
    def rows(self) -> list[Row]:
        """The results as they are written."""
        return [each.row for each in self.measured]


def reproduce(
    figures: Sequence[Figure],
    grid: Sequence[Row],
    *,
    runs: int,
    out: Path,
    console: Console,
    progress_console: Console,
    workers: int | None = None,
) -> Reproduction:
    """Measure every cell of the figures in `grid`, write pictures and tables to `out`, print what they say.

    grid: rows of the authors' code, which give the cells and the curves to compare with; all of them are `reference()`.
    workers: processes, by default one per core.
    """
    if not 1 <= runs <= RUNS_MAX:
        raise ValueError(f"runs must lie in 1..{RUNS_MAX}, got {runs}")
    out.mkdir(parents=True, exist_ok=True)
    measured = _measured(_tasks(figures, grid, runs), workers or os.cpu_count() or 1, progress_console)
    sample = Task(SPEED_UP_CELL, "practical", "practical", "newton", runs)
    result = Reproduction(measured, speed_up(sample))
    write_rows(out / "results.csv", result.rows)
    for figure in figures:
        plots.draw_figure(out / f"figure_{figure.name}.png", figure, _curves(figure, result.rows, grid))
    plots.draw_overview(out / "overview.png", overview(figures, result.rows, grid))
    exponents = table3(figures, result.rows, grid)
    (out / "table3.md").write_text(exponents, encoding="utf-8")
    _print(result, figures, grid, exponents, console)
    return result


def _tasks(figures: Sequence[Figure], grid: Sequence[Row], runs: int) -> list[Task]:
    return [
        Task(cell, algorithm.name, algorithm.policy, algorithm.oracle, runs)
        for figure in figures
        for cell in cells(grid, figure)
        for algorithm in ALGORITHMS
    ]


def _measured(tasks: Sequence[Task], workers: int, console: Console) -> list[Measured]:
    """In the order of the tasks, whatever the order they finished in."""
    done: dict[Task, Measured] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task(f"{len(tasks)} cells", total=sum(task.work for task in tasks))
        for each in measure_all(tasks, workers):
            done[each.task] = each
            progress.advance(bar, each.task.work)
    return [done[task] for task in tasks]


def _curves(figure: Figure, rows: Sequence[Row], grid: Sequence[Row]) -> list[plots.Curve]:
    ours = [plots.Curve(each.label, each.colour, curve(rows, figure, each.name), ours=True) for each in ALGORITHMS]
    theirs = [plots.Curve(each.label, each.colour, curve(grid, figure, each.name), ours=False) for each in REFERENCES]
    return [each for each in ours + theirs if each.rows]


def overview(
    figures: Sequence[Figure], rows: Sequence[Row], grid: Sequence[Row]
) -> list[tuple[Figure, list[plots.Curve]]]:
    """For every figure `practical` and the authors' own curves."""
    shown = [ALGORITHMS[0].label, *(each.label for each in REFERENCES)]
    return [(each, [line for line in _curves(each, rows, grid) if line.label in shown]) for each in figures]


def table3(figures: Sequence[Figure], rows: Sequence[Row], grid: Sequence[Row]) -> str:
    """The paper's Table 3 as measured, in Markdown.

    >>> from cbwk_core.simulation.grids import FIGURES, reference
    >>> table3(FIGURES[:1], [], reference()).splitlines()[7]
    '| published code, Newton | 0.26 ± 0.01 (0.5) |'
    """
    ours = [(each.label, each.name, rows, each.theory) for each in ALGORITHMS]
    theirs = [(each.label, each.name, grid, each.theory) for each in REFERENCES]
    return scaling.table([*ours, *theirs], figures)


class Comparison(NamedTuple):
    """`practical` beside the authors' Newton in one cell."""

    cell: Cell
    ours: Row
    theirs: Row
    overspend: float  # ours

    @property
    def ratio(self) -> float:
        """Our regret as a share of theirs."""
        return self.ours.regret_mean / self.theirs.regret_mean


def comparisons(result: Reproduction, figure: Figure, grid: Sequence[Row]) -> list[Comparison]:
    """Every cell of the figure, in the order of its axis."""
    theirs = {Cell.of(row): row for row in curve(grid, figure, "newton")}
    overspend = {each.task.cell: each.overspend for each in result.measured if each.task.algorithm == "practical"}
    ours = {Cell.of(row): row for row in curve(result.rows, figure, "practical")}
    return [Comparison(cell, row, theirs[cell], overspend[cell]) for cell, row in ours.items()]


def _print(
    result: Reproduction, figures: Sequence[Figure], grid: Sequence[Row], exponents: str, console: Console
) -> None:
    table = Table(title="practical beside the published code with Newton, regret per cell")
    for name in ("figure", "m", "K", "T", "practical", "published", "ratio", "overspend"):
        table.add_column(name, justify="left" if name == "figure" else "right", no_wrap=True)
    lines = []
    for figure in figures:
        compared = comparisons(result, figure, grid)
        for each in compared:
            table.add_row(*_cells_of_line(figure, each))
        table.add_section()
        ratios = [each.ratio for each in compared]
        lines.append(f"figure {figure.name}: ratio {np.mean(ratios):.3f} on average, {max(ratios):.3f} at most")
    console.print(table)
    timed = result.speed_up
    lines += [
        _overspend_line(result),
        f"{timed.task.runs} runs at once take {timed.together_seconds:.2f} s, one after another "
        f"{timed.apart_seconds:.2f} s: {timed.factor:.1f} times faster (practical, m = {timed.task.cell.m}, "
        f"K = {timed.task.cell.K}, T = {timed.task.cell.T:,})",
        f"\n{exponents}",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _overspend_line(result: Reproduction) -> str:
    """The largest overspend of every algorithm."""
    largest = {each.name: 0.0 for each in ALGORITHMS}
    for each in result.measured:
        largest[each.task.algorithm] = max(largest[each.task.algorithm], each.overspend)
    line = "largest overspend of any run: " + ", ".join(f"{name} {value:.3g}" for name, value in largest.items())
    if any(largest.values()):
        line += " (the noise is not clipped, so that a cost may exceed its max cost of 1)"
    return line


def _cells_of_line(figure: Figure, each: Comparison) -> tuple[str, ...]:
    return (
        figure.name,
        str(each.cell.m),
        str(each.cell.K),
        f"{each.cell.T:,}",
        f"{each.ours.regret_mean:.1f} ± {each.ours.regret_std:.1f}",
        f"{each.theirs.regret_mean:.1f} ± {each.theirs.regret_std:.1f}",
        f"{each.ratio:.3f}",
        f"{each.overspend:g}",
    )
