"""The table of the faults: one row for each fault and database."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

COLUMNS = (
    "fault", "database", "injections", "acknowledged", "lost", "duplicated", "over budget", "other findings",
    "recovery (median, max)",
)  # fmt: skip

# The limit of all parts together.
SECONDS_MAX = 75 * 60

Progress = Callable[[], None]


@dataclass(frozen=True)
class Row:
    """The result of one fault on one database."""

    fault: str
    database: str
    injections: int
    acknowledged: int  # operations
    findings: dict[str, int]  # by kind, from the checker and from the trial
    recoveries: tuple[float, ...] = ()  # seconds from the fault to the next acknowledged operation
    note: str = ""
    details: tuple[str, ...] = ()  # descriptions of the first findings
    skipped: str = ""  # why this machine cannot run it
    seconds: float = 0.0  # duration of all injections and checks

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def cells(self) -> list[str]:
        """Return the row of the table."""
        if self.skipped:
            return [self.fault, self.database, f"skipped: {self.skipped}", *("–" for _ in COLUMNS[3:])]
        named = {"lost", "duplicated", "over budget"}
        other = ", ".join(f"{kind} {number}" for kind, number in self.findings.items() if kind not in named) or "0"
        recovery = f"{median(self.recoveries):.2f} s, {max(self.recoveries):.2f} s" if self.recoveries else "–"
        counted = [str(self.findings.get(kind, 0)) for kind in ("lost", "duplicated", "over budget")]
        return [
            self.fault, self.database, f"{self.injections:,}", f"{self.acknowledged:,}", *counted, other, recovery,
        ]  # fmt: skip


def in_words(counts: Mapping[str, int]) -> str:
    """Return numbers with what they count."""
    return ", ".join(f"{number} × {what}" for what, number in sorted(counts.items()))


def markdown(rows: Sequence[Row]) -> str:
    """Return the table, the notes and the findings."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    notes = [f"- {row.fault} ({row.database}): {row.note}" for row in rows if row.note]
    wrong = [f"- {row.fault} ({row.database}): {detail}" for row in rows for detail in row.details]
    blocks = ["\n".join(lines), "\n".join(notes), "\n".join(["Findings:", *wrong]) if wrong else ""]
    return "\n\n".join(block for block in blocks if block) + "\n"


def write_part(folder: Path, part: str, rows: Sequence[Row], circumstances: Mapping[str, object]) -> None:
    """Write the rows of one part as JSON, with the circumstances of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {**circumstances, "rows": [asdict(row) for row in rows]}
    (folder / f"{part}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def write_table(folder: Path, parts: Sequence[str]) -> None:
    """Write the table of all parts that have run, in the order of `parts`, as `faults.md`."""
    contents = _contents(folder, parts)
    rows = [_row(cells) for content in contents.values() for cells in content["rows"]]
    minutes = ", ".join(f"{part} {content['seconds'] / 60:.1f}" for part, content in contents.items())
    scales = {content["scale"] for content in contents.values()}
    scale = "" if scales == {1.0} else f"; scale {', '.join(map(str, sorted(scales)))}"
    total = sum(content["seconds"] for content in contents.values()) / 60
    text = f"{markdown(rows)}\nMinutes: {minutes}; {total:.0f} in total{scale}.\n"
    (folder / "faults.md").write_text(text, encoding="utf-8")


def total_seconds(folder: Path, parts: Sequence[str]) -> float:
    """Return the time that the last runs of all parts have taken together."""
    return float(sum(content["seconds"] for content in _contents(folder, parts).values()))


def _contents(folder: Path, parts: Sequence[str]) -> dict[str, Any]:
    paths = {part: folder / f"{part}.json" for part in parts}
    return {part: json.loads(path.read_text(encoding="utf-8")) for part, path in paths.items() if path.exists()}


def _row(cells: dict[str, Any]) -> Row:
    return Row(**cells | {"recoveries": tuple(cells["recoveries"]), "details": tuple(cells["details"])})
