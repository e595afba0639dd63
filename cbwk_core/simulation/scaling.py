"""How regret grows with T, m and K: measured exponents beside those of the paper's Table 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cbwk_core.simulation.grids import Figure, Row, curve

# Table 3 of the paper. `practical` and `paper` are SquareCBwK with Newton as well.
NEWTON = {"K": 0.5, "m": 0.5, "T": 0.5}
GRADIENT = {"K": 0.5, "m": 0.0, "T": 0.75}
LINUCB = {"K": 0.0, "m": 1.0, "T": 0.5}


class Exponent(NamedTuple):
    """The slope of log regret on log of the figure's axis."""

    slope: float
    error: float  # standard error over the cells; nan with two cells
    used: int  # cells with positive regret
    cells: int


def exponent(axis: Sequence[float], regret: Sequence[float]) -> Exponent:
    """Least squares over the cells whose mean regret is positive; others have no logarithm and are left out.

    >>> exponent([1, 2, 4, 8], [3.0, 6.0, 12.0, 24.0]).slope
    1.0
    """
    y = np.asarray(regret, dtype=np.float64)
    kept = y > 0
    x, y = np.log(np.asarray(axis, dtype=np.float64)[kept]), np.log(y[kept])
    used = int(kept.sum())
    if used < 2 or np.ptp(x) == 0:
        return Exponent(np.nan, np.nan, used, kept.size)
    centred = x - x.mean()
    power = float(centred @ centred)
    slope = float(centred @ y) / power
    rest = y - y.mean() - slope * centred
    error = float(np.sqrt(rest @ rest / (used - 2) / power)) if used > 2 else np.nan
    return Exponent(round(slope, 12), error, used, kept.size)


def table(entries: Sequence[tuple[str, str, Sequence[Row], dict[str, float]]], figures: Sequence[Figure]) -> str:
    """Markdown: one line per entry (label, algorithm, rows, exponents of the theory), one column per figure."""
    heads = [f"{figure.axis} (figure {figure.name})" for figure in figures]
    lines = [f"| exponent of regret in | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for label, algorithm, rows, theory in entries:
        texts = [_entry(curve(rows, figure, algorithm), figure, theory) for figure in figures]
        lines.append(f"| {label} | {' | '.join(texts)} |")
    note = "Measured ± standard error over the cells (theory). Cells whose mean regret is not positive are left out."
    return "\n".join([*lines, "", note, ""])


def _entry(rows: Sequence[Row], figure: Figure, theory: dict[str, float]) -> str:
    if not rows:
        return "–"
    found = exponent([getattr(row, figure.axis) for row in rows], [row.regret_mean for row in rows])
    expected = f"({theory[figure.axis]:g})"
    if np.isnan(found.slope):
        return f"– {expected}"
    error = "" if np.isnan(found.error) else f" ± {found.error:.2f}"
    left_out = "" if found.used == found.cells else f", {found.used} of {found.cells} cells"
    return f"{found.slope:.2f}{error} {expected}{left_out}"
