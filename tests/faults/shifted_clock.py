"""A clock that a trial sets: the one on which the service under test runs, under load and without a restart."""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from tests.faults.history import MICROS

# Names the file with the shift of the clock, for processes on SQLite; unset, the clock is right.
VARIABLE = "FAULTS_CLOCK"
_SHIFT = struct.Struct("<q")  # nanoseconds
# A clock function in the database that hides PostgreSQL's, because its schema is searched first.
_WRONG_CLOCK = """
CREATE TABLE clock_jump (seconds double precision NOT NULL);
INSERT INTO clock_jump VALUES (0);
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
  'SELECT pg_catalog.clock_timestamp() + make_interval(secs => (SELECT seconds FROM public.clock_jump))';
"""


class ShiftedClock:
    """The right time and a shift. On PostgreSQL the database has it, on SQLite a file that the processes map."""

    def __init__(self, url: str, folder: Path, *, moves: bool) -> None:
        self._url, self._moves = url, moves
        self.seconds = 0.0
        self._file: Path | None = None
        if not moves:
            return
        if url.startswith("sqlite"):
            self._file = folder / f"clock-{time.monotonic_ns()}"
            self._file.write_bytes(_SHIFT.pack(0))
        else:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(_WRONG_CLOCK)
                # A session keeps the search path of its start.
                connection.execute(f"ALTER DATABASE {connection.info.dbname} SET search_path = public, pg_catalog")

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of processes that follow this clock."""
        return {} if self._file is None else {VARIABLE: str(self._file)}

    def jump(self, seconds: float) -> None:
        """Set the shift."""
        assert self._moves, "the trial was started with the right clock"
        self.seconds = seconds
        if self._file is not None:
            with self._file.open("r+b") as file:
                file.write(_SHIFT.pack(int(seconds * 1e9)))
        else:
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute("UPDATE clock_jump SET seconds = %s", [seconds])

    def jump_before(self, period_seconds: int, seconds: float) -> None:
        """Jump forward, to this time before the end of a period of that length."""
        passed = (time.time() + self.seconds + seconds) % period_seconds
        self.jump(self.seconds + period_seconds - passed)

    def in_seconds(self, seconds: float) -> str:
        """Return a time from now in the form of the interface."""
        return (datetime.now(UTC) + timedelta(seconds=self.seconds + seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def now_micros(self) -> int:
        """Return the time, in microseconds since 1970."""
        return int((time.time() + self.seconds) * MICROS)


def follow(path: str) -> None:
    """Let this process follow the clock of a file; call it after the service is imported."""
    from service.store import sqlite  # noqa: PLC0415 - a forked process has imported it

    right = time.clock_gettime_ns
    with Path(path).open("rb") as file:
        shift = mmap.mmap(file.fileno(), _SHIFT.size, prot=mmap.PROT_READ)

    def shifted(clock: int) -> int:
        return right(clock) + (_SHIFT.unpack(shift)[0] if clock == sqlite._CLOCK else 0)

    time.clock_gettime_ns = shifted
