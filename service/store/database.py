"""One database behind one interface: a SQLite file that belongs to one process, or PostgreSQL for several.

DatabaseError
├── DatabaseUrlInvalid      the URL names no database that can be opened here
├── DatabaseInUse           another process has the SQLite file
├── DatabaseUnusable        the SQLite file cannot be used: not writable, no database, the disk is full
├── DatabaseUnreachable     PostgreSQL does not answer, or does not let us in
└── DatabaseNotMigrated     its tables are not those of this version (see service.store.migrate)

These are raised while a database is opened, with one line for whoever starts the process. Later errors are
SQLAlchemy's; `Database.is_connection_error` tells those of the database from those of the data.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psycopg
from psycopg.types.string import BytesBinaryDumper
from sqlalchemy import Connection, Engine, QueuePool, Table, create_engine, event, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service.settings import Settings
from service.store import locking
from service.store.bulk_insert import append_columns, append_rows
from service.store.statements import Row, execute
from service.store.writer import NOW_MICROS, StandingPostgresql, StandingSqlite, is_standing

# A peer that vanished without a word is given up after this long, or its connection would hold a request for ever.
_PEER_SILENT_SECONDS_MAX = 15
_BUSY_MS_MAX = 60_000
# Any number will do that nobody else in the same database takes: "cbwk" in ASCII.
_TURN = 0x6362776B
# Whole classes of SQLSTATE: connection, resources of the server (disk, memory, connections), an operator's intervention
# (shutdown, restart, cancelled by statement_timeout); then locks not had in time, transactions idle or open too long,
# and a server that has become a read-only standby.
_AWAY_STATES = ("08", "53", "57", locking.NOT_AVAILABLE, "25P03", "25P04", "25006")
_FILE_CODES = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    }
)
_AWAY_CODES = _FILE_CODES | {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM}

# SQLite has no clock of its own, and the machine's may be set back while we run: it is read once, and from then on a
# clock that nobody sets is added, on Linux the one that does not stop while a laptop sleeps.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_CLOCK_START_MICROS = (time.time_ns() - time.clock_gettime_ns(_CLOCK)) // 1000

_NOW_MICROS = text(NOW_MICROS)


class DatabaseError(Exception):
    """A database that cannot be opened; the message is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class DatabaseUrlInvalid(DatabaseError):  # noqa: N818 - as all below: named for what is the case
    """The URL names no database that can be opened here."""


class DatabaseInUse(DatabaseError):  # noqa: N818
    """Another process has the SQLite file."""


class DatabaseUnusable(DatabaseError):  # noqa: N818
    """The SQLite file cannot be used."""


class DatabaseUnreachable(DatabaseError):  # noqa: N818
    """PostgreSQL does not answer, or does not let us in."""


class DatabaseNotMigrated(DatabaseError):  # noqa: N818
    """The tables are not those of this version."""


class Database:
    """Connections to one database: `write()` for one transaction, `read()` for one snapshot.

    On SQLite there is one writing connection: a second `write()` waits until the first has ended.
    """

    def __init__(
        self,
        url: URL,
        writer: Engine,
        reader: Engine,
        *,
        path: Path | None,
        lock: int | None,
        wait_seconds: float = 5.0,
        lock_timeout_ms: int = 0,
    ) -> None:
        self.url = _public(url)
        self._url = url
        self.path = path
        self._writer = writer
        self._reader = reader
        self._standing = (StandingPostgresql if path is None else StandingSqlite)(writer, wait_seconds)
        self._lock_timeout_ms = lock_timeout_ms  # of PostgreSQL's sessions
        self._lock = lock
        self._closed = False

    @classmethod
    def open(
        cls,
        url: str,
        *,
        pool_size: int = 5,
        statement_timeout_ms: int = 5_000,
        lock_timeout_ms: int = 500,
        idle_in_transaction_timeout_ms: int = 5_000,
        connect_timeout_seconds: int = 5,
    ) -> Self:
        """Open the database and talk to it once, so that what is wrong is known now. 0 ms is no limit.

        Raises a `DatabaseError`.
        """
        parsed = _parse(url)
        if parsed.drivername == "sqlite":
            # To SQLite 0 would mean not to wait at all, for instance for somebody who copies the file.
            busy_timeout_ms = statement_timeout_ms or _BUSY_MS_MAX
            return cls._open_sqlite(parsed, pool_size, busy_timeout_ms, connect_timeout_seconds)
        session = {
            "statement_timeout": statement_timeout_ms,
            "lock_timeout": lock_timeout_ms,
            "idle_in_transaction_session_timeout": idle_in_transaction_timeout_ms,
            "synchronous_commit": "on",
        }
        return cls._open_postgresql(parsed, pool_size, connect_timeout_seconds, session)

    @classmethod
    def open_beside(cls, url: str, *, connect_timeout_seconds: int = 5) -> Self:
        """Open a database to read it, beside the process that has it and lives longer: nothing is locked or limited."""
        parsed = _parse(url)
        if parsed.drivername == "sqlite":
            path = Path(parsed.database or "").resolve()
            reader = _sqlite_engine(path, "DEFERRED", 1, _BUSY_MS_MAX, connect_timeout_seconds)
            return cls(parsed, reader, reader, path=path, lock=None)
        reader = _postgresql_engine(parsed, 1, connect_timeout_seconds, {"statement_timeout": 0}, read_only=True)
        return cls(parsed, reader, reader, path=None, lock=None)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Open the database that the settings name."""
        return cls.open(
            settings.database_url,
            pool_size=settings.pool_size,
            statement_timeout_ms=settings.statement_timeout_ms,
            lock_timeout_ms=settings.lock_timeout_ms,
            idle_in_transaction_timeout_ms=settings.idle_in_transaction_timeout_ms,
            connect_timeout_seconds=settings.connect_timeout_seconds,
        )

    @classmethod
    def _open_sqlite(cls, url: URL, pool_size: int, busy_timeout_ms: int, wait_seconds: int) -> Self:
        path = _sqlite_path(url)
        lock = _lock_file(path)
        writer = _sqlite_engine(path, "IMMEDIATE", 1, busy_timeout_ms, wait_seconds)
        reader = _sqlite_engine(path, "DEFERRED", pool_size, busy_timeout_ms, wait_seconds)
        database = cls(url, writer, reader, path=path, lock=lock, wait_seconds=wait_seconds)
        try:
            with database.write(), database.read():
                return database
        except DBAPIError as error:
            database.close()
            raise DatabaseUnusable(f"cannot use the database {path}: {error.orig}") from error

    @classmethod
    def _open_postgresql(cls, url: URL, pool_size: int, connect_seconds: int, session: dict[str, Any]) -> Self:
        # One stands for the engine, and others have to write, too.
        writer = _postgresql_engine(url, max(2, pool_size), connect_seconds, session, read_only=False)
        reader = _postgresql_engine(url, pool_size, connect_seconds, session, read_only=True)
        timeout = session["lock_timeout"]
        database = cls(url, writer, reader, path=None, lock=None, wait_seconds=connect_seconds, lock_timeout_ms=timeout)
        try:
            with database.read() as connection:
                connection.execute(select(1))
        except DBAPIError as error:
            database.close()
            reason = str(error.orig).strip().partition("\n")[0]
            raise DatabaseUnreachable(f"cannot connect to {database.url}: {reason}") from error
        return database

    def close(self) -> None:
        """End every connection and let another process have the file. A closed database opens nothing again."""
        self._closed = True
        self._reader.dispose()
        self._standing.close()
        self._writer.dispose()  # the last to go: it moves SQLite's log into the file
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def private_url(self) -> str:
        """The URL with its password, for `open_beside` in a process of our own and for nobody's eyes."""
        if self.path is not None:
            return f"sqlite:///{self.path}"
        return self._url.render_as_string(hide_password=False)

    @property
    def dialect(self) -> Literal["sqlite", "postgresql"]:
        """Which of the two it is."""
        return "postgresql" if self.path is None else "sqlite"

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: committed at the end of the block, rolled back if an exception leaves it."""
        assert not self._closed, "a closed database has lost its lock"
        with self._standing.begin() if self.dialect == "sqlite" else self._writer.begin() as connection:
            yield connection

    def write_standing(self, user: object) -> AbstractContextManager[Connection]:
        """The same on a connection that is kept for whoever writes all the time: one at a time."""
        assert not self._closed, "a closed database has lost its lock"
        return self._standing.begin(user)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One snapshot that cannot be written to. Keep it short: SQLite's log grows while a reader stands on it."""
        assert not self._closed, "a closed database has lost its lock"
        with self._reader.begin() as connection:
            yield connection

    def now_micros(self, connection: Connection) -> int:
        """Whole microseconds since 1970: by the clock of PostgreSQL, which replicas share, or by that of this process,
        which never goes back. On a standing connection it is the time at which the transaction began."""
        if isinstance(self._standing, StandingPostgresql) and is_standing(connection):
            return self._standing.now_micros
        return clock_micros(connection)

    def epoch(self) -> int | None:
        """In a standing transaction, a number that is another one if anybody else has written since its user's last
        one; None where that cannot be known. With it what was read or written then need not be read again."""
        return self._standing.epoch if isinstance(self._standing, StandingSqlite) else None

    def take_turn(self, connection: Connection) -> None:
        """Wait until no other replica does what only one may do at a time, and keep the others out until the
        transaction ends. SQLite needs nothing: it has no other replica.

        Without limits of time: another replica's migration takes as long as it takes.
        """
        if self.dialect == "postgresql":
            locking.several(connection, "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _TURN})

    def append(self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows of plain Python values, all with the columns of the first: the fast way of either database."""
        append_rows(connection, table, rows)

    def append_columns(
        self, connection: Connection, table: Table, blocks: Sequence[Mapping[str, Sequence[Any]]]
    ) -> None:
        """The same with rows that are given column by column, in blocks."""
        append_columns(connection, table, blocks)

    def lock_rows(
        self, connection: Connection, numbers: Sequence[int], *, timeout_ms: int, fresh: bool = False
    ) -> list[Row]:
        """Lock campaigns until the transaction ends, and return their states; see `service.store.locking`.

        `fresh`: nothing was done in the transaction yet, so that a savepoint with which it began will do.
        """
        if self.dialect == "sqlite":  # BEGIN IMMEDIATE has locked everything
            return locking.states(connection, numbers, lock=False)
        return locking.lock_rows(
            connection,
            numbers,
            timeout_ms=None if timeout_ms == self._lock_timeout_ms else timeout_ms,
            savepoint=not fresh or not is_standing(connection),
        )

    @staticmethod
    def is_connection_error(error: BaseException) -> bool:
        """Whether the database is at fault and not the data: away, shutting down, full, or out of time.

        What was asked may succeed later without a change. After a failed commit it may also have succeeded already.
        """
        if isinstance(error, PoolTimeoutError | DatabaseUnreachable):
            return True
        if isinstance(error, DBAPIError):
            return error.connection_invalidated or Database.is_connection_error(error.orig or ValueError())
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate is None:
            return True  # libpq's own: refused, closed, timed out
        if isinstance(error, psycopg.Error):
            return (error.sqlstate or "").startswith(_AWAY_STATES)
        return _sqlite_code(error) in _AWAY_CODES

    @staticmethod
    def is_file_error(error: BaseException) -> bool:
        """Whether SQLite's file failed: then nobody knows what is on the disk, and the process should end."""
        return _sqlite_code(error.orig if isinstance(error, DBAPIError) and error.orig else error) in _FILE_CODES

    @staticmethod
    def is_second_decision(error: IntegrityError) -> bool:
        """Whether a decision was refused because there is one of its id; any other refusal is a mistake of ours."""
        # SQLite tells which columns, not which constraint.
        refused = error.orig.diag.constraint_name if isinstance(error.orig, psycopg.Error) else str(error.orig)
        return "decision_id" in (refused or "")


def clock_micros(connection: Connection) -> int:
    """What `Database.now_micros` says, for those who have only a connection."""
    if connection.dialect.name == "sqlite":
        return _CLOCK_START_MICROS + time.clock_gettime_ns(_CLOCK) // 1000
    return int(connection.execute(_NOW_MICROS).scalar_one())


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Without its cause: the text may carry a password.
        raise DatabaseUrlInvalid("the database URL cannot be read") from None
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise DatabaseUrlInvalid("the database URL must begin with sqlite:/// or postgresql://")
    if not parsed.database or parsed.database == ":memory:" or parsed.host or parsed.query:
        raise DatabaseUrlInvalid(
            "a SQLite URL names a file and nothing else: sqlite:///relative or sqlite:////absolute"
        )
    return parsed.set(drivername="sqlite")


def _public(url: URL) -> str:
    """The URL as it may be shown: libpq also takes passwords among its options."""
    query = {name: value for name, value in url.query.items() if "password" not in name}
    drivername = url.drivername.partition("+")[0]
    return URL.create(drivername, url.username, None, url.host, url.port, url.database, query).render_as_string()


def _sqlite_path(url: URL) -> Path:
    """The file, by the path every process agrees on, in a directory that is there."""
    path = Path(url.database or "").expanduser().absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.resolve()
    except OSError as error:
        raise DatabaseUnusable(f"cannot make the directory {path.parent}: {error.strerror}") from error


def _lock_file(path: Path) -> int:
    """Take the file for this process, until it closes the descriptor or ends, however it ends."""
    beside = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DatabaseUnusable(f"cannot write to the directory {path.parent}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise DatabaseInUse(
            f"another process uses {path}; SQLite serves one process at a time, PostgreSQL several"
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise DatabaseUnusable(f"cannot lock {beside}: {error.strerror}") from error
    return descriptor


def _sqlite_engine(
    path: Path, mode: Literal["IMMEDIATE", "DEFERRED"], pool_size: int, busy_timeout_ms: int, wait_seconds: int
) -> Engine:
    def connect() -> sqlite3.Connection:
        # Without isolation_level the driver would begin transactions at moments of its own choice. The pool hands a
        # connection to one thread at a time.
        source = path.as_uri() + ("?mode=ro" if mode == "DEFERRED" else "")
        connection = sqlite3.connect(
            source, uri=True, isolation_level=None, check_same_thread=False, timeout=busy_timeout_ms / 1000
        )
        try:
            if mode == "DEFERRED":
                connection.execute("PRAGMA query_only = ON")
            else:
                # Of a new file only. A commit of a few decisions writes a dozen pages, whatever is on them: with 8 KiB
                # for each the disk would have twice as much to do.
                connection.execute("PRAGMA page_size = 4096")
                connection.execute("PRAGMA journal_mode = WAL")
                # A commit is on the disk when it returns: what was answered must outlive a power cut.
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    engine = create_engine(
        "sqlite://",
        hide_parameters=True,  # what clients send is not for the log
        creator=connect,
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=wait_seconds,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if not is_standing(connection):
            execute(connection, f"BEGIN {mode}")

    return engine


def _postgresql_engine(
    url: URL, pool_size: int, connect_seconds: int, session: dict[str, Any], *, read_only: bool
) -> Engine:
    options = {
        "application_name": "cbwk",
        "client_encoding": "UTF8",
        "connect_timeout": connect_seconds,
        "keepalives": 1,
        "keepalives_idle": _PEER_SILENT_SECONDS_MAX // 3,
        "keepalives_interval": _PEER_SILENT_SECONDS_MAX // 3,
        "keepalives_count": 2,
        "tcp_user_timeout": _PEER_SILENT_SECONDS_MAX * 1000,
    }
    engine = create_engine(
        url,
        hide_parameters=True,  # what clients send is not for the log
        isolation_level="REPEATABLE READ" if read_only else "READ COMMITTED",
        connect_args={name: value for name, value in options.items() if name not in url.query},
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=connect_seconds,
        # One empty round trip, so that a restart of the server costs the idle connections and no request.
        pool_pre_ping=True,
        pool_use_lifo=True,
    )

    @event.listens_for(engine, "connect")
    def connected(connection: psycopg.Connection[Any], _: object) -> None:
        # For bytes psycopg otherwise takes a dumper that is written in Python, twice as long as the rest of a row.
        connection.adapters.register_dumper(bytes, BytesBinaryDumper)
        # Not among the connection's options: poolers such as PgBouncer refuse those.
        connection.autocommit = True  # or a rollback would undo them
        for name, value in session.items():
            connection.execute("SELECT set_config(%s, %s, false)", [name, str(value)])
        connection.autocommit = False
        connection.read_only = read_only

    return engine


def _sqlite_code(error: BaseException) -> int | None:
    """SQLite's primary error code: the low byte of the extended one."""
    code = getattr(error, "sqlite_errorcode", None) if isinstance(error, sqlite3.Error) else None
    return None if code is None else code & 0xFF
