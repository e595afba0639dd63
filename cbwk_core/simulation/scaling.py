"""Growth of regret with T, m and K: measured exponents and those of the paper's Table 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cbwk_core.simulation.grids import Figure, Row, curve

# Table 3 of the paper. The Newton exponents also apply to `practical` and `paper`.
NEWTON = {"K": 0.5, "m": 0.5, "T": 0.5}
GRADIENT = {"K": 0.5, "m": 0.0, "T": 0.75}
LINUCB = {"K": 0.0, "m": 1.0, "T": 0.5}


class Exponent(NamedTuple):
    """Slope of log regret against the log of the figure's axis."""

    slope: float
    error: float  # standard error over the cells, nan for two cells
    used: int  # number of cells with positive regret
    cells: int  # number of all cells


def exponent(axis: Sequence[float], regret: Sequence[float]) -> Exponent:
    """Return the least-squares slope. Cells without positive mean regret have no logarithm and are excluded.

    >>> exponent([1, 2, 4, 8], [3.0, 6.0, 12.0, 24.0]).slope
    1.0
    """
    y = np.asarray(regret, dtype=np.float64)
    is_positive = y > 0
    x, y = np.log(np.asarray(axis, dtype=np.float64)[is_positive]), np.log(y[is_positive])
    used = int(is_positive.sum())
    if used < 2 or np.ptp(x) == 0:
        return Exponent(np.nan, np.nan, used, is_positive.size)
    centred = x - x.mean()
    variation = float(centred @ centred)
    slope = float(centred @ y) / variation
    residuals = y - y.mean() - slope * centred
    error = float(np.sqrt(residuals @ residuals / (used - 2) / variation)) if used > 2 else np.nan
    return Exponent(round(slope, 12), error, used, is_positive.size)


def table(entries: Sequence[tuple[str, str, Sequence[Row], dict[str, float]]], figures: Sequence[Figure]) -> str:
    """Return a Markdown table: a line per entry (label, algorithm, rows, theory) and a column per figure."""
    heads = [f"{figure.axis} (figure {figure.name})" for figure in figures]
    lines = [f"| exponent of regret in | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for label, algorithm, rows, theory in entries:
        texts = [_entry(curve(rows, figure, algorithm), figure, theory) for figure in figures]
        lines.append(f"| {label} | {' | '.join(texts)} |")
    note = "Measured ± standard error over the cells (theory). Cells without positive mean regret are excluded."
    return "\n".join([*lines, "", note, ""])


def _entry(rows: Sequence[Row], figure: Figure, theory: dict[str, float]) -> str:
    if not rows:
        return "–"
    found = exponent([getattr(row, figure.axis) for row in rows], [row.regret_mean for row in rows])
    expected = f"({theory[figure.axis]:g})"
    if np.isnan(found.slope):
        return f"– {expected}"
    error = "" if np.isnan(found.error) else f" ± {found.error:.2f}"
    excluded = "" if found.used == found.cells else f", {found.used} of {found.cells} cells"
    return f"{found.slope:.2f}{error} {expected}{excluded}"
