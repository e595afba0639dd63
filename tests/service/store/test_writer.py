"""The dedicated writing connection: its transactions are like any other, and it survives a restart of the server."""

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from service.store import postgresql, tables
from service.store.database import Database
from tests.service.store.rows import add_campaigns

OWNER = object()
only_postgresql = pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)


def campaigns(database):
    with database.read() as connection:
        return connection.execute(select(func.count()).select_from(tables.campaign)).scalar_one()


def end_session(database, pid):
    with database.read() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})


def session_of(connection):
    return connection.connection.driver_connection.info.backend_pid


def write(database, *numbers, then=lambda connection: None):
    """Create campaigns in one transaction, and call `then` at its end."""
    with database.writer.begin(OWNER) as connection:
        add_campaigns(connection, *numbers)
        then(connection)


def same_again(connection):
    connection.execute(tables.campaign.insert().values(number=1, id="again", created_at=0))


def fail(connection):
    raise RuntimeError


def test_a_transaction_is_committed_at_its_end_or_undone_by_an_exception(database):
    write(database, 1)
    with pytest.raises(RuntimeError):
        write(database, 2, then=fail)
    assert campaigns(database) == 1
    write(database, 2)
    assert campaigns(database) == 2


def test_a_failed_transaction_leaves_the_connection_usable(database):
    with pytest.raises(IntegrityError):
        write(database, 1, then=same_again)
    write(database, 1)
    assert campaigns(database) == 1


@only_postgresql
def test_a_commit_after_a_failed_statement_raises(database):
    def swallow(connection):
        with pytest.raises(IntegrityError):
            same_again(connection)

    with pytest.raises(RuntimeError, match="cannot be committed"):
        write(database, 1, then=swallow)
    assert campaigns(database) == 0


@only_postgresql
def test_all_transactions_use_one_session_and_the_time_of_the_server(database):
    seen = []
    for _ in range(7):  # more often than it takes psycopg to prepare a statement
        with database.writer.begin(OWNER) as connection:
            now = connection.execute(text("SELECT CAST(extract(epoch FROM now()) * 1000000 AS bigint)")).scalar_one()
            assert now <= database.writer.now_micros() <= now + 1_000_000
            seen.append((session_of(connection), database.writer.now_micros()))
            (level,) = connection.execute(text("SHOW transaction_isolation")).one()
            assert level == "read committed"
    assert len({session for session, _ in seen}) == 1
    assert [at for _, at in seen] == sorted({at for _, at in seen})


@only_postgresql
def test_a_session_that_ended_while_idle_is_replaced_before_the_next_transaction(database, monkeypatch):
    monkeypatch.setattr(postgresql, "IDLE_SECONDS_MAX", 0.0)
    with database.writer.begin(OWNER) as connection:
        first = session_of(connection)
    end_session(database, first)
    with database.writer.begin(OWNER) as connection:
        add_campaigns(connection, 1)
        assert session_of(connection) != first
    assert campaigns(database) == 1


@only_postgresql
def test_a_session_that_ends_in_a_transaction_is_an_error_of_the_connection_and_the_next_has_another(database):
    with pytest.raises(DBAPIError) as lost:
        write(database, 1, then=lambda connection: end_session(database, session_of(connection)))
    assert Database.is_connection_error(lost.value)
    assert campaigns(database) == 0
    for number in range(1, 9):  # more than there are connections
        with pytest.raises(DBAPIError), database.writer.begin(OWNER) as connection:
            end_session(database, session_of(connection))
        write(database, number)
    assert campaigns(database) == 8


@only_postgresql
def test_other_transactions_can_write_at_the_same_time_even_with_a_pool_of_one(migrated_url):
    with Database.open(migrated_url, pool_size=1, connect_timeout_seconds=2) as database:
        with database.writer.begin(OWNER) as connection, database.write() as other:
            add_campaigns(connection, 1)
            add_campaigns(other, 2)
        assert campaigns(database) == 2


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
class TestEpochOfSqlite:
    def epoch(self, database):
        with database.writer.begin(OWNER):
            return database.writer.epoch

    def test_stays_while_only_its_owner_writes(self, database):
        before = self.epoch(database)
        write(database, 1)
        assert self.epoch(database) == before

    def test_changes_when_another_transaction_of_the_process_writes(self, database):
        before = self.epoch(database)
        with database.write() as connection:
            add_campaigns(connection, 1)
        assert self.epoch(database) != before

    def test_changes_when_another_owner_has_written(self, database):
        before = self.epoch(database)
        with database.writer.begin(object()) as connection:
            add_campaigns(connection, 1)
        assert self.epoch(database) != before

    def test_changes_when_another_connection_has_written(self, database):
        before = self.epoch(database)
        with closing(sqlite3.connect(database.path)) as other, other:
            other.execute("INSERT INTO campaign (number, id, created_at) VALUES (1, 'c', 0)")
        assert self.epoch(database) != before

    def test_changes_after_a_rollback_because_a_failed_commit_may_have_happened(self, database):
        before = self.epoch(database)
        with pytest.raises(RuntimeError):
            write(database, 1, then=fail)
        assert self.epoch(database) != before

    def test_changes_with_the_connection(self, database):
        before = self.epoch(database)
        database.writer.close()
        with closing(sqlite3.connect(database.path)) as other, other:
            other.execute("INSERT INTO campaign (number, id, created_at) VALUES (1, 'c', 0)")
        assert self.epoch(database) != before


@only_postgresql
def test_postgresql_has_no_epoch(database):
    with database.writer.begin(OWNER):
        assert database.writer.epoch is None
