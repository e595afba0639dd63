"""Reproduction of the paper's figures 1(a)-(d) and Table 3: our policies and the authors' curves on the same grids."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from cbwk_core.simulation import plots, scaling
from cbwk_core.simulation.grids import Cell, Figure, Row, RowFile, cells, curve, describe_grids, write_rows
from cbwk_core.simulation.measurement import RUNS_MAX, Measured, SpeedUp, Task, measure, speed_up
from cbwk_core.simulation.worker_pool import run_tasks

# A small cell: ten runs one after another take seconds.
SPEED_UP_CELL = Cell("1c_T_m5", m=5, K=3, d=4, T=1000, B=250.0)


class Algorithm(NamedTuple):
    """One of our curves."""

    name: str  # name in the results
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


class PublishedCurve(NamedTuple):
    """One of the curves of the authors' published code."""

    name: str  # name in the reference
    label: str
    colour: str
    theory: dict[str, float]


PUBLISHED_CURVES = (
    PublishedCurve("newton", "published code, Newton", plots.BLUE, scaling.NEWTON),
    PublishedCurve("ogd", "published code, gradient", plots.ORANGE, scaling.GRADIENT),
    PublishedCurve("linucb", "published code, LinUCB", plots.RED, scaling.LINUCB),
)


class Reproduction(NamedTuple):
    """All measurements of a reproduction."""

    measured: list[Measured]
    speed_up: SpeedUp

    @property
    def rows(self) -> list[Row]:
        """Rows of the results file."""
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
    """Measure every cell of the figures, write plots and tables to `out`, print a summary, and return the measurements.

    Plots and tables show means over the runs. The file of results grows with every cell; at the end its rows are in the
    order of the figures.

    grid: rows of the authors' code, which define the cells and the curves for comparison; `reference()` has them all.
    workers: number of processes, by default one per core.
    """
    if not 1 <= runs <= RUNS_MAX:
        raise ValueError(f"runs must lie in 1..{RUNS_MAX}, got {runs}")
    out.mkdir(parents=True, exist_ok=True)
    console.print(describe_grids(grid, figures), markup=False, highlight=False, soft_wrap=True)
    tasks, workers = _tasks(figures, grid, runs), workers or os.cpu_count() or 1
    timed = speed_up(Task(SPEED_UP_CELL, "practical", "practical", "newton", runs))
    console.print(_expectation(tasks, timed, workers, out), markup=False, highlight=False, soft_wrap=True)
    with RowFile(out / "results.csv") as file:
        measured = run_tasks(
            measure,
            tasks,
            workers=workers,
            description=f"{len(tasks)} cells",
            console=progress_console,
            completed=lambda each: file.add(each.row),
        )
    result = Reproduction(measured, timed)
    write_rows(out / "results.csv", result.rows)
    for figure in figures:
        plots.draw_figure(out / f"figure_{figure.name}.png", figure, _curves(figure, result.rows, grid))
    plots.draw_overview(out / "overview.png", overview(figures, result.rows, grid))
    exponents = table3(figures, result.rows, grid)
    (out / "table3.md").write_text(exponents, encoding="utf-8")
    _print(result, figures, grid, exponents, console)
    return result


def _expectation(tasks: Sequence[Task], timed: SpeedUp, workers: int, out: Path) -> str:
    """Return how long the tasks take about, from one that was timed, and where their results are meanwhile."""
    each = timed.lanes_seconds / timed.task.relative_duration
    durations = [task.relative_duration for task in tasks]
    seconds = each * max(sum(durations) / workers, *durations)
    duration = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{max(seconds, 1):.0f} seconds"
    return (
        f"{len(tasks)} cells in {workers} processes take about {duration}; each is written to {out / 'results.csv'} as "
        "soon as it is done, and an interrupted run keeps them"
    )


def _tasks(figures: Sequence[Figure], grid: Sequence[Row], runs: int) -> list[Task]:
    return [
        Task(cell, algorithm.name, algorithm.policy, algorithm.oracle, runs)
        for figure in figures
        for cell in cells(grid, figure)
        for algorithm in ALGORITHMS
    ]


def _curves(figure: Figure, rows: Sequence[Row], grid: Sequence[Row]) -> list[plots.Curve]:
    ours = [plots.Curve(each.label, each.colour, curve(rows, figure, each.name), ours=True) for each in ALGORITHMS]
    published = [
        plots.Curve(each.label, each.colour, curve(grid, figure, each.name), ours=False) for each in PUBLISHED_CURVES
    ]
    return [each for each in ours + published if each.rows]


def overview(
    figures: Sequence[Figure], rows: Sequence[Row], grid: Sequence[Row]
) -> list[tuple[Figure, list[plots.Curve]]]:
    """Return the curves of `practical` and of the published code for every figure."""
    shown = [ALGORITHMS[0].label, *(each.label for each in PUBLISHED_CURVES)]
    return [(each, [line for line in _curves(each, rows, grid) if line.label in shown]) for each in figures]


def table3(figures: Sequence[Figure], rows: Sequence[Row], grid: Sequence[Row]) -> str:
    """Return the measured exponents and those of the paper's Table 3, in Markdown.

    >>> from cbwk_core.simulation.grids import FIGURES, reference
    >>> table3(FIGURES[:1], [], reference()).splitlines()[7]
    '| published code, Newton | 0.26 ± 0.01 (0.5) |'
    """
    ours = [(each.label, each.name, rows, each.theory) for each in ALGORITHMS]
    published = [(each.label, each.name, grid, each.theory) for each in PUBLISHED_CURVES]
    return scaling.table([*ours, *published], figures)


class Comparison(NamedTuple):
    """Regret of `practical` and of the published code with Newton in one cell."""

    cell: Cell
    ours: Row
    published: Row
    overspend: float  # of `practical`

    @property
    def ratio(self) -> float:
        """Regret of `practical` divided by the published regret."""
        return self.ours.regret_mean / self.published.regret_mean


def comparisons(result: Reproduction, figure: Figure, grid: Sequence[Row]) -> list[Comparison]:
    """Return the comparison of every cell of the figure, in the order of its axis."""
    published = {Cell.of(row): row for row in curve(grid, figure, "newton")}
    overspend = {each.task.cell: each.overspend for each in result.measured if each.task.algorithm == "practical"}
    ours = {Cell.of(row): row for row in curve(result.rows, figure, "practical")}
    return [Comparison(cell, row, published[cell], overspend[cell]) for cell, row in ours.items()]


def _print(
    result: Reproduction, figures: Sequence[Figure], grid: Sequence[Row], exponents: str, console: Console
) -> None:
    table = Table(title="regret of practical and of the published code with Newton")
    for name in ("figure", "m", "K", "T", "practical", "published", "ratio", "overspend"):
        table.add_column(name, justify="left" if name == "figure" else "right", no_wrap=True)
    lines = []
    for figure in figures:
        compared = comparisons(result, figure, grid)
        for each in compared:
            table.add_row(*_comparison_line(figure, each))
        table.add_section()
        ratios = [each.ratio for each in compared]
        lines.append(f"figure {figure.name}: mean ratio {np.mean(ratios):.3f}, largest ratio {max(ratios):.3f}")
    console.print(table)
    timed = result.speed_up
    lines += [
        _overspend_line(result),
        f"{timed.task.runs} runs take {timed.lanes_seconds:.2f} s as lanes of one simulation and "
        f"{timed.sequential_seconds:.2f} s one after another: {timed.factor:.1f} times faster (practical, "
        f"m = {timed.task.cell.m}, "
        f"K = {timed.task.cell.K}, T = {timed.task.cell.T:,})",
        f"\n{exponents}",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _overspend_line(result: Reproduction) -> str:
    """Return a line with the largest overspend of every algorithm."""
    largest = {each.name: 0.0 for each in ALGORITHMS}
    for each in result.measured:
        largest[each.task.algorithm] = max(largest[each.task.algorithm], each.overspend)
    line = "largest overspend of any run: " + ", ".join(f"{name} {value:.3g}" for name, value in largest.items())
    if any(largest.values()):
        line += " (the noise is not clipped, so a cost can exceed its max cost of 1)"
    return line


def _comparison_line(figure: Figure, each: Comparison) -> tuple[str, ...]:
    return (
        figure.name,
        str(each.cell.m),
        str(each.cell.K),
        f"{each.cell.T:,}",
        f"{each.ours.regret_mean:.1f} ± {each.ours.regret_std:.1f}",
        f"{each.published.regret_mean:.1f} ± {each.published.regret_std:.1f}",
        f"{each.ratio:.3f}",
        f"{each.overspend:g}",
    )
