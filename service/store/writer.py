"""The dedicated writing connection: the only one of SQLite, and the engine's own on PostgreSQL.

SQLAlchemy sees one transaction that never ends; BEGIN and COMMIT go directly to the driver. The ordinary way through
the pool (check out, probe, begin, commit, check in) takes as long as many decisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from threading import Lock
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service.store.statements import DRIVER, execute

_DEDICATED = "cbwk_dedicated"


def is_dedicated(connection: Connection) -> bool:
    """Whether a `Writer`, and not SQLAlchemy, begins the transactions of this connection."""
    return _DEDICATED in connection.get_execution_options()


class Writer(ABC):
    """One connection for one transaction at a time; a lost connection is replaced."""

    epoch: int | None = None  # see `Database.epoch`
    now_micros: int | None = None  # the server's time when the last transaction began

    def __init__(self, engine: Engine, wait_seconds: float) -> None:
        self._engine = engine
        self._wait_seconds = wait_seconds
        self._lock = Lock()
        self._connection: Connection | None = None

    def begin(self, owner: object = None) -> Transaction:
        """A transaction that commits at the end of the block and rolls back on an exception.

        `owner` is the object that remembers what the transaction writes; None never equals the previous owner.
        """
        return Transaction(self, owner)

    def enter(self, owner: object) -> Connection:
        """Wait for the connection and begin a transaction."""
        if not self._lock.acquire(timeout=self._wait_seconds):
            raise PoolTimeoutError(f"the writing connection was not free within {self._wait_seconds} s")
        try:
            connection = self._opened()
            try:
                self._begin(connection, owner)
            except BaseException:
                self._roll_back(connection)
                raise
        except BaseException:
            self._lock.release()
            raise
        return connection

    def leave(self, connection: Connection, *, commit: bool) -> None:
        """End the transaction and free the connection."""
        try:
            if commit:
                try:
                    self._commit(connection)
                except BaseException:
                    self._roll_back(connection)
                    raise
            else:
                self._roll_back(connection)
        finally:
            self._lock.release()

    def _opened(self) -> Connection:
        connection = self._connection
        if connection is None or connection.closed or connection.invalidated or not self._is_alive(connection):
            self._connection = connection = self._connect()
            connection.begin()
        return connection

    def _connect(self) -> Connection:
        connection = self._engine.connect()
        return connection.execution_options(**{_DEDICATED: True, DRIVER: connection.connection.driver_connection})

    def _is_alive(self, connection: Connection) -> bool:
        return True

    @abstractmethod
    def _begin(self, connection: Connection, owner: object) -> None: ...

    @abstractmethod
    def _commit(self, connection: Connection) -> None:
        """Commit, unless the block has ended the transaction itself."""

    def _roll_back(self, connection: Connection) -> None:
        """Roll back. A connection on which that fails is discarded, which makes the database roll back."""
        try:
            self._run(connection, "ROLLBACK").close()
        except SQLAlchemyError:
            self._discard(connection)

    def _run(self, connection: Connection, statement: str) -> Any:
        return execute(connection, statement)

    def _discard(self, connection: Connection) -> None:
        self._connection = None
        connection.invalidate()
        with suppress(SQLAlchemyError):
            connection.close()

    def close(self) -> None:
        """Return the connection to the pool."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


class Transaction:
    """One transaction of a `Writer`, as a context manager; a generator would take longer than SQLite's BEGIN."""

    __slots__ = ("_connection", "_owner", "_writer")

    def __init__(self, writer: Writer, owner: object) -> None:
        self._writer, self._owner = writer, owner

    def __enter__(self) -> Connection:
        self._connection = self._writer.enter(self._owner)
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.leave(self._connection, commit=kind is None)
