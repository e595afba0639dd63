"""A writing connection that is kept for good: SQLite's only one, and on PostgreSQL the engine's own.

To SQLAlchemy it is in one transaction that never ends; BEGIN and COMMIT go to the driver. Taking a connection out of a
pool, looking whether it lives, beginning, ending and putting it back the ordinary way takes as long as many decisions.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import suppress
from threading import Lock
from types import TracebackType
from typing import Any

from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnection

from service.store.statements import DRIVER, driver_of, execute

# The savepoint that every transaction of PostgreSQL's standing connection begins with, for `Database.lock_rows`.
SAVEPOINT = "locking"
NOW_MICROS = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
# Who has rested for longer asks first whether the server is still there, so that its restart costs no request.
RESTED_SECONDS = 1.0
_STANDING = "cbwk_standing"


def is_standing(connection: Connection) -> bool:
    """Whether its transactions are begun here, and not by SQLAlchemy."""
    return _STANDING in connection.get_execution_options()


class StandingConnection(ABC):
    """One connection for whoever comes next; it is opened again when it was lost."""

    def __init__(self, engine: Engine, wait_seconds: float) -> None:
        self._engine = engine
        self._wait_seconds = wait_seconds
        self._turn = Lock()
        self._connection: Connection | None = None

    def begin(self, user: object = None) -> Transaction:
        """One transaction: committed at the end of the block, rolled back if an exception leaves it.

        `user` is who will know what it has written; None is always somebody else.
        """
        return Transaction(self, user)

    def enter(self, user: object) -> Connection:
        """Begin a transaction when it is this user's turn."""
        if not self._turn.acquire(timeout=self._wait_seconds):
            raise NoConnection(f"the writing connection was not free within {self._wait_seconds} s")
        try:
            connection = self._opened()
            try:
                self._begin(connection, user)
            except BaseException:
                self._roll_back(connection)
                raise
        except BaseException:
            self._turn.release()
            raise
        return connection

    def leave(self, connection: Connection, *, well: bool) -> None:
        """End the transaction, and with it the turn."""
        try:
            if well:
                try:
                    self._commit(connection)
                except BaseException:
                    self._roll_back(connection)
                    raise
            else:
                self._roll_back(connection)
        finally:
            self._turn.release()

    def _opened(self) -> Connection:
        known = self._connection
        if known is None or known.closed or known.invalidated or not self._is_there(known):
            self._connection = known = self._made()
            known.begin()
        return known

    def _made(self) -> Connection:
        connection = self._engine.connect()
        return connection.execution_options(**{_STANDING: True, DRIVER: connection.connection.driver_connection})

    def _is_there(self, connection: Connection) -> bool:
        return True

    @abstractmethod
    def _begin(self, connection: Connection, user: object) -> None: ...

    @abstractmethod
    def _commit(self, connection: Connection) -> None:
        """Unless somebody has ended the transaction in the block."""

    def _roll_back(self, connection: Connection) -> None:
        """Undo what was begun; a connection on which that fails is not used again, and the database then undoes it."""
        try:
            self._run(connection, "ROLLBACK").close()
        except SQLAlchemyError:
            self._give_up(connection)

    def _run(self, connection: Connection, statement: str) -> Any:
        return execute(connection, statement)

    def _give_up(self, connection: Connection) -> None:
        self._connection = None
        connection.invalidate()
        with suppress(SQLAlchemyError):
            connection.close()

    def close(self) -> None:
        """Give the connection back."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


class Transaction:
    """One transaction of a standing connection, as a block; as a generator it would take longer than SQLite's BEGIN."""

    __slots__ = ("_connection", "_standing", "_user")

    def __init__(self, standing: StandingConnection, user: object) -> None:
        self._standing, self._user = standing, user

    def __enter__(self) -> Connection:
        self._connection = self._standing.enter(self._user)
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._standing.leave(self._connection, well=kind is None)


class StandingSqlite(StandingConnection):
    """SQLite's: whoever begins has the whole file."""

    epoch = 0  # of the last transaction: see `Database.epoch`
    _version: int | None = None
    _user: object = None  # whose the last transaction was

    def _made(self) -> Connection:
        self._version = None
        return super()._made()

    def _begin(self, connection: Connection, user: object) -> None:
        self._run(connection, "BEGIN IMMEDIATE").close()
        # By this SQLite tells whether another connection has written since it was last asked on this one.
        cursor = self._run(connection, "PRAGMA data_version")
        (version,) = cursor.fetchone()
        cursor.close()
        if version != self._version or user is None or user is not self._user:
            self.epoch += 1
        self._version, self._user = version, user

    def _roll_back(self, connection: Connection) -> None:
        self.epoch += 1  # a COMMIT that failed may have been one
        super()._roll_back(connection)

    def _commit(self, connection: Connection) -> None:
        if driver_of(connection).in_transaction:
            self._run(connection, "COMMIT").close()


class StandingPostgresql(StandingConnection):
    """PostgreSQL's: a transaction begins with a savepoint and with the time, all in one message."""

    now_micros = 0  # when the last transaction began, by the server's clock
    _used_at = 0.0

    def _made(self) -> Connection:
        # In this mode the driver begins nothing by itself.
        return super()._made().execution_options(isolation_level="AUTOCOMMIT")

    def _is_there(self, connection: Connection) -> bool:
        if time.monotonic() - self._used_at < RESTED_SECONDS:
            return True
        try:
            self._run(connection, "SELECT 1").close()
        except SQLAlchemyError:
            self._give_up(connection)
            return False
        return True

    def _run(self, connection: Connection, statement: str) -> Any:
        # Else the driver would prepare what comes often, and to PgBouncer a COMMIT would look like any statement.
        return execute(connection, statement, None, prepare=False)

    def _begin(self, connection: Connection, user: object) -> None:
        cursor = self._run(
            connection, f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SAVEPOINT {SAVEPOINT}; {NOW_MICROS}"
        )
        while cursor.nextset():
            pass
        self.now_micros = int(cursor.fetchone()[0])
        cursor.close()

    def _commit(self, connection: Connection) -> None:
        if driver_of(connection).info.transaction_status != TransactionStatus.IDLE:
            cursor = self._run(connection, "COMMIT")
            answer = cursor.statusmessage
            cursor.close()
            # Where something has failed before, the server answers ROLLBACK, and to the driver that is no error.
            if answer != "COMMIT":
                raise RuntimeError("a transaction in which something has failed cannot be committed")
        self._used_at = time.monotonic()
