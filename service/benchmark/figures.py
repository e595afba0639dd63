"""The figures of a run and their targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    value: float
    unit: str = ""
    least: float | None = None
    most: float | None = None
    remark: str = ""

    @property
    def holds(self) -> bool | None:
        """Tells whether the figure meets its target; None without a target."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def target(self) -> str:
        """Returns the target as text.

        >>> Figure("rate", 1.3, least=1.2).target, Figure("rate", 1.3).target
        ('≥ 1.2', '')
        """
        if self.least is not None:
            return f"≥ {self.least:g}"
        return "" if self.most is None else f"≤ {self.most:g}"


@dataclass
class Report:
    """The figures of a run and the measurements behind them."""

    figures: list[Figure] = field(default_factory=list)
    raw: dict[str, list[float]] = field(default_factory=dict)  # by name, in the order of the rounds

    def note(self, name: str, value: float) -> None:
        """Adds one measurement of a round."""
        self.raw.setdefault(name, []).append(value)

    def ratio(self, name: str, over: str) -> float:
        """Returns the median over the rounds of the ratio of two measurements."""
        return median(a / b for a, b in zip(self.raw[name], self.raw[over], strict=True))

    def middle(self, name: str) -> float:
        """Returns the median over the rounds."""
        return median(self.raw[name])

    def table(self) -> Table:
        """Returns the table for people."""
        table = Table(title="cbwk bench")
        table.add_column("figure")
        table.add_column("measured", justify="right", no_wrap=True)
        table.add_column("must be", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        table.add_column("")
        for each in self.figures:
            verdict = {True: "ok", False: "SHORT", None: ""}[each.holds]
            table.add_row(each.name, f"{each.value:,.4g} {each.unit}".strip(), each.target, verdict, each.remark)
        return table

    def document(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the document for programs."""
        return {
            "machine": dict(machine),
            "figures": [asdict(each) | {"holds": each.holds} for each in self.figures],
            "measurements": self.raw,
        }
