"""Bring a database to the tables of this version: Alembic's revisions in `migrations/`, forward only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

import service
from service.store.database import Database, DatabaseNotMigrated


@dataclass(frozen=True, slots=True)
class Migration:
    """What a migration did: the revision found, None in an empty database, and the revision left behind."""

    before: str | None
    after: str


def migrate(url: str) -> Migration:
    """Run every revision the database has not had yet, all in one transaction.

    Replicas that start at once take turns, and those that come later find nothing to do; on SQLite they are refused.
    Raises a `DatabaseError`.
    """
    # Some revisions take their time, and who waits for their turn must wait as long as they take.
    with (
        Database.open(url, statement_timeout_ms=0, lock_timeout_ms=0, idle_in_transaction_timeout_ms=0) as database,
        database.write() as connection,
    ):
        database.take_turn(connection)
        before = _revision(connection)
        config = _config()
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except (CommandError, DBAPIError) as error:
            reason = error.orig if isinstance(error, DBAPIError) else error
            raise DatabaseNotMigrated(f"cannot migrate {database.url}: {reason}") from error
        return Migration(before, newest_revision())


def require_migrated(database: Database) -> None:
    """Raise `DatabaseNotMigrated` unless the database has the tables of this version."""
    with database.read() as connection:
        found = _revision(connection)
    if found != newest_revision():
        state = "has no tables yet" if found is None else f"is at revision {found}, not {newest_revision()}"
        raise DatabaseNotMigrated(f"the database {database.url} {state}: run cbwk migrate")


@cache
def newest_revision() -> str:
    """The revision that this version of the program needs."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    assert newest is not None, "there is at least one revision"
    return newest


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    return config


def _folder() -> Path:
    """`migrations/`: inside the package where it was installed, beside it in a checkout."""
    package = Path(service.__file__).resolve().parent
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parent / "migrations"
