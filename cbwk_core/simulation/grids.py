"""The cells of the paper's figures, what was measured in them, and the file both are kept in.

`paper_reference.csv` is the regret of the authors' published code, 10 runs a cell; README.md beside it says more.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

REFERENCE_PATH = Path(__file__).with_name("paper_reference.csv")


class Row(NamedTuple):
    """One line of results, in the paper's letters; the fields are the columns of the file."""

    figure: str
    m: int
    K: int
    d: int
    T: int
    B: float
    rounds: int  # how many runs the mean is over
    T_OPT: float
    algorithm: str
    regret_mean: float
    regret_std: float


class Cell(NamedTuple):
    """One point of a figure's horizontal axis."""

    figure: str
    m: int
    K: int
    d: int
    T: int
    B: float

    @classmethod
    def of(cls, row: Row) -> Cell:
        """The cell a row was measured in."""
        return cls(row.figure, row.m, row.K, row.d, row.T, row.B)


class Figure(NamedTuple):
    """One of the paper's four figures."""

    name: str  # as `cbwk reproduce` has it
    key: str  # as the file has it
    axis: str  # the letter that varies
    label: str  # of the horizontal axis
    title: str


FIGURES = (
    Figure("1a", "1a_m", "m", "dimension m", "Figure 1(a): K = 3 arms, T = 2,000 rounds"),
    Figure("1b", "1b_K", "K", "arms K", "Figure 1(b): dimension m = 52, T = 2,000 rounds"),
    Figure("1c", "1c_T_m5", "T", "rounds T", "Figure 1(c): dimension m = 5, K = 3 arms"),
    Figure("1d", "1d_T_m52", "T", "rounds T", "Figure 1(d): dimension m = 52, K = 3 arms"),
)


def chosen_figures(name: str) -> tuple[Figure, ...]:
    """The figure of that name, or all four.

    >>> [figure.axis for figure in chosen_figures("all")]
    ['m', 'K', 'T', 'T']
    """
    chosen = tuple(figure for figure in FIGURES if name in (figure.name, "all"))
    if not chosen:
        raise ValueError(f"figure must be one of {', '.join(each.name for each in FIGURES)} or all, got {name!r}")
    return chosen


def reference() -> list[Row]:
    """What the authors' published code reached.

    >>> rows = reference()
    >>> len(rows), rows[0].regret_mean
    (159, 136.3)
    """
    return read_rows(REFERENCE_PATH)


def cells(rows: Iterable[Row], figure: Figure) -> list[Cell]:
    """The figure's cells among the rows, in the order of its axis.

    >>> [cell.K for cell in cells(reference(), FIGURES[1])]
    [5, 10, 15, 20, 25, 30, 35, 40, 45, 51]
    """
    mine = {Cell.of(row) for row in rows if row.figure == figure.key}
    return sorted(mine, key=lambda cell: int(getattr(cell, figure.axis)))


def curve(rows: Iterable[Row], figure: Figure, algorithm: str) -> list[Row]:
    """One algorithm's rows of a figure, in the order of its axis.

    >>> [row.regret_mean for row in curve(reference(), FIGURES[1], "newton")][:2]
    [293.2, 377.05]
    """
    mine = [row for row in rows if row.figure == figure.key and row.algorithm == algorithm]
    return sorted(mine, key=lambda row: int(getattr(row, figure.axis)))


def read_rows(path: Path) -> list[Row]:
    """The rows of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != Row._fields:
            raise ValueError(f"{path.name} must have the columns {', '.join(Row._fields)}, got {reader.fieldnames}")
        return [_row(line) for line in reader]


def _row(line: dict[str, str]) -> Row:
    return Row(
        figure=line["figure"],
        m=int(line["m"]),
        K=int(line["K"]),
        d=int(line["d"]),
        T=int(line["T"]),
        B=float(line["B"]),
        rounds=int(line["rounds"]),
        T_OPT=float(line["T_OPT"]),
        algorithm=line["algorithm"],
        regret_mean=float(line["regret_mean"]),
        regret_std=float(line["regret_std"]),
    )


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """A file that `read_rows` reads."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)
