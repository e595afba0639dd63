"""Migrates a database to the tables of this version with Alembic's revisions in `migrations/`, forward only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

import service
from service.store.database import Database
from service.store.errors import DatabaseNotMigrated


@dataclass(frozen=True, slots=True)
class Migration:
    """The revision before a migration, None for an empty database, and after it."""

    before: str | None
    after: str


def migrate(url: str) -> Migration:
    """Run every missing revision, all in one transaction.

    Replicas that start together run one after the other, and the later ones find nothing to do; SQLite refuses them.
    Raises a `DatabaseError`.
    """
    # A revision may take long, and the other replicas wait for its end.
    with (
        Database.open(url, statement_timeout_ms=0, lock_timeout_ms=0, idle_in_transaction_timeout_ms=0) as database,
        database.write() as connection,
    ):
        database.lock_replicas(connection)
        before = _revision(connection)
        if before != newest_revision():
            _upgrade(database, connection)
        return Migration(before, newest_revision())


def _upgrade(database: Database, connection: Connection) -> None:
    # Importing Alembic slows the start down, so it is imported only for a migration.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except (CommandError, DBAPIError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise DatabaseNotMigrated(f"cannot migrate {database.url}: {reason}") from error


def require_migrated(database: Database) -> None:
    """Raise `DatabaseNotMigrated` unless the database has the tables of this version."""
    with database.read() as connection:
        found = _revision(connection)
    if found != newest_revision():
        state = "has no tables yet" if found is None else f"is at revision {found}, not {newest_revision()}"
        raise DatabaseNotMigrated(f"the database {database.url} {state}: run cbwk migrate")


@cache
def newest_revision() -> str:
    """The revision that this version of the program needs; a revision is named after the date in its file name."""
    newest = max(path.name for path in (_folder() / "versions").glob("*.py"))
    year, month, day, clock = newest.partition("_")[0].split("-")
    return f"{year}{month}{day}_{clock}"


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _folder() -> Path:
    """`migrations/`: inside the installed package, or beside it in a checkout."""
    package = Path(service.__file__).resolve().parent
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parent / "migrations"
