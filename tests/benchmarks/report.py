"""The results of the benchmark as tables and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from tests.benchmarks.clock import Timing
from tests.benchmarks.growth import Cell, Slope
from tests.benchmarks.workloads import BATCH_ROWS, Size

DECIDE_RATIO_MAX = 0.5
LEARN_RATIO_MAX = 0.5
BATCH_RATIO_MAX = 0.06
LARGE = Size("shared", arms=1000, dimension=100)
LARGE_DECIDE_SECONDS_MAX = 0.003


@dataclass(frozen=True)
class SetUp:
    """One comparison with VW: timings by contender's name and the size of the state."""

    size: Size
    timings: dict[str, Timing]
    state_bytes: int


@dataclass(frozen=True)
class Bar:
    """A figure that must not exceed a limit."""

    what: str
    figure: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the figure is within the limit."""
        return self.figure <= self.limit


def bars(set_ups: list[SetUp], cells: list[Cell]) -> list[Bar]:
    """Return every bar of the benchmark."""
    found = []
    for set_up in set_ups:
        timings, model = set_up.timings, set_up.size.model
        predict, vw_learn = timings["VW predict"], timings["VW learn"]
        batch = timings[f"decide, {BATCH_ROWS} rows"]
        found += [
            Bar(f"{model}: decide / VW predict", timings["decide"].ratio(predict), DECIDE_RATIO_MAX),
            Bar(f"{model}: learn / VW learn", timings["learn"].ratio(vw_learn), LEARN_RATIO_MAX),
            Bar(f"{model}: decide in batches of {BATCH_ROWS} / VW predict", batch.ratio(predict), BATCH_RATIO_MAX),
        ]
    large = [cell.decide.median for cell in cells if cell.size == LARGE]
    found += [Bar("shared, K = 1000, m = 100: decide, ms", 1e3 * s, 1e3 * LARGE_DECIDE_SECONDS_MAX) for s in large]
    return found


def set_up_table(set_up: SetUp) -> Table:
    """Return microseconds per decision of every contender, and the ratios to VW on text."""
    size, timings = set_up.size, set_up.timings
    title = f"{size.model}: K = {size.arms}, {size.dimension} features, state of {set_up.state_bytes:,} bytes"
    table = _table(title, "", "µs", "of VW predict", "of VW learn")
    for name, timing in timings.items():
        ratios = (f"{timing.ratio(timings[other]):.3f}" for other in ("VW predict", "VW learn"))
        table.add_row(name, f"{1e6 * timing.median:.2f}", *ratios)
    return table


def growth_table(cells: list[Cell]) -> Table:
    """Return a table with one row per size."""
    table = _table("growth, one row", "model", "K", "m", "decide µs", "learn µs", "state bytes")
    for cell in cells:
        times = (f"{1e6 * timing.median:,.0f}" for timing in (cell.decide, cell.learn))
        size = cell.size
        table.add_row(size.model, str(size.arms), str(size.dimension), *times, f"{cell.state_bytes:,}")
    return table


def slope_table(slopes: list[Slope]) -> Table:
    """Return the table of exponents."""
    table = _table("exponents (slope of log time over log size)", "", "all sizes", "last step")
    for slope in slopes:
        table.add_row(slope.what, f"{slope.overall:.2f}", f"{slope.last:.2f}")
    return table


def bar_table(found: list[Bar]) -> Table:
    """Return the table of bars."""
    table = _table("bars", "", "found", "at most", "")
    for bar in found:
        verdict = "[green]pass[/]" if bar.passed else "[red]FAIL[/]"
        table.add_row(bar.what, f"{bar.figure:.3f}", f"{bar.limit:g}", verdict)
    return table


def as_json(
    set_ups: list[SetUp], cells: list[Cell], slopes: list[Slope], found: list[Bar], versions: dict[str, str]
) -> dict[str, Any]:
    """Return all figures, including those of single slices."""
    return {
        "versions": versions,
        "set_ups": [asdict(set_up) for set_up in set_ups],
        "growth": [asdict(cell) for cell in cells],
        "exponents": [asdict(slope) for slope in slopes],
        "bars": [{**asdict(bar), "passed": bar.passed} for bar in found],
    }


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table
