"""One database behind one interface: a SQLite file that belongs to one process, or PostgreSQL for several."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psycopg
from sqlalchemy import Connection, Engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service.settings import Settings
from service.store import locking, postgresql, sqlite
from service.store.errors import DatabaseUnreachable, DatabaseUnusable, DatabaseUrlInvalid
from service.store.postgresql import PostgresqlWriter, Timelines, postgresql_engine
from service.store.sqlite import SqliteWriter, sqlite_engine
from service.store.statements import Row
from service.store.writer import is_dedicated

# The number of the advisory lock, which no other program in the same database uses: "cbwk" in ASCII.
_ADVISORY_LOCK = 0x6362776B
_NOW_MICROS = text(postgresql.NOW_MICROS)
# Several hosts in a URL as libpq reads it, which SQLAlchemy has among the options instead.
_SEVERAL_HOSTS = re.compile(r"(?P<before>[a-z0-9+]+://([^/?#]*@)?)(?P<hosts>[^/?#@]*,[^/?#@]*)(?P<after>([/?#].*)?)")
_HOST = re.compile(r"[\w.-]+(:\d{1,5})?", re.ASCII)
# Of these hosts only the primary takes writes. In random order, so that a primary that was replaced, came back and is
# refused does not keep every new connection from the next host.
_AMONG_HOSTS = {"target_session_attrs": "read-write", "load_balance_hosts": "random"}


class Database:
    """Connections to one database: `write()` for one transaction, `read()` for one snapshot.

    SQLite has one writing connection: a second `write()` waits until the first has ended.
    """

    def __init__(
        self,
        url: URL,
        write_engine: Engine,
        read_engine: Engine,
        *,
        path: Path | None,
        lock: int | None = None,
        wait_seconds: float = 5.0,
        lock_timeout_ms: int = 0,
    ) -> None:
        self.url = _public(url)
        self._url = url
        self.path = path
        self._write_engine = write_engine
        self._read_engine = read_engine
        self.writer = (PostgresqlWriter if path is None else SqliteWriter)(write_engine, wait_seconds)
        self._lock_timeout_ms = lock_timeout_ms  # of PostgreSQL's sessions
        self._lock = lock

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
        """Open the database and use it once, so that errors appear now. 0 ms means no limit.

        Raises a `DatabaseError`.
        """
        parsed = _parse(url)
        if parsed.drivername == "sqlite":
            busy_timeout_ms = statement_timeout_ms or sqlite.BUSY_MS_MAX
            return cls._open_sqlite(parsed, pool_size, busy_timeout_ms, connect_timeout_seconds)
        session = {
            "statement_timeout": statement_timeout_ms,
            "lock_timeout": lock_timeout_ms,
            "idle_in_transaction_session_timeout": idle_in_transaction_timeout_ms,
            "synchronous_commit": "on",
        }
        return cls._open_postgresql(parsed, pool_size, connect_timeout_seconds, session)

    @classmethod
    def open_read_only(cls, url: str, *, connect_timeout_seconds: int = 5) -> Self:
        """Open a database that another process of ours keeps open, for reading, without locks and time limits."""
        parsed = _parse(url)
        if parsed.drivername == "sqlite":
            path = Path(parsed.database or "").resolve()
            engine = sqlite_engine(path, "DEFERRED", 1, sqlite.BUSY_MS_MAX, connect_timeout_seconds)
            return cls(parsed, engine, engine, path=path)
        engine = postgresql_engine(parsed, 1, connect_timeout_seconds, {"statement_timeout": 0}, read_only=True)
        return cls(parsed, engine, engine, path=None)

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
        path = sqlite.file_path(url)
        lock = sqlite.lock_file(path)
        write_engine = sqlite_engine(path, "IMMEDIATE", 1, busy_timeout_ms, wait_seconds)
        read_engine = sqlite_engine(path, "DEFERRED", pool_size, busy_timeout_ms, wait_seconds)
        database = cls(url, write_engine, read_engine, path=path, lock=lock, wait_seconds=wait_seconds)
        try:
            with database.write(), database.read():
                return database
        except DBAPIError as error:
            database.close()
            raise DatabaseUnusable(f"cannot use the database {path}: {error.orig}") from error

    @classmethod
    def _open_postgresql(cls, url: URL, pool_size: int, connect_seconds: int, session: dict[str, Any]) -> Self:
        # One connection is the engine's, and others have to write, too.
        open_engine = partial(postgresql_engine, url, timelines=Timelines())
        write_engine = open_engine(max(2, pool_size), connect_seconds, session, read_only=False)
        read_engine = open_engine(pool_size, connect_seconds, session, read_only=True)
        timeout_ms = session["lock_timeout"]
        database = cls(
            url, write_engine, read_engine, path=None, wait_seconds=connect_seconds, lock_timeout_ms=timeout_ms
        )
        try:
            with database.read() as one, write_engine.connect() as other:
                shared = postgresql.are_shared(one, other)
        except DBAPIError as error:
            database.close()
            reason = str(error.orig).strip().partition("\n")[0]
            raise DatabaseUnreachable(f"cannot connect to {database.url}: {reason}") from error
        if shared:
            database.close()
            raise DatabaseUnreachable(f"cannot use {database.url}: {postgresql.SHARED}")
        return database

    def close(self) -> None:
        """Close every connection and release the lock of the file. A closed database cannot be used again."""
        self.writer.closed = True
        self._read_engine.dispose()
        self.writer.close()
        self._write_engine.dispose()  # the last one: it moves SQLite's log into the file
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
        """The URL with its password, only for `open_read_only` in a process of our own."""
        if self.path is not None:
            return f"sqlite:///{self.path}"
        return self._url.render_as_string(hide_password=False)

    @property
    def shown_url(self) -> str:
        """The URL without its password, for the log."""
        return self.private_url if self.path is not None else self._url.render_as_string(hide_password=True)

    @property
    def dialect(self) -> Literal["sqlite", "postgresql"]:
        """The kind of database."""
        return "postgresql" if self.path is None else "sqlite"

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction that commits at the end of the block and rolls back on an exception."""
        assert not self.writer.closed, "a closed database has lost its lock"
        with self.writer.begin() if self.dialect == "sqlite" else self._write_engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One read-only snapshot. Keep it short: SQLite's log grows as long as a snapshot is open."""
        assert not self.writer.closed, "a closed database has lost its lock"
        with self._read_engine.begin() as connection:
            yield connection

    def now_micros(self, connection: Connection) -> int:
        """Microseconds since 1970: by PostgreSQL's clock, which all replicas share, or by the process's, which never
        goes back."""
        return clock_micros(connection)

    def lock_replicas(self, connection: Connection) -> None:
        """Wait for the lock that all replicas share and keep it until the transaction ends; SQLite has no replicas.

        Without time limits: another replica's migration takes as long as it takes.
        """
        if self.dialect == "postgresql":
            locking.execute_script(connection, "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _ADVISORY_LOCK})

    def lock_rows(
        self,
        connection: Connection,
        numbers: Sequence[int],
        *,
        timeout_ms: int,
        fresh: bool = False,
        portfolios: bool = False,
    ) -> list[Row]:
        """Lock campaigns until the transaction ends and return their states; see `service.store.locking`.

        `fresh`: the transaction has done nothing yet, so that the savepoint it began with can be used.
        `portfolios`: the numbers are those of portfolios.
        """
        if self.dialect == "sqlite":  # BEGIN IMMEDIATE has locked everything
            return locking.states(connection, numbers, lock=False, portfolios=portfolios)
        return locking.lock_rows(
            connection,
            numbers,
            timeout_ms=None if timeout_ms == self._lock_timeout_ms else timeout_ms,
            savepoint=not fresh or not is_dedicated(connection),
            portfolios=portfolios,
        )

    def lock_free_rows(self, connection: Connection, numbers: Sequence[int], *, portfolios: bool = False) -> list[Row]:
        """Lock those campaigns that are free until the transaction ends and return their states; never waits.

        `portfolios`: as in `lock_rows`.
        """
        if self.dialect == "sqlite":  # BEGIN IMMEDIATE has locked everything
            return locking.states(connection, numbers, lock=False, portfolios=portfolios)
        return locking.lock_free_rows(connection, numbers, portfolios=portfolios)

    def wait_for_rows(
        self,
        connection: Connection,
        numbers: Sequence[int],
        *,
        portfolios: Collection[int] = (),
        timeout_ms: int,
        fresh: bool,
    ) -> bool:
        """Lock portfolios and then campaigns as soon as they are free; False, with none locked, if one is not in time.

        `fresh`: as in `lock_rows`. The transaction must not have locked another campaign or portfolio.
        """
        savepoint = not fresh or not is_dedicated(connection)
        return self.dialect == "sqlite" or locking.wait_for_rows(
            connection, numbers, portfolios, timeout_ms=timeout_ms, savepoint=savepoint
        )

    @staticmethod
    def is_connection_error(error: BaseException) -> bool:
        """Whether the database failed and not the data: it is away, shutting down, full, or out of time.

        The same request may succeed later. After a failed commit it may also have succeeded already.
        """
        if isinstance(error, PoolTimeoutError | DatabaseUnreachable):
            return True
        if isinstance(error, DBAPIError):
            return error.connection_invalidated or Database.is_connection_error(error.orig or ValueError())
        if isinstance(error, psycopg.Error):
            return postgresql.is_unavailable(error)
        return sqlite.error_code(error) in sqlite.UNAVAILABLE

    @staticmethod
    def away_reason(error: BaseException) -> str:
        """One line on an error for which `is_connection_error` holds."""
        if isinstance(error, DatabaseUnreachable):
            return str(error)
        reason = postgresql.away_reason(error.orig) if isinstance(error, DBAPIError) else None
        return reason or "the database did not answer; try again"

    @staticmethod
    def is_file_error(error: BaseException) -> bool:
        """Whether SQLite's file failed: the content of the disk is then unknown, and the process should end."""
        original = error.orig if isinstance(error, DBAPIError) and error.orig else error
        return sqlite.error_code(original) in sqlite.FILE_ERRORS


def clock_micros(connection: Connection) -> int:
    """The time as `Database.now_micros` returns it."""
    if connection.dialect.name == "sqlite":
        return sqlite.clock_micros()
    return int(connection.execute(_NOW_MICROS).scalar_one())


def _parse(url: str) -> URL:
    several = _SEVERAL_HOSTS.fullmatch(url)
    hosts = several["hosts"].split(",") if several else []
    try:
        parsed = make_url(several["before"] + several["after"] if several else url)
    except (ArgumentError, ValueError):
        # Without the cause: its text may contain a password.
        raise DatabaseUrlInvalid("the database URL cannot be read") from None
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        if not all(map(_HOST.fullmatch, hosts)):
            raise DatabaseUrlInvalid(
                "several hosts are names or IPv4 addresses: postgresql://…@host1:port1,host2:port2/…"
            )
        if hosts:
            parsed = parsed.update_query_dict({"host": hosts})
        if len(parsed.normalized_query.get("host", ())) > 1:
            parsed = parsed.set(query={**_AMONG_HOSTS, **parsed.query})
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise DatabaseUrlInvalid("the database URL must begin with sqlite:/// or postgresql://")
    if not parsed.database or parsed.database == ":memory:" or parsed.host or parsed.query:
        raise DatabaseUrlInvalid(
            "a SQLite URL names a file and nothing else: sqlite:///relative or sqlite:////absolute"
        )
    return parsed.set(drivername="sqlite")


def _public(url: URL) -> str:
    """The URL without passwords, which libpq also accepts among its options."""
    query = {name: value for name, value in url.query.items() if "password" not in name}
    drivername = url.drivername.partition("+")[0]
    return URL.create(drivername, url.username, None, url.host, url.port, url.database, query).render_as_string()
