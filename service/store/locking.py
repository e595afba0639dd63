"""The lock of campaigns: the row of `campaign_state`, in the order of numbers, so that nobody waits in a circle.

A campaign that somebody else keeps locked for longer than may be waited is left out, so that one frozen process stops
the campaigns it holds and no others; the wait is then once more the timeout for each of those. Who has been silent in
its transaction for longer than it may be idle is frozen, and its session is ended. What other transactions committed is
read after the lock, in later statements: a statement that waits for a lock sees the rest of the database as it was
before.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select, text
from sqlalchemy.exc import DBAPIError

from service.store import tables
from service.store.statements import Prepared, Row
from service.store.writer import SAVEPOINT

NOT_AVAILABLE = "55P03"

# Built once: every batch runs one of them.
_CAMPAIGN_STATE = tables.campaign_state
_STATES = Prepared(
    lambda among: (
        select(_CAMPAIGN_STATE).where(among.has(_CAMPAIGN_STATE.c.campaign)).order_by(_CAMPAIGN_STATE.c.campaign)
    )
)
_STATES_LOCKED = Prepared(
    lambda among: (
        select(_CAMPAIGN_STATE)
        .where(among.has(_CAMPAIGN_STATE.c.campaign))
        .order_by(_CAMPAIGN_STATE.c.campaign)
        .with_for_update()
    )
)
# Sessions inside a transaction whose client says nothing. PostgreSQL's own timeout does not end all of them, and their
# locks would stay: in the middle of a COPY or of a pipeline they are not idle, and a Flush after a statement's end, as
# psycopg sends one to end a pipeline, stops the clock that the statement's end has started.
_END_FROZEN = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND usename = current_user"
    " AND application_name = current_setting('application_name') AND state <> 'idle' AND wait_event = 'ClientRead'"
    " AND current_setting('idle_in_transaction_session_timeout') <> '0'"
    " AND state_change < statement_timestamp() - current_setting('idle_in_transaction_session_timeout')::interval"
)


def lock_rows(connection: Connection, numbers: Sequence[int], *, timeout_ms: int | None, savepoint: bool) -> list[Row]:
    """Lock campaigns on PostgreSQL until the transaction ends; their states.

    timeout_ms: None where the session's own will do. savepoint: whether one has to be made before.
    """
    before = [] if timeout_ms is None else [f"SET LOCAL lock_timeout = {timeout_ms:d}"]
    if savepoint:
        before.append(f"SAVEPOINT {SAVEPOINT}")
    if before:
        several(connection, "; ".join(before))
    rows = _lock_or_none(connection, numbers)
    if rows is not None:
        # The savepoint stays open: a row locked in one subtransaction and updated in another costs PostgreSQL more.
        return rows
    locked: list[Row] = []
    if len(numbers) == 1:
        return locked
    for number in sorted(set(numbers)):
        locked += _lock_or_none(connection, [number]) or []
        several(connection, f"SAVEPOINT {SAVEPOINT}")
    return locked


def states(connection: Connection, numbers: Sequence[int], *, lock: bool) -> list[Row]:
    """The states of campaigns, in the order of their numbers."""
    if not numbers:
        return []
    return (_STATES_LOCKED if lock else _STATES).fetch(connection, sorted(set(numbers)))


def _lock_or_none(connection: Connection, numbers: Sequence[int]) -> list[Row] | None:
    """The locked rows, or None and nothing locked since the last savepoint if one could not be had in time."""
    try:
        return states(connection, numbers, lock=True)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != NOT_AVAILABLE:
            raise
        several(connection, f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
        connection.execute(_END_FROZEN)
        return None


def several(connection: Connection, statements: str) -> None:
    """Several statements in one round trip, which PostgreSQL takes only without parameters."""
    connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
