"""The dedicated writing connection: the only one of SQLite, and the engine's own on PostgreSQL.

SQLAlchemy sees one transaction that never ends; BEGIN and COMMIT go directly to the driver. The ordinary way through
the pool (check out, probe, begin, commit, check in) takes as long as many decisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from types import TracebackType
from typing import Any, ClassVar, Self

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service.store.statements import DRIVER, execute

# The key of a connection's `info` under which PostgreSQL's history is.
HISTORY = "cbwk_history"


def history_of(connection: Connection) -> object:
    """The history that the server of this connection continues; None on SQLite, which has one.

    After the promotion of a standby it is another one: rows that were committed before may be missing, and their
    numbers may be used again.
    """
    return connection.info.get(HISTORY)


def is_dedicated(connection: Connection) -> bool:
    """Whether a `Writer`, and not SQLAlchemy, begins the transactions of this connection."""
    return DRIVER in connection.get_execution_options()


class Writer(ABC):
    """One connection for one transaction at a time: `with writer.begin(owner) as connection`.

    The transaction commits at the end of the block and rolls back on an exception. A lost connection is replaced.
    """

    # In a transaction, a number that changes when another writer has written since the owner's previous transaction, so
    # that the owner may rely on what it remembers of that; None where this is unknown.
    epoch: int | None = None
    history: object = None  # of the connection: see `history_of`
    closed = False  # for good: a closed database has lost its lock
    _connection_options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, engine: Engine, wait_seconds: float) -> None:
        self._engine = engine
        self._wait_seconds = wait_seconds
        self._lock = Lock()
        self._connection: Connection | None = None

    def begin(self, owner: object = None) -> Self:
        """Wait for the connection and begin a transaction, which the caller's `with` ends.

        `owner` is the object that remembers what the transaction writes; None never equals the previous owner.
        """
        assert not self.closed, "a closed database has lost its lock"
        if not self._lock.acquire(timeout=self._wait_seconds):
            raise PoolTimeoutError(f"the writing connection was not free within {self._wait_seconds} s")
        try:
            self._begin(self._connection or self._connect(), owner)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __enter__(self) -> Connection:
        assert self._connection is not None, "begin() has opened the connection"
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is not None or self._connection is None:
                self._roll_back()
                return
            try:
                self._commit(self._connection)
            except BaseException:
                self._roll_back()
                raise
        finally:
            self._lock.release()

    @abstractmethod
    def now_micros(self) -> int:
        """The time in a transaction, microseconds since 1970; see `Database.now_micros`."""

    @abstractmethod
    def _begin(self, connection: Connection, owner: object) -> None: ...

    @abstractmethod
    def _commit(self, connection: Connection) -> None:
        """Commit, unless the block has ended the transaction itself."""

    def _connect(self) -> Connection:
        connection = self._engine.connect()
        driver = connection.connection.driver_connection
        self.history = history_of(connection)
        self._connection = connection.execution_options(**{DRIVER: driver}, **self._connection_options)
        self._connection.begin()
        return self._connection

    def _roll_back(self) -> None:
        """Roll back. A connection on which that fails is discarded, which makes the database roll back."""
        if self._connection is not None:
            try:
                self._run(self._connection, "ROLLBACK").close()
            except SQLAlchemyError:
                self._discard(self._connection)

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
