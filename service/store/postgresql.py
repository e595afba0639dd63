"""PostgreSQL: connections, the dedicated writing connection, and the errors that mean the server is unavailable."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Lock
from typing import Any, ClassVar

import psycopg
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus
from psycopg.types.string import BytesBinaryDumper
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from service.store.errors import DatabaseUnreachable
from service.store.statements import OTHER_SESSION, driver_of, execute
from service.store.writer import HISTORY, Writer

# Each dedicated transaction begins with this savepoint, for `service.store.locking`.
SAVEPOINT = "locking"
_SESSION_ID = "pg_backend_pid()"
NOW_MICROS = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
LOCK_NOT_AVAILABLE = "55P03"
_NOT_SUPPORTED = "0A000"
# The cluster and its timeline, which are the first digits of the name of its current log file.
_HISTORY = "SELECT system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system()"
# A pooler in transaction mode gives each transaction another session: time limits, prepared statements and the timeline
# that the service knows of its connection are then those of other sessions.
SHARED = "a pooler shares the sessions of PostgreSQL; it must keep one per connection (PgBouncer: pool_mode = session)"
# A primary that was replaced by its standby may come back and take writes that no other server has.
REPLACED = "the server is a primary that another one has replaced; it takes no writes of ours"
_SESSION = "cbwk_session"  # the key of a connection's `info` under which the process of its session is
_WARNINGS = "cbwk_warnings"  # and the key of the list of the server's warnings
# A dedicated connection that was idle for longer is probed first, so that a restart of the server fails no request.
IDLE_SECONDS_MAX = 1.0
# A peer that stops responding is given up after this time; otherwise its connection would block a request for ever.
_PEER_SILENT_SECONDS_MAX = 15
# Classes of SQLSTATE: connection, resources of the server (disk, memory, connections), intervention of an operator
# (shutdown, restart, cancelled by statement_timeout). Single states: lock timeout, transaction idle or open too long,
# and a server that has become a read-only standby.
_UNAVAILABLE = ("08", "53", "57", LOCK_NOT_AVAILABLE, "25P03", "25P04", "25006", *OTHER_SESSION)


class PostgresqlWriter(Writer):
    """The engine's connection: BEGIN, the savepoint and the server's time are one message."""

    # In this mode the driver begins no transaction on its own.
    _connection_options: ClassVar[Mapping[str, Any]] = {"isolation_level": "AUTOCOMMIT"}
    _begun_at_micros = 0  # by the server's clock
    _used_at = 0.0
    _session: object = None  # the process of the connection's session
    _warnings: list[str | None]  # of the server, since the list was cleared

    def now_micros(self) -> int:
        """The time at which the transaction began."""
        return self._begun_at_micros

    def _connect(self) -> Connection:
        self._used_at = time.monotonic()
        connection = super()._connect()
        self._session, self._warnings = connection.info[_SESSION], connection.info[_WARNINGS]
        return connection

    def _begin(self, connection: Connection, owner: object) -> None:
        if time.monotonic() - self._used_at >= IDLE_SECONDS_MAX:
            connection = self._probed(connection)
        try:
            cursor = self._run(
                connection,
                f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SAVEPOINT {SAVEPOINT}; {NOW_MICROS}, {_SESSION_ID}",
            )
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _NOT_SUPPORTED:
                raise
            # Of another server, perhaps: the URL may name several, or a name that moves.
            self._discard(connection)
            raise DatabaseUnreachable("the server is a standby and takes no writes") from error
        while cursor.nextset():
            pass
        self._begun_at_micros, *session = cursor.fetchone()
        cursor.close()
        if (*session,) != self._session:
            self._discard(connection)
            raise DatabaseUnreachable(SHARED)

    def _probed(self, connection: Connection) -> Connection:
        """The connection, or another one if it is lost."""
        try:
            self._run(connection, "SELECT 1").close()
        except SQLAlchemyError:
            self._discard(connection)
            return self._connect()
        return connection

    def _commit(self, connection: Connection) -> None:
        if driver_of(connection).info.transaction_status != TransactionStatus.IDLE:
            self._warnings.clear()
            cursor = self._run(connection, "COMMIT")
            status = cursor.statusmessage
            cursor.close()
            if self._warnings:  # the wait for a synchronous standby was cancelled: no other server may have the rows
                raise DatabaseUnreachable(f"the commit is in doubt: {self._warnings[0]}")
            # After a failed statement the server answers ROLLBACK, which the driver does not treat as an error.
            if status != "COMMIT":
                raise RuntimeError("a transaction in which something has failed cannot be committed")
        self._used_at = time.monotonic()

    def _run(self, connection: Connection, statement: str) -> Any:
        # The driver prepares frequent statements, and PgBouncer does not recognise a prepared COMMIT.
        return execute(connection, statement, None, prepare=False)


class Timelines:
    """The newest timeline of each cluster to which a process has connected."""

    def __init__(self) -> None:
        self._newest: dict[str, str] = {}
        self._lock = Lock()

    def check(self, history: object) -> None:
        """Raise psycopg's OperationalError for a server whose timeline is older than one seen before."""
        if not isinstance(history, tuple):  # a standby, or a server that does not say
            return
        cluster, timeline = history
        with self._lock:
            if timeline < self._newest.setdefault(cluster, timeline):
                raise psycopg.OperationalError(REPLACED)
            self._newest[cluster] = timeline


def postgresql_engine(
    url: URL,
    pool_size: int,
    connect_seconds: int,
    session: dict[str, Any],
    *,
    read_only: bool,
    timelines: Timelines | None = None,
) -> Engine:
    """Connections with these session settings: snapshots if read_only, else READ COMMITTED transactions.

    Engines with the same `timelines` refuse a server whose timeline is older than that of an earlier connection.
    """
    known = timelines or Timelines()
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
        hide_parameters=True,  # what clients send must not reach the log
        isolation_level="REPEATABLE READ" if read_only else "READ COMMITTED",
        connect_args={name: value for name, value in options.items() if name not in url.query},
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=connect_seconds,
        # One empty round trip, so that a restart of the server breaks idle connections and fails no request.
        pool_pre_ping=True,
        pool_use_lifo=True,
    )

    @event.listens_for(engine, "connect")
    def connected(connection: psycopg.Connection[Any], record: ConnectionPoolEntry) -> None:
        # psycopg's default dumper for bytes is written in Python and takes twice as long as the rest of a row.
        connection.adapters.register_dumper(bytes, BytesBinaryDumper)
        # Not among the connection's options: poolers such as PgBouncer refuse those.
        connection.autocommit = True  # otherwise a rollback would undo them
        session_before = _session_of(connection)
        for name, value in session.items():
            connection.execute("SELECT set_config(%s, %s, false)", [name, str(value)])
        record.info[HISTORY] = _history(connection)
        known.check(record.info[HISTORY])
        warnings: list[str | None] = []
        record.info[_WARNINGS] = warnings

        def noticed(notice: Diagnostic) -> None:
            if notice.severity_nonlocalized == "WARNING":
                warnings.append(notice.message_primary)

        connection.add_notice_handler(noticed)
        record.info[_SESSION] = _session_of(connection)
        if record.info[_SESSION] != session_before:
            raise psycopg.OperationalError(SHARED)
        connection.autocommit = False
        connection.read_only = read_only

    @event.listens_for(engine, "handle_error")
    def failed(context: ExceptionContext) -> None:
        if is_shared(context.original_exception):
            context.is_disconnect = True  # the connection leaves the pool

    return engine


def are_shared(one: Connection, other: Connection) -> bool:
    """Whether the sessions of two open connections are not their own.

    In transaction mode a pooler gives the session that was used last to the next transaction, so both connections begin
    with one session. If other clients came in between, the connections change their sessions while both are used.
    """
    both = (one, other)
    known = [connection.info[_SESSION] for connection in both]
    if known[0] == known[1]:  # with one session for all, the second transaction would wait for the end of the first
        return True
    return known != [connection.exec_driver_sql(f"SELECT {_SESSION_ID}").one() for connection in both]


def _session_of(connection: psycopg.Connection[Any]) -> object:
    return connection.execute(f"SELECT {_SESSION_ID}").fetchone()


def _history(connection: psycopg.Connection[Any]) -> object:
    """See `history_of`. A server that does not tell, such as a standby, has a history that equals no other."""
    try:
        return connection.execute(_HISTORY).fetchone()
    except psycopg.DatabaseError:
        if connection.closed:
            raise
        return object()


def is_shared(error: BaseException | None) -> bool:
    """Whether the error shows that the session belongs to several connections."""
    return isinstance(error, psycopg.Error) and (error.sqlstate in OTHER_SESSION or str(error) == SHARED)


def away_reason(error: BaseException | None) -> str | None:
    """What an operator must know of an error for which the server is not used; None if there is nothing to add."""
    if is_shared(error):
        return SHARED
    return REPLACED if str(error) == REPLACED else None


def is_unavailable(error: psycopg.Error) -> bool:
    """Whether the server is away, shutting down, full, or out of time."""
    if error.sqlstate is None:  # an error of libpq: refused, closed, timed out
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_UNAVAILABLE)
