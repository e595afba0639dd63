"""The processor time of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICK_MICROS = 1_000_000 / os.sysconf("SC_CLK_TCK")
# Places after the name of the process in /proc/<pid>/stat: its parent; its own times and those of its ended children.
_PARENT, _TIMES = 1, slice(11, 15)


def processor_micros(pids: Iterable[int]) -> float:
    """Returns what these processes and their ended children have used, in microseconds; one that is gone has none."""
    return _TICK_MICROS * sum(sum(map(int, _stat(pid)[_TIMES])) for pid in pids)


def family_of(pid: int) -> list[int]:
    """Returns the process and its running children."""
    others = (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return [pid, *(other for other in others if parent_of(other) == pid)]


def parent_of(pid: int) -> int:
    """Returns the process that started a process; 0 if it is gone."""
    stat = _stat(pid)
    return int(stat[_PARENT]) if stat else 0


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
