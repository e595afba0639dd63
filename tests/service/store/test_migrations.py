import signal
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, select, text

from service.store import tables
from service.store.bulk_insert import append_rows
from service.store.database import Database
from service.store.errors import DatabaseInUse, DatabaseNotMigrated
from service.store.migrate import Migration, migrate, newest_revision, require_migrated
from tests.service.store.rows import account, add_campaigns, decision, outcome

ROOT = Path(__file__).parents[3]
PLUGINS = ["alembic.autogenerate.*", "alembic.ext.checkconstraint_byname"]


def schema(connection):
    """Everything the database says of its tables: columns, types, and constraints with their names and conditions."""
    asked = inspect(connection)
    return {
        table: {
            "columns": [column | {"type": str(column["type"])} for column in asked.get_columns(table)],
            "primary key": asked.get_pk_constraint(table),
            "foreign keys": in_order(asked.get_foreign_keys(table)),
            "unique": in_order(asked.get_unique_constraints(table)),
            "checks": in_order(asked.get_check_constraints(table)),
            "indexes": in_order(asked.get_indexes(table)),
        }
        for table in asked.get_table_names()
        if table != "alembic_version"
    }


def in_order(constraints):
    return sorted(constraints, key=lambda constraint: constraint["name"])


def test_the_newest_revision_is_the_one_alembic_goes_to():
    assert ScriptDirectory(str(ROOT / "migrations")).get_current_head() == newest_revision()


def test_an_empty_database_gets_the_tables(database_url):
    assert migrate(database_url) == Migration(before=None, after=newest_revision())
    with Database.open(database_url) as database, database.read() as connection:
        assert set(inspect(connection).get_table_names()) == {*tables.metadata.tables, "alembic_version"}


def test_alembic_finds_no_difference_between_the_migrated_tables_and_those_of_the_code(database):
    with database.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "autogenerate_plugins": PLUGINS}
        )
        assert compare_metadata(context, tables.metadata) == []


def test_the_migrated_tables_are_those_the_code_would_create_down_to_every_name_and_condition(database):
    with database.write() as connection:
        migrated = schema(connection)
        tables.metadata.drop_all(connection)
        assert schema(connection) == {}
        tables.metadata.create_all(connection)
        assert schema(connection) == migrated
    assert len(migrated) == len(tables.metadata.tables)
    assert {check["name"] for table in migrated.values() for check in table["checks"]} >= {"ck_account_covered"}


def test_every_constraint_has_a_name_by_which_a_later_migration_can_drop_it(database):
    with database.read() as connection:
        for table in schema(connection).values():
            kinds = ("foreign keys", "unique", "checks", "indexes")
            assert all(constraint["name"] for kind in kinds for constraint in table[kind])
            assert table["primary key"]["name"]


def test_migrating_again_changes_nothing_and_loses_nothing(migrated_url):
    rows = {tables.account: account(), tables.decision: decision(1), tables.outcome: outcome(2)}
    with Database.open(migrated_url) as database, database.write() as connection:
        add_campaigns(connection, 1)
        for table, row in rows.items():
            append_rows(connection, table, [row])
        before = schema(connection)
    assert migrate(migrated_url) == Migration(before=newest_revision(), after=newest_revision())
    with Database.open(migrated_url) as database, database.read() as connection:
        assert schema(connection) == before
        for table, row in rows.items():
            assert [dict(found) for found in connection.execute(select(table)).mappings()] == [row]


MIGRATE = "import sys; from service.store.migrate import migrate; print(migrate(sys.argv[1]).before)"


def test_of_several_migrations_at_once_one_does_the_work(database_url, dialect):
    command = [sys.executable, "-c", MIGRATE, database_url]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ended = [(*process.communicate(timeout=30), process.returncode) for process in started]
    assert sum(out == "None\n" for out, _, _ in ended) == 1
    for out, errors, code in ended:
        if code == 0:
            assert out in ("None\n", f"{newest_revision()}\n")
        else:
            assert dialect == "sqlite"
            assert "DatabaseInUse: another process uses" in errors.splitlines()[-1]
    with Database.open(database_url) as database:
        require_migrated(database)


# Stops for good after it has created half of the tables.
STOP_HALFWAY = """
import sys, time
from sqlalchemy import Engine, event
from service.store.migrate import migrate

@event.listens_for(Engine, "after_cursor_execute")
def halfway(connection, cursor, statement, *rest):
    if "CREATE TABLE decision" in statement:
        print("halfway", flush=True)
        time.sleep(60)

migrate(sys.argv[1])
"""


def test_a_migration_that_was_killed_halfway_has_done_nothing_and_can_be_run_again(database_url):
    with subprocess.Popen([sys.executable, "-c", STOP_HALFWAY, database_url], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"halfway\n"
        process.send_signal(signal.SIGKILL)
    with Database.open(database_url) as database, database.read() as connection:
        assert inspect(connection).get_table_names() == []
    assert migrate(database_url) == Migration(before=None, after=newest_revision())


def test_a_database_in_use_is_not_migrated_under_its_process(tmp_path):
    url = f"sqlite:///{tmp_path}/cbwk.db"
    with Database.open(url), pytest.raises(DatabaseInUse):
        migrate(url)


def test_a_database_from_a_later_version_is_refused_in_one_line(migrated_url):
    with Database.open(migrated_url) as database, database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'from_the_future'"))
    with pytest.raises(DatabaseNotMigrated, match="from_the_future") as refused:
        migrate(migrated_url)
    assert "\n" not in str(refused.value)
    with Database.open(migrated_url) as database, pytest.raises(DatabaseNotMigrated, match="from_the_future"):
        require_migrated(database)


def test_tables_that_are_somebody_elses_are_left_alone(database_url):
    with Database.open(database_url) as database, database.write() as connection:
        connection.execute(text("CREATE TABLE campaign (theirs text)"))
    with pytest.raises(DatabaseNotMigrated, match="already exists"):
        migrate(database_url)
    with Database.open(database_url) as database, database.read() as connection:
        assert inspect(connection).get_table_names() == ["campaign"]


def test_a_database_without_tables_is_told_what_to_do(database_url):
    with Database.open(database_url) as database, pytest.raises(DatabaseNotMigrated, match="run cbwk migrate"):
        require_migrated(database)
