"""Engines for the state machine: one on SQLite, two on PostgreSQL, with a clock that the machine sets."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import delete

from service.engine.batch import BatchRunner
from service.store import tables
from tests.faults.books import TABLES, Books, both_in
from tests.faults.report import Progress
from tests.service.databases import Clock, ClockedDatabase


@dataclass
class Replica:
    """An engine with its own connections."""

    url: str
    clock: Clock
    database: ClockedDatabase = field(init=False)
    processor: BatchRunner = field(init=False)

    def __post_init__(self) -> None:
        self.database = ClockedDatabase.with_clock(self.url, self.clock)
        self.renew()

    def renew(self) -> None:
        """Create an engine with an empty cache."""
        self.processor = BatchRunner(self.database, memory_bytes_max=2**28, lock_timeout_ms=2_000)

    def restart(self, *, orderly: bool) -> None:
        """Stop, with or without snapshots of the states, and open the database again."""
        if orderly:
            self.processor.save_all()
        self.database.close()
        self.__post_init__()


@dataclass
class EngineSet:
    """A database and its engines, which run one sequence after the other."""

    url: str
    clock: Clock
    replicas: list[Replica]
    reader: Any  # a connection of the driver
    begun: Progress = lambda: None
    sequences: int = 0
    acknowledged: int = 0

    def books(self) -> tuple[dict[str, Books], dict[str, Books]]:
        """Return the books of campaigns and of portfolios, read without the service."""
        self.reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ" if len(self.replicas) > 1 else "BEGIN")
        rows = {table: self.reader.execute(f'SELECT * FROM "{table}"').fetchall() for table in TABLES}
        self.reader.execute("COMMIT")
        return both_in(rows)

    def clear(self) -> None:
        """Empty the tables, renew the engines and reset the clock."""
        with self.replicas[0].database.write() as connection:
            for table in reversed(tables.metadata.sorted_tables):
                connection.execute(delete(table))
        for replica in self.replicas:
            replica.renew()
        self.clock.micros = Clock.micros
        self.sequences += 1
        self.begun()


@contextmanager
def engine_set(url: str) -> Iterator[EngineSet]:
    """Open one engine on SQLite, two on PostgreSQL."""
    clock = Clock()
    lite = url.startswith("sqlite")
    replicas = [Replica(url, clock) for _ in range(1 if lite else 2)]
    with closing(
        _sqlite_reader(url) if lite else psycopg.connect(url, autocommit=True, row_factory=dict_row)
    ) as reader:
        try:
            yield EngineSet(url, clock, replicas, reader)
        finally:
            for replica in replicas:
                replica.database.close()


def _sqlite_reader(url: str) -> sqlite3.Connection:
    reader = sqlite3.connect(f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True, isolation_level=None)
    reader.row_factory = sqlite3.Row
    return reader
