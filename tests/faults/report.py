"""The table of a run: one row per fault and database."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

COLUMNS = (
    "fault", "database", "injections", "acknowledged", "lost", "duplicated", "over budget", "other findings",
    "recovery (median, max)",
)  # fmt: skip

Progress = Callable[[], None]


@dataclass(frozen=True)
class Row:
    """What one fault came to."""

    fault: str
    database: str
    injections: int
    acknowledged: int  # operations
    findings: dict[str, int]  # by kind, those of the checker and those of the trial itself
    recoveries: tuple[float, ...] = ()  # seconds from the fault to the next acknowledged operation
    note: str = ""
    details: tuple[str, ...] = ()  # the first findings in words
    skipped: str = ""  # why it could not be tried here
    seconds: float = 0.0  # that the whole of it took

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def cells(self) -> list[str]:
        """The row in words."""
        if self.skipped:
            return [self.fault, self.database, f"skipped: {self.skipped}", *("–" for _ in COLUMNS[3:])]
        named = {"lost", "duplicated", "over budget"}
        other = ", ".join(f"{kind} {number}" for kind, number in self.findings.items() if kind not in named) or "0"
        recovery = f"{median(self.recoveries):.2f} s, {max(self.recoveries):.2f} s" if self.recoveries else "–"
        counted = [str(self.findings.get(kind, 0)) for kind in ("lost", "duplicated", "over budget")]
        return [
            self.fault, self.database, f"{self.injections:,}", f"{self.acknowledged:,}", *counted, other, recovery,
        ]  # fmt: skip


def markdown(rows: Sequence[Row]) -> str:
    """The table for people."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    notes = [f"- {row.fault} ({row.database}): {row.note}" for row in rows if row.note]
    wrong = [f"- {row.fault} ({row.database}): {detail}" for row in rows for detail in row.details]
    parts = ["\n".join(lines), "\n".join(notes), "\n".join(["Findings:", *wrong]) if wrong else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def write(rows: Sequence[Row], folder: Path, **about: object) -> None:
    """The table as `faults.md` and `faults.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "faults.md").write_text(markdown(rows), encoding="utf-8")
    whole = about | {"rows": [asdict(row) for row in rows]}
    (folder / "faults.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
