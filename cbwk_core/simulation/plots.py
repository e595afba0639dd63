"""Plots: regret over the axis of a figure, regret over time, and regret per environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from cbwk_core.arrays import Array, Integers
from cbwk_core.simulation.grids import Figure, Row

SIZE_INCHES = (8.0, 5.2)
DOTS_PER_INCH, DOTS_PER_INCH_SMALL = 150, 80
# The palette of Okabe & Ito, whose colours can be distinguished with colour blindness.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
CYCLE = (GREEN, BLUE, RED, ORANGE, PURPLE, SKY, BLACK, "#999999")
REGRET_TICKS = (-100, -20, 0, 20, 50, 100, 200, 300, 500, 1000, 1500, 2000, 3000, 5000)
TICKS_MAX = 10


class Curve(NamedTuple):
    """One line of a figure."""

    label: str
    colour: str
    rows: Sequence[Row]
    ours: bool  # True: a solid line with a shaded spread; False: the published code, a dashed line


def draw_figure(path: Path, figure: Figure, curves: Sequence[Curve]) -> None:
    """Draw mean regret over the figure's axis. The regret axis has a root scale, which shows tens and thousands."""
    canvas, axes = _canvas(figure.title)
    axes.set_yscale("function", functions=(_signed_root, _signed_square))
    for curve in curves:
        _draw_curve(axes, figure, curve)
    _label_axes(axes, sorted({int(getattr(row, figure.axis)) for curve in curves for row in curve.rows}))
    axes.set_xlabel(figure.label)
    axes.set_ylabel("regret T·OPT − Σ expected reward (root scale)")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)
    runs = max(row.rounds for curve in curves for row in curve.rows if curve.ours)
    note = f"mean of {runs} runs, shaded: ±1 standard deviation; dashed: mean of the authors' published code"
    _save(canvas, path, note)


def draw_overview(path: Path, panels: Sequence[tuple[Figure, Sequence[Curve]]]) -> None:
    """Draw all figures side by side, in a small size."""
    canvas = Canvas(figsize=(3.0 * len(panels), 3.2), dpi=100, layout="constrained")
    FigureCanvasAgg(canvas)
    handles = {}
    for column, (figure, curves) in enumerate(panels):
        axes = canvas.add_subplot(1, len(panels), column + 1)
        axes.spines[["top", "right"]].set_visible(False)
        for curve in curves:
            _draw_curve(axes, figure, curve)
        axes.set_title(figure.title.partition(": ")[2], fontsize=8, loc="left")
        axes.set_xlabel(figure.label, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.grid(True, alpha=0.3)
        handles.update(dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)))
    canvas.axes[0].set_ylabel("regret", fontsize=8)
    canvas.legend(
        list(handles.values()), list(handles), loc="outside upper center", ncols=len(handles), fontsize=8, frameon=False
    )
    canvas.savefig(path, format="png", metadata={"Software": None})


def _signed_root(regret: Array) -> Array:
    return np.asarray(np.sign(regret) * np.sqrt(np.abs(regret)))


def _signed_square(root: Array) -> Array:
    return np.asarray(np.sign(root) * np.square(root))


def _draw_curve(axes: Axes, figure: Figure, curve: Curve) -> None:
    x = np.array([getattr(row, figure.axis) for row in curve.rows], dtype=np.float64)
    mean = np.array([row.regret_mean for row in curve.rows])
    if not curve.ours:
        axes.plot(x, mean, color=curve.colour, label=curve.label, linestyle="--", linewidth=1.3)
        return
    spread = np.array([row.regret_std for row in curve.rows])
    axes.plot(x, mean, color=curve.colour, label=curve.label, marker="o", markersize=3.0, linewidth=1.6)
    axes.fill_between(x, mean - spread, mean + spread, color=curve.colour, alpha=0.18, linewidth=0.0)


def _label_axes(axes: Axes, cells: Sequence[int]) -> None:
    """Label the axes with numbers: at most TICKS_MAX of the cells, and REGRET_TICKS."""
    number = FuncFormatter(lambda value, _: f"{value:,.0f}")
    step = -(-len(cells) // TICKS_MAX)
    axes.set_xticks(cells[::-1][::step])  # includes the last cell
    axes.xaxis.set_major_formatter(number)
    low, high = axes.get_ylim()
    low = min(low, 0.0)
    axes.set_yticks([tick for tick in REGRET_TICKS if low <= tick <= high])
    axes.set_ylim(low, high)
    axes.yaxis.set_major_formatter(number)


class Track(NamedTuple):
    """Regret of one policy over time."""

    label: str
    rounds: Integers  # (points,)
    regret: Array  # (lanes, points)


def draw_tracks(path: Path, title: str, tracks: Sequence[Track]) -> None:
    """Draw the mean and the spread of the cumulative regret over the rounds."""
    canvas, axes = _canvas(title)
    for track, (colour, _, line) in zip(tracks, _styles(), strict=False):
        mean, spread = track.regret.mean(axis=0), track.regret.std(axis=0)
        axes.plot(track.rounds, mean, color=colour, label=track.label, linewidth=1.6, linestyle=line)
        axes.fill_between(track.rounds, mean - spread, mean + spread, color=colour, alpha=0.15)
    axes.axhline(0.0, color=BLACK, linewidth=0.6)
    axes.set_xlabel("round t")
    axes.set_ylabel("regret t·OPT − Σ expected reward")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=9, loc="upper left", frameon=False)
    runs = tracks[0].regret.shape[0]
    _save(canvas, path, f"mean of {runs} runs, shaded: ±1 standard deviation; below 0: spend is ahead of an even pace")


class Mark(NamedTuple):
    """Result of one policy in one row of a dot plot."""

    row: str
    label: str
    value: float
    error: float  # standard error


def draw_marks(path: Path, title: str, marks: Sequence[Mark]) -> None:
    """Draw one row per environment with one dot per policy and bars of two standard errors, in a small size."""
    rows, labels = list(dict.fromkeys(mark.row for mark in marks)), list(dict.fromkeys(mark.label for mark in marks))
    canvas, axes = _canvas(title, size=(8.0, 1.4 + 0.28 * len(rows)), dots=DOTS_PER_INCH_SMALL)
    for label, (colour, marker, _) in zip(labels, _styles(), strict=False):
        selected = [mark for mark in marks if mark.label == label]
        shift = (labels.index(label) - (len(labels) - 1) / 2.0) * 0.6 / len(labels)
        axes.errorbar(
            [mark.value for mark in selected],
            [rows.index(mark.row) + shift for mark in selected],
            xerr=[2.0 * mark.error for mark in selected],
            fmt=marker,
            color=colour,
            label=label,
            markersize=4.0,
            linewidth=1.0,
        )
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(0.0, color=BLACK, linewidth=0.6)
    axes.grid(True, axis="x", alpha=0.3)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)
    _save(canvas, path, "mean ± two standard errors; 0 is the static optimum with known means")


def _styles() -> Iterator[tuple[str, str, str]]:
    """Yield colours with a marker and a line: after the last colour the first one comes again, with others of these."""
    for marker, line in (("o", "-"), ("s", "--"), ("^", ":")):
        for colour in CYCLE:
            yield colour, marker, line


def _canvas(title: str, size: tuple[float, float] = SIZE_INCHES, dots: int = DOTS_PER_INCH) -> tuple[Canvas, Axes]:
    """Return a new canvas and its axes, without pyplot: pyplot keeps all canvases and can need a display."""
    canvas = Canvas(figsize=size, dpi=dots, layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    axes.set_title(title, fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    return canvas, axes


def _save(canvas: Canvas, path: Path, note: str) -> None:
    canvas.supxlabel(note, fontsize=8, color="#555555", x=0.01, ha="left")
    canvas.savefig(path, format="png", metadata={"Software": None})
