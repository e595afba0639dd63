import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import DBAPIError

from service.store import tables
from service.store.database import Database
from tests.service.store.rows import add_campaigns, state

only_postgresql = pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
campaign_state = tables.campaign_state


@pytest.fixture
def database(database):
    with database.write() as connection:
        add_campaigns(connection, 1, 2, 3)
    return database


@contextmanager
def locked_by_somebody_else(url, *numbers):
    """Another process's transaction, which stays open."""
    with Database.open(url) as other, other.write() as connection:
        other.lock_rows(connection, numbers, timeout_ms=1_000)
        yield connection


def locked(database, numbers, timeout_ms=50):
    with database.write() as connection:
        return [row["campaign"] for row in database.lock_rows(connection, numbers, timeout_ms=timeout_ms)]


def test_the_states_come_back_in_the_order_of_their_numbers(database):
    with database.write() as connection:
        rows = database.lock_rows(connection, [3, 1, 3], timeout_ms=50)
    assert [dict(row) for row in rows] == [state(1), state(3)]


def test_campaigns_that_are_not_there_have_no_state(database):
    assert locked(database, [7]) == []
    assert locked(database, []) == []


@only_postgresql
def test_a_campaign_locked_by_somebody_else_is_left_out_and_the_others_are_not(database, migrated_url):
    with locked_by_somebody_else(migrated_url, 2):
        assert locked(database, [3, 2, 1]) == [1, 3]
        assert locked(database, [2]) == []
    assert locked(database, [3, 2, 1]) == [1, 2, 3]


@only_postgresql
def test_what_was_locked_despite_a_frozen_neighbour_stays_locked_until_the_end(database, migrated_url):
    with locked_by_somebody_else(migrated_url, 2), database.write() as connection:
        database.lock_rows(connection, [1, 2, 3], timeout_ms=50)
        with Database.open(migrated_url) as third:
            assert locked(third, [1, 3]) == []


@only_postgresql
def test_what_was_written_before_a_lock_could_not_be_had_is_kept(database, migrated_url):
    with locked_by_somebody_else(migrated_url, 2):
        with database.write() as connection:
            connection.execute(tables.campaign.insert().values(number=4, id="new", created_at=0))
            database.lock_rows(connection, [1, 2], timeout_ms=50)
        with database.read() as connection:
            assert (
                connection.execute(select(tables.campaign.c.id).where(tables.campaign.c.number == 4)).scalar() == "new"
            )


@only_postgresql
def test_a_lock_that_is_freed_in_time_is_had_and_shows_what_was_committed(database, migrated_url):
    with ThreadPoolExecutor(1) as pool, Database.open(migrated_url) as other:
        with other.write() as connection:
            other.lock_rows(connection, [1], timeout_ms=50)
            connection.execute(update(campaign_state).where(campaign_state.c.campaign == 1).values(sequence=5))
            waiting = pool.submit(rows_of, database)
            time.sleep(0.2)
            assert not waiting.done()
        assert waiting.result(5) == [state(1, sequence=5)]


def rows_of(database):
    with database.write() as connection:
        return [dict(row) for row in database.lock_rows(connection, [1], timeout_ms=5_000)]


@only_postgresql
def test_waiting_for_a_lock_takes_no_longer_than_allowed(database, migrated_url):
    with locked_by_somebody_else(migrated_url, 1):
        start = time.monotonic()
        assert locked(database, [1], timeout_ms=100) == []
    assert 0.1 <= time.monotonic() - start < 2.0


@only_postgresql
@pytest.mark.usefixtures("database")
def test_another_failure_than_a_lock_is_not_mistaken_for_one(migrated_url):
    with (
        Database.open(migrated_url, statement_timeout_ms=100) as impatient,
        locked_by_somebody_else(migrated_url, 1),
        pytest.raises(DBAPIError, match="statement timeout") as late,
        impatient.write() as connection,
    ):
        impatient.lock_rows(connection, [1], timeout_ms=5_000)
    assert Database.is_connection_error(late.value)


@only_postgresql
def test_a_frozen_transaction_is_ended_by_the_server_and_frees_its_campaign(database, migrated_url):
    frozen = Database.open(migrated_url, idle_in_transaction_timeout_ms=100)

    def freeze():
        with frozen.write() as connection:
            frozen.lock_rows(connection, [1], timeout_ms=50)
            assert locked(database, [1], timeout_ms=5_000) == [1]
            connection.execute(text("SELECT 1"))

    with frozen, pytest.raises(DBAPIError) as ended:
        freeze()
    assert Database.is_connection_error(ended.value)


# What the client has sent when it freezes: the beginning of a COPY, a statement of a pipeline without the end of the
# pipeline, or the Flush with which psycopg ends one.
FROZEN_AFTER = {
    "a copy has begun": lambda libpq: libpq.exec_(b"COPY audit FROM STDIN"),
    "a pipeline has begun": lambda libpq: (
        libpq.enter_pipeline_mode(),
        libpq.send_query_params(b"SELECT 1", None),
        libpq.send_flush_request(),
        libpq.flush(),
    ),
    "a pipeline was flushed": lambda libpq: os.write(libpq.socket, b"H\0\0\0\4"),
}


@only_postgresql
@pytest.mark.parametrize("freeze", FROZEN_AFTER.values(), ids=FROZEN_AFTER)
def test_who_freezes_where_no_timeout_of_the_server_reaches_is_ended_by_whoever_waits_in_vain(freeze, migrated_url):
    with ExitStack() as stack:
        frozen, waiting = (
            stack.enter_context(Database.open(migrated_url, idle_in_transaction_timeout_ms=300)) for _ in range(2)
        )
        with waiting.write() as connection:
            add_campaigns(connection, 1)
        stack.enter_context(pytest.raises(DBAPIError))
        with frozen.write() as connection:
            frozen.lock_rows(connection, [1], timeout_ms=50)
            freeze(connection.connection.driver_connection.pgconn)
            assert locked(waiting, [1]) == []  # not at once: it may only be slow
            time.sleep(0.6)
            locked(waiting, [1])
            assert locked(waiting, [1], timeout_ms=2_000) == [1]
