"""`make faults`: injects every fault as often as the suite says and writes tables to out/faults.

Each part writes its own JSON file. faults.md is the table of all parts that have one, so that parts can run one by one.
The part `bugs` plants bugs into the service; bugs.md says which test has caught each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.faults.catching import TRAPS, Catch, sprung, uncaught
from tests.faults.catching import write as write_catches
from tests.faults.processes import Testbed, new_testbed
from tests.faults.report import COLUMNS, SECONDS_MAX, Row, total_seconds, write_part, write_table
from tests.faults.suite import BUGS_PART, PARTS, Fault

OUT = Path("out/faults")
LINE_CHARACTERS = 170
# Faults that report progress in other units than injections.
UNCOUNTED = ("overload", "feedback")


def main(arguments: list[str] | None = None) -> int:
    """Run the parts; returns 1 if a fault has a finding, a bug was not caught or the parts take too long."""
    chosen = _parser().parse_args(arguments)
    rows: list[Row] = []
    missed: list[str] = []
    columns = (TextColumn("{task.description:42}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress, new_testbed() as testbed:
        for name in chosen.parts or PARTS:
            started = time.monotonic()
            found = _rows(name, testbed, chosen.scale, progress)
            if name == BUGS_PART:
                missed = uncaught(_catches(testbed, progress))
            write_part(OUT, name, found, _circumstances(started, chosen.scale))
            write_table(OUT, list(PARTS))
            rows += found
    if rows:
        _show(rows)
    for bug in missed:
        print(f"planted and not caught: {bug}")
    seconds = total_seconds(OUT, list(PARTS))
    print(f"all parts in {OUT}: {seconds / 60:.0f} minutes, at most {SECONDS_MAX / 60:.0f} are allowed")
    return int(bool(missed) or seconds > SECONDS_MAX or not all(row.ok for row in rows))


def _parser() -> argparse.ArgumentParser:
    parts = "\n".join(f"  {name:10} {part.what}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        usage="make faults [PART=…], or python -m tests.faults [--scale SCALE] [PART ...]",
        description="Inject faults into the service and check that nothing is lost, duplicated or over budget.",
        epilog=f"parts, all of them unless some are named:\n{parts}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Not `choices`, which would refuse an empty list.
    parser.add_argument("parts", nargs="*", metavar="PART", type=_part, help="a part of the list below")
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 injects a tenth of the faults")
    return parser


def _part(name: str) -> str:
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"no part is called {name!r}; the parts are {', '.join(PARTS)}")
    return name


def _circumstances(started: float, scale: float) -> dict[str, Any]:
    return {
        "scale": scale,
        "seconds": round(time.monotonic() - started),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
    }


def _rows(name: str, testbed: Testbed, scale: float, progress: Progress) -> list[Row]:
    faults = PARTS[name].faults
    task = progress.add_task(name, total=len(faults))
    rows = []
    for fault in faults:
        rows.append(_row(fault, testbed, max(fault.short, round(fault.full * scale)), progress))
        progress.advance(task)
    return rows


def _catches(testbed: Testbed, progress: Progress) -> list[Catch]:
    """Plant every bug in every trap that is set for it."""
    task = progress.add_task("planted bugs", total=sum(len(trap.bugs) for trap in TRAPS))
    catches: list[Catch] = []
    for trap in TRAPS:
        for catch in sprung(trap, testbed):
            catches.append(catch)
            verdict = "caught" if catch.caught else "not caught" if catch.sound else "found without it"
            cells = (catch.bug, catch.by, catch.database, verdict, catch.found)
            progress.console.print(" · ".join(cells), highlight=False)
            progress.advance(task)
            write_catches(catches, OUT)
    return catches


def _row(fault: Fault, testbed: Testbed, injections: int, progress: Progress) -> Row:
    task = progress.add_task(fault.name, total=None if fault.run.__name__ in UNCOUNTED else injections)

    async def run() -> Row:
        return await fault.run(testbed, fault.database, injections, lambda: progress.advance(task))

    started = time.monotonic()
    try:
        row = replace(asyncio.run(run()), seconds=round(time.monotonic() - started, 1))
    except Exception as error:  # noqa: BLE001 - the other faults still have to run
        traceback.print_exception(error)
        row = Row(fault.name, fault.database, injections, 0, {"failed": 1}, details=(f"failed: {error!r}"[:600],))
    progress.update(task, visible=False)
    progress.console.print(" · ".join(row.cells()), highlight=False)
    return row


def _show(rows: list[Row]) -> None:
    table = Table(*COLUMNS)
    for row in rows:
        table.add_row(*row.cells(), style=None if row.ok else "red")
    Console(width=None if sys.stdout.isatty() else LINE_CHARACTERS).print(table)


if __name__ == "__main__":
    sys.exit(main())
