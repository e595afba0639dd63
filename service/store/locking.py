"""The lock of a campaign is its row of `campaign_state`. Locks are taken in the order of numbers, against deadlocks.

A campaign whose lock is not free within the timeout is left out, so that one frozen process stops only the campaigns it
holds; each campaign is then waited for separately, up to the timeout. A session that has been silent in its transaction
for longer than the idle limit counts as frozen and is terminated. Rows that other transactions committed are read after
the lock, in later statements: a statement that waits for a lock sees the rest of the database as it was before.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Select, select, text
from sqlalchemy.exc import DBAPIError

from service.store import tables
from service.store.postgresql import LOCK_NOT_AVAILABLE, SAVEPOINT
from service.store.statements import ListParameter, Prepared, Row


def _states_among(numbers: ListParameter) -> Select[tuple[object, ...]]:
    number = tables.campaign_state.c.campaign
    return select(tables.campaign_state).where(numbers.has(number)).order_by(number)


_STATES = Prepared(_states_among)
_STATES_LOCKED = Prepared(lambda numbers: _states_among(numbers).with_for_update())
# Terminates sessions whose client is silent inside a transaction. PostgreSQL's own timeout misses some, and their locks
# would stay: a session inside a COPY or a pipeline is not idle, and a Flush after the end of a statement, which psycopg
# sends to end a pipeline, stops the timer that the end of the statement has started.
_END_FROZEN = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND usename = current_user"
    " AND application_name = current_setting('application_name') AND state <> 'idle' AND wait_event = 'ClientRead'"
    " AND current_setting('idle_in_transaction_session_timeout') <> '0'"
    " AND state_change < statement_timestamp() - current_setting('idle_in_transaction_session_timeout')::interval"
)


def lock_rows(connection: Connection, numbers: Sequence[int], *, timeout_ms: int | None, savepoint: bool) -> list[Row]:
    """Lock campaigns on PostgreSQL until the transaction ends and return the states of those that were free in time.

    timeout_ms: None for the session's own. savepoint: whether to create one before.
    """
    before = [] if timeout_ms is None else [f"SET LOCAL lock_timeout = {timeout_ms:d}"]
    if savepoint:
        before.append(f"SAVEPOINT {SAVEPOINT}")
    if before:
        execute_script(connection, "; ".join(before))
    rows = _lock_or_none(connection, numbers)
    if rows is not None:
        # The savepoint stays open: locking a row in one subtransaction and updating it in another is slower.
        return rows
    locked: list[Row] = []
    for number in sorted(set(numbers)) if len(numbers) > 1 else ():
        locked += _lock_or_none(connection, [number]) or []
        execute_script(connection, f"SAVEPOINT {SAVEPOINT}")
    return locked


def states(connection: Connection, numbers: Sequence[int], *, lock: bool) -> list[Row]:
    """The states of campaigns, in the order of their numbers."""
    if not numbers:
        return []
    return (_STATES_LOCKED if lock else _STATES).fetch(connection, sorted(set(numbers)))


def _lock_or_none(connection: Connection, numbers: Sequence[int]) -> list[Row] | None:
    """The locked rows; None, with nothing locked since the last savepoint, if a lock was not free in time."""
    try:
        return states(connection, numbers, lock=True)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            raise
        execute_script(connection, f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
        connection.execute(_END_FROZEN)
        return None


def execute_script(connection: Connection, statements: str) -> None:
    """Execute several statements in one round trip, which PostgreSQL accepts only without parameters."""
    connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
