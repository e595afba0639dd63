"""SQLite's one writing connection, kept for good.

To SQLAlchemy it is in one transaction that never ends; BEGIN and COMMIT go to the driver. Taking a connection out of a
pool, beginning, ending and putting it back the ordinary way takes as long as a whole decision in a large batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnection

from service.store.prepared import run_on_driver

_STANDING = "cbwk_standing"


def is_standing(connection: Connection) -> bool:
    """Whether its transactions are begun here, and not by SQLAlchemy."""
    return _STANDING in connection.get_execution_options()


class StandingConnection:
    """One connection for whoever comes next; it is opened again when it was lost."""

    def __init__(self, engine: Engine, wait_seconds: float) -> None:
        self._engine = engine
        self._wait_seconds = wait_seconds
        self._turn = Lock()
        self._connection: Connection | None = None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction: committed at the end of the block, rolled back if an exception leaves it."""
        if not self._turn.acquire(timeout=self._wait_seconds):
            raise NoConnection(f"the writing connection was not free within {self._wait_seconds} s")
        try:
            connection = self._opened()
            run_on_driver(connection, "execute", "BEGIN IMMEDIATE").close()
            try:
                yield connection
                driver = connection.connection.driver_connection
                if driver is not None and driver.in_transaction:  # else somebody has ended it in the block
                    run_on_driver(connection, "execute", "COMMIT").close()
            except BaseException:
                self._roll_back(connection)
                raise
        finally:
            self._turn.release()

    def _opened(self) -> Connection:
        if self._connection is None or self._connection.closed or self._connection.invalidated:
            self._connection = self._engine.connect().execution_options(**{_STANDING: True})
            self._connection.begin()
        return self._connection

    def _roll_back(self, connection: Connection) -> None:
        """Undo what was begun; a connection on which that fails is not used again, and SQLite then undoes it."""
        try:
            run_on_driver(connection, "execute", "ROLLBACK").close()
        except SQLAlchemyError:
            self._connection = None
            connection.invalidate()
            connection.close()

    def close(self) -> None:
        """Give the connection back."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
