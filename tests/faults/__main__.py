"""`make faults`: every fault as often as the suite says, a table of what came of it in out/faults.

CBWK_FAULTS_SCALE=0.1 injects a tenth of it; CBWK_FAULTS_ONLY=kills runs those whose name begins so. Afterwards bugs are
planted, and a second table says what has caught each; CBWK_FAULTS_ONLY=seeded does that alone.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.faults.catching import TRAPS, Catch, sprung, uncaught
from tests.faults.catching import write as write_catches
from tests.faults.processes import Ground, new_ground
from tests.faults.report import COLUMNS, Row, write
from tests.faults.suite import SUITE, Fault

OUT = Path("out/faults")
LINE_CHARACTERS = 170
SEEDED = "seeded"


def main() -> int:
    """Run the suite; the exit code is 1 if anything was found. It takes no arguments, and tells so who gives one."""
    if sys.argv[1:]:
        print(__doc__)
        return 2
    scale = float(os.environ.get("CBWK_FAULTS_SCALE", "1"))
    only = os.environ.get("CBWK_FAULTS_ONLY", "")
    chosen = [fault for fault in SUITE if fault.name.startswith(only)]
    rows: list[Row] = []
    catches: list[Catch] = []
    started = time.monotonic()
    columns = (TextColumn("{task.description:42}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress, new_ground() as ground:
        whole = progress.add_task("faults", total=len(chosen))
        for fault in chosen:
            injections = max(fault.short, round(fault.full * scale))
            rows.append(_row(fault, ground, injections, progress))
            progress.advance(whole)
            about = {
                "scale": scale, "seconds": round(time.monotonic() - started), "processors": os.cpu_count(),
                "python": platform.python_version(),
            }  # fmt: skip
            write(rows, OUT, **about)
        if SEEDED.startswith(only):
            catches = _catches(ground, progress)
    if rows:
        _show(rows)
    missed = uncaught(catches) if catches else []
    for bug in missed:
        print(f"planted and not caught: {bug}")
    return int(bool(missed) or not all(row.ok for row in rows))


def _catches(ground: Ground, progress: Progress) -> list[Catch]:
    """Every bug in every trap."""
    task = progress.add_task("planted bugs", total=sum(len(trap.bugs) for trap in TRAPS))
    catches: list[Catch] = []
    for trap in TRAPS:
        for one in sprung(trap, ground):
            catches.append(one)
            told = "caught" if one.caught else "not caught" if one.sound else "found without it"
            progress.console.print(f"{one.bug} · {one.by} · {one.database} · {told} · {one.found}", highlight=False)
            progress.advance(task)
            write_catches(catches, OUT)
    return catches


def _row(fault: Fault, ground: Ground, injections: int, progress: Progress) -> Row:
    task = progress.add_task(fault.name, total=None if fault.run.__name__ in ("overload", "feedback") else injections)
    started = time.monotonic()
    try:
        row = asyncio.run(_awaited(fault, ground, injections, lambda: progress.advance(task)))
        row = replace(row, seconds=round(time.monotonic() - started, 1))
    except Exception as error:  # noqa: BLE001 - the other faults are still to be tried
        traceback.print_exception(error)
        row = Row(fault.name, fault.database, injections, 0, {"failed": 1}, details=(f"failed: {error!r}"[:600],))
    progress.update(task, visible=False)
    progress.console.print(" · ".join(row.cells()), highlight=False)
    return row


async def _awaited(fault: Fault, ground: Ground, injections: int, done: Callable[[], None]) -> Row:
    return await fault.run(ground, fault.database, injections, done)


def _show(rows: list[Row]) -> None:
    table = Table(*COLUMNS)
    for row in rows:
        table.add_row(*row.cells(), style=None if row.ok else "red")
    Console(width=None if sys.stdout.isatty() else LINE_CHARACTERS).print(table)


if __name__ == "__main__":
    sys.exit(main())
