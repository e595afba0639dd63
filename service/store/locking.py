"""The lock of a campaign is its row of `campaign_state`.

Before them a transaction locks the portfolios of its campaigns, in their order: rows of `portfolio_state`.

Against deadlocks, a transaction that has locked a campaign or a portfolio waits for no other, unless it takes all its
locks in the order of numbers: `lock_free_rows` never waits, and `wait_for_rows` comes before any other lock.

`lock_rows` waits for each campaign in order. One whose lock is not free within the timeout is left out, so that one
frozen process stops only the campaigns it holds; each campaign is then waited for separately, up to the timeout. A
session that has been silent in its transaction for longer than the idle limit counts as frozen and is terminated. Rows
that other transactions committed are read after the lock, in later statements: a statement that waits for a lock sees
the rest of the database as it was before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, Select, Table, select, text
from sqlalchemy.exc import DBAPIError

from service.store import tables
from service.store.postgresql import LOCK_NOT_AVAILABLE, SAVEPOINT
from service.store.statements import ListParameter, Prepared, Row


def _rows_among(table: Table, numbers: ListParameter) -> Select[tuple[object, ...]]:
    return select(table).where(numbers.has(table.c.campaign)).order_by(table.c.campaign)


def _statements(table: Table) -> tuple[Prepared, Prepared, Prepared]:
    """The statements that read rows of a table, that lock them, and that lock those which are free."""
    return (
        Prepared(lambda numbers: _rows_among(table, numbers)),
        Prepared(lambda numbers: _rows_among(table, numbers).with_for_update()),
        Prepared(lambda numbers: _rows_among(table, numbers).with_for_update(skip_locked=True)),
    )


_STATES = _statements(tables.campaign_state)
_PORTFOLIOS = _statements(tables.portfolio_state)
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


def lock_rows(
    connection: Connection,
    numbers: Sequence[int],
    *,
    timeout_ms: int | None,
    savepoint: bool,
    portfolios: bool = False,
) -> list[Row]:
    """Lock campaigns on PostgreSQL until the transaction ends and return the states of those that were free in time.

    timeout_ms: None for the session's own. savepoint: whether to create one before. portfolios: these are portfolios.
    """
    before = [] if timeout_ms is None else [f"SET LOCAL lock_timeout = {timeout_ms:d}"]
    if savepoint:
        before.append(f"SAVEPOINT {SAVEPOINT}")
    if before:
        execute_script(connection, "; ".join(before))
    rows = _lock_or_none(connection, numbers, portfolios)
    if rows is not None:
        # The savepoint stays open: locking a row in one subtransaction and updating it in another is slower.
        return rows
    locked: list[Row] = []
    for number in sorted(set(numbers)) if len(numbers) > 1 else ():
        locked += _lock_or_none(connection, [number], portfolios) or []
        execute_script(connection, f"SAVEPOINT {SAVEPOINT}")
    return locked


def lock_free_rows(connection: Connection, numbers: Sequence[int], *, portfolios: bool = False) -> list[Row]:
    """Lock those campaigns on PostgreSQL that no other transaction has locked, and return their states."""
    return (_PORTFOLIOS if portfolios else _STATES)[2].fetch(connection, sorted(set(numbers))) if numbers else []


def wait_for_rows(
    connection: Connection,
    numbers: Collection[int],
    portfolios: Collection[int] = (),
    *,
    timeout_ms: int,
    savepoint: bool,
) -> bool:
    """Lock portfolios and then campaigns on PostgreSQL, each as soon as it is free; False, with none locked, if one is
    not free in time."""
    statements = [f"SAVEPOINT {SAVEPOINT}"] if savepoint else []
    statements.append(f"SET LOCAL lock_timeout = {timeout_ms:d}")
    for table, wanted in ((tables.portfolio_state, portfolios), (tables.campaign_state, numbers)):
        if wanted:
            listed = ", ".join(f"{number:d}" for number in sorted(set(wanted)))
            statements.append(f"SELECT FROM {table.name} WHERE campaign IN ({listed}) ORDER BY campaign FOR UPDATE")
    try:
        execute_script(connection, "; ".join(statements))
    except DBAPIError as error:
        _give_up(connection, error)
        return False
    return True


def states(connection: Connection, numbers: Sequence[int], *, lock: bool, portfolios: bool = False) -> list[Row]:
    """The states of campaigns, or of portfolios, in the order of their numbers."""
    if not numbers:
        return []
    return (_PORTFOLIOS if portfolios else _STATES)[lock].fetch(connection, sorted(set(numbers)))


def _lock_or_none(connection: Connection, numbers: Sequence[int], portfolios: bool) -> list[Row] | None:
    """The locked rows; None, with nothing locked since the last savepoint, if a lock was not free in time."""
    try:
        return states(connection, numbers, lock=True, portfolios=portfolios)
    except DBAPIError as error:
        _give_up(connection, error)
        return None


def _give_up(connection: Connection, error: DBAPIError) -> None:
    """Release what was locked since the last savepoint, if the error is that a lock was not free in time."""
    if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
        raise error
    execute_script(connection, f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
    connection.execute(_END_FROZEN)


def execute_script(connection: Connection, statements: str) -> None:
    """Execute several statements in one round trip, which PostgreSQL accepts only without parameters."""
    connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
