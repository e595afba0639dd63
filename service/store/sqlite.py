"""SQLite: one file that belongs to one process, one writing connection, read-only connections for snapshots."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.engine import URL

from service.store.errors import DatabaseInUse, DatabaseUnusable
from service.store.statements import DRIVER, execute
from service.store.writer import Writer, is_dedicated

# SQLite takes 0 as "do not wait at all", for instance while another program copies the file.
BUSY_MS_MAX = 60_000
FILE_MODE = 0o600
FILE_ERRORS = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    }
)
UNAVAILABLE = FILE_ERRORS | {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM}

# SQLite has no clock, and the machine's clock may be set back while the process runs. It is read once; a clock that is
# never set is added, on Linux the one that runs on while a laptop sleeps.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_CLOCK_START_MICROS = (time.time_ns() - time.clock_gettime_ns(_CLOCK)) // 1000


def clock_micros() -> int:
    """Microseconds since 1970; never goes back within one process."""
    return _CLOCK_START_MICROS + time.clock_gettime_ns(_CLOCK) // 1000


class SqliteWriter(Writer):
    """SQLite's writing connection: a transaction locks the whole file."""

    epoch: int = 0
    now_micros = staticmethod(clock_micros)
    _version: int | None = None
    _owner: object = None  # of the last transaction

    def _connect(self) -> Connection:
        self._version = None
        return super()._connect()

    def _begin(self, connection: Connection, owner: object) -> None:
        execute(connection, "BEGIN IMMEDIATE").close()
        # This number changes when another connection has written since this connection last read it.
        cursor = execute(connection, "PRAGMA data_version")
        (version,) = cursor.fetchone()
        cursor.close()
        if version != self._version or owner is None or owner is not self._owner:
            self.epoch += 1
        self._version, self._owner = version, owner

    def _commit(self, connection: Connection) -> None:
        if connection.get_execution_options()[DRIVER].in_transaction:
            execute(connection, "COMMIT").close()

    def _roll_back(self) -> None:
        self.epoch += 1  # a COMMIT that raised may still have happened
        super()._roll_back()


def file_path(url: URL) -> Path:
    """The canonical path of the file; its directory is created."""
    path = Path(url.database or "").expanduser().absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.resolve()
    except OSError as error:
        raise DatabaseUnusable(f"cannot make the directory {path.parent}: {error.strerror}") from error


def lock_file(path: Path) -> int:
    """Lock the file for this process; the lock ends when the descriptor is closed or the process ends.

    A new file can be read by its owner only: contexts and outcomes are in it.
    """
    beside = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise DatabaseUnusable(f"cannot write to the directory {path.parent}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            message = f"another process uses {path}; SQLite serves one process at a time, PostgreSQL several"
            raise DatabaseInUse(message) from error
        raise DatabaseUnusable(f"cannot lock {beside}: {error.strerror}") from error
    with suppress(OSError):  # if it exists it keeps its mode; SQLite reports what else is wrong, and copies the mode
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    return descriptor


def sqlite_engine(
    path: Path, mode: Literal["IMMEDIATE", "DEFERRED"], pool_size: int, busy_timeout_ms: int, wait_seconds: int
) -> Engine:
    """Connections whose transactions begin in this mode; DEFERRED ones are read-only."""

    def connect() -> sqlite3.Connection:
        # With an isolation_level the driver would begin transactions on its own. The pool hands a connection to one
        # thread at a time.
        source = path.as_uri() + ("?mode=ro" if mode == "DEFERRED" else "")
        connection = sqlite3.connect(
            source, uri=True, isolation_level=None, check_same_thread=False, timeout=busy_timeout_ms / 1000
        )
        try:
            if mode == "DEFERRED":
                connection.execute("PRAGMA query_only = ON")
            else:
                # Applies to a new file. A commit of a few decisions writes a dozen pages, full or not: 8 KiB pages
                # would double the disk's work.
                connection.execute("PRAGMA page_size = 4096")
                connection.execute("PRAGMA journal_mode = WAL")
                # A commit is on the disk when it returns: an answered decision must survive a power cut.
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    engine = create_engine(
        "sqlite://",
        hide_parameters=True,  # what clients send must not reach the log
        creator=connect,
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=wait_seconds,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if not is_dedicated(connection):
            execute(connection, f"BEGIN {mode}")

    return engine


def error_code(error: BaseException) -> int | None:
    """SQLite's primary error code, the low byte of the extended one; None for other errors."""
    code = getattr(error, "sqlite_errorcode", None) if isinstance(error, sqlite3.Error) else None
    return None if code is None else code & 0xFF
