"""The grids of the paper's figures, the rows of results, and the file format of both.

`paper_reference.csv` contains the regret of the authors' published code, 10 runs per cell; see README.md beside it. Our
runs use the cells of this file. The paper's text (section "Numerical results") states other cells:

| figure | fixed | published code, run here | paper's text |
|---|---|---|---|
| 1(a) | K = 3, T = 2,000 | m = 10, 15, …, 95, 100 | m = 10, 14, 19, …, 96, 101 |
| 1(b) | m = 52, T = 2,000 | K = 5, 10, …, 45, 51 | K = 5, 10, …, 45, 50 |
| 1(c) | m = 5, K = 3 | T = 1000, 2000, …, 11000, 12000 | T = 1000, 1100, …, 12000 |
| 1(d) | m = 52, K = 3 | T = 1000, 2000, …, 11000, 12000 | T = 1000, 1100, …, 12000 |

The text states 10 runs per cell for 1(a) and 1(b), and no number for 1(c) and 1(d). It states neither d and B nor the
statistic of the curves; the published code has d = 4 and B = T/4, and the authors' curves of 1(c) and 1(d) are reported
to be medians. The file and our plots have means over the runs in all four figures.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

REFERENCE_PATH = Path(__file__).with_name("paper_reference.csv")


class Row(NamedTuple):
    """One line of results in the paper's notation. The fields are the columns of the file."""

    figure: str
    m: int
    K: int
    d: int
    T: int
    B: float
    rounds: int  # number of runs; the name is that of the column
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
        """Return the cell of a row."""
        return cls(row.figure, row.m, row.K, row.d, row.T, row.B)


class Figure(NamedTuple):
    """One of the paper's four figures."""

    name: str  # option of `cbwk reproduce`
    key: str  # name in the file
    axis: str  # the parameter that varies: m, K or T
    label: str  # label of the horizontal axis
    title: str
    text_values: str  # values of the axis in the paper's text


FIGURES = (
    Figure("1a", "1a_m", "m", "dimension m", "Figure 1(a): K = 3 arms, T = 2,000 rounds", "10, 14, 19, …, 96, 101"),
    Figure("1b", "1b_K", "K", "arms K", "Figure 1(b): dimension m = 52, T = 2,000 rounds", "5, 10, …, 45, 50"),
    Figure("1c", "1c_T_m5", "T", "rounds T", "Figure 1(c): dimension m = 5, K = 3 arms", "1000, 1100, …, 12000"),
    Figure("1d", "1d_T_m52", "T", "rounds T", "Figure 1(d): dimension m = 52, K = 3 arms", "1000, 1100, …, 12000"),
)


def select_figures(name: str) -> tuple[Figure, ...]:
    """Return the figure of this name, or all four for "all".

    >>> [figure.axis for figure in select_figures("all")]
    ['m', 'K', 'T', 'T']
    """
    selected = tuple(figure for figure in FIGURES if name in (figure.name, "all"))
    if not selected:
        raise ValueError(f"figure must be one of {', '.join(each.name for each in FIGURES)} or all, got {name!r}")
    return selected


def reference() -> list[Row]:
    """Return the results of the authors' published code.

    >>> rows = reference()
    >>> len(rows), rows[0].regret_mean
    (159, 136.3)
    """
    return read_rows(REFERENCE_PATH)


def cells(rows: Iterable[Row], figure: Figure) -> list[Cell]:
    """Return the cells of the figure among the rows, in the order of its axis.

    >>> [cell.K for cell in cells(reference(), FIGURES[1])]
    [5, 10, 15, 20, 25, 30, 35, 40, 45, 51]
    """
    found = {Cell.of(row) for row in rows if row.figure == figure.key}
    return sorted(found, key=lambda cell: int(getattr(cell, figure.axis)))


def axis_values(rows: Iterable[Row], figure: Figure) -> str:
    """Return the values of the figure's axis among the rows as text, shortened to the first and last two.

    >>> axis_values(reference(), FIGURES[1])
    '5, 10, …, 45, 51'
    """
    values = [str(getattr(cell, figure.axis)) for cell in cells(rows, figure)]
    return ", ".join(values if len(values) <= 4 else [*values[:2], "…", *values[-2:]])


def describe_grids(rows: Sequence[Row], figures: Sequence[Figure]) -> str:
    """Return the cells that are run, those of the paper's text, and the statistic of the plots.

    >>> print(describe_grids(reference(), FIGURES[1:2]))
    The cells are those of the authors' published code, not those of the paper's text:
    figure 1b: K = 5, 10, …, 45, 51 (the paper's text: 5, 10, …, 45, 50)
    Plots and tables show means over the runs. The paper's text names no statistic.
    """
    lines = [
        f"figure {figure.name}: {figure.axis} = {axis_values(rows, figure)} (the paper's text: {figure.text_values})"
        for figure in figures
    ]
    first = "The cells are those of the authors' published code, not those of the paper's text:"
    last = "Plots and tables show means over the runs. The paper's text names no statistic."
    return "\n".join([first, *lines, last])


def curve(rows: Iterable[Row], figure: Figure, algorithm: str) -> list[Row]:
    """Return the rows of one algorithm and figure, in the order of its axis.

    >>> [row.regret_mean for row in curve(reference(), FIGURES[1], "newton")][:2]
    [293.2, 377.05]
    """
    found = [row for row in rows if row.figure == figure.key and row.algorithm == algorithm]
    return sorted(found, key=lambda row: int(getattr(row, figure.axis)))


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file. Raise ValueError if its columns are not those of `Row`."""
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


class RowFile:
    """A file that `read_rows` reads, and to which rows are added one by one; what is added is in the file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._write(Row._fields)

    def add(self, row: Row) -> None:
        """Write a row."""
        self._write(row)

    def _write(self, values: Iterable[object]) -> None:
        self._writer.writerow(values)
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write a file that `read_rows` reads."""
    with RowFile(path) as file:
        for row in rows:
            file.add(row)
