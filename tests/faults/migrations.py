"""kill -9 during the migration of an empty database: the next migration completes it."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from contextlib import closing
from typing import Any

import psycopg

from service.settings import environment_variable
from tests.faults.processes import Child, Testbed
from tests.faults.report import Progress, Row


async def killed_migrations(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Spread the kills over the duration of a migration."""
    chance = random.Random(15)
    found: dict[str, int] = {}
    with testbed.database(dialect, tables=False) as url:
        whole = _finished(testbed, url)
        right = _schema(url)
    running = 0
    for _ in range(injections):
        with testbed.database(dialect, tables=False) as url:
            child = _migration(testbed, url)
            await asyncio.sleep(chance.uniform(0.0, whole))
            running += child.code() is None
            child.kill()
            _finished(testbed, url)
            if _schema(url) != right:
                found["tables differ"] = found.get("tables differ", 0) + 1
        progress()
    note = f"{running} of the kills came before the end of the migration; the next migration always completed it"
    return Row("kill -9 during migration", dialect, injections, 0, found, note=note)


def _migration(testbed: Testbed, url: str) -> Child:
    environment = {environment_variable("database_url"): url}
    return testbed.zygote.start(["migrate"], environment, testbed.folder, testbed.folder / "migrate.log")


def _finished(testbed: Testbed, url: str) -> float:
    """Run a migration to its end; returns its duration."""
    started = time.monotonic()
    code = _migration(testbed, url).wait()
    assert code == 0, (testbed.folder / "migrate.log").read_text()[-2000:]
    return time.monotonic() - started


def _schema(url: str) -> list[Any]:
    """Return every table, column and constraint, and the revision."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            named = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
            return [*named, *connection.execute("SELECT * FROM alembic_version")]
    with psycopg.connect(url) as connection:
        columns = connection.execute(
            "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns"
            " WHERE table_schema = 'public' ORDER BY 1, 2"
        ).fetchall()
        rules = connection.execute(
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
            " ORDER BY 1, 2"
        ).fetchall()
        return [*columns, *rules, *connection.execute("SELECT * FROM alembic_version").fetchall()]
