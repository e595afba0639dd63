"""The application without a network: a client that calls it, keys for every role, an engine that records commands."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import update

from service.app import create_app
from service.auth import KeyRing
from service.engine import Engine
from service.engine.commands import Answer, Command
from service.metrics import Metrics
from service.problems import Problem
from service.settings import Settings
from service.store import tables
from service.store.database import Database
from service.store.keys import create_key

ADMIN_KEY = "an admin key that only tests know of"


@dataclass
class NotingEngine:
    """Records the commands it receives and gives each the same answer, or raises `problem` if there is one."""

    answer: Answer = field(default_factory=lambda: Answer({"noted": True}))
    problem: Exception | None = None
    seconds: float = 0.0  # before each answer
    commands: list[Command] = field(default_factory=list)
    is_whole: bool = True

    async def submit(self, command: Command) -> Answer:
        self.commands.append(command)
        await asyncio.sleep(self.seconds)
        if self.problem is not None:
            raise self.problem
        return self.answer

    async def submit_together(self, commands: Sequence[Command]) -> list[Answer | Problem]:
        return [await self.submit(command) for command in commands]


class Client:
    """Calls the application in its own event loop, with the admin's key unless a call names another key."""

    def __init__(self, app: FastAPI, runner: asyncio.Runner) -> None:
        self.app = app
        self.runner = runner
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://test", trust_env=False, timeout=60
        )

    def __call__(self, method: str, path: str, *, key: str | None = ADMIN_KEY, **request: Any) -> httpx.Response:
        headers = ({"Authorization": f"Bearer {key}"} if key else {}) | request.pop("headers", {})
        return self.runner.run(self._client.request(method, path, headers=headers, **request))


@contextmanager
def client_of(app: FastAPI) -> Iterator[Client]:
    """Yield a client of an application."""
    with asyncio.Runner() as runner:
        yield Client(app, runner)


@contextmanager
def noted(database: Database, engine: NotingEngine, **settings: Any) -> Iterator[Client]:
    """Yield a client of an application whose engine only records commands."""
    keyring = KeyRing(database, ADMIN_KEY)
    with client_of(create_app(Settings(**settings), database=database, engine=engine, keyring=keyring)) as client:
        yield client


@contextmanager
def served(database: Database) -> Iterator[Client]:
    """Yield a client of the whole service."""
    with asyncio.Runner() as runner:
        metrics = Metrics()
        engine = runner.run(_started(database, metrics))
        # A slow machine must not fail a test; a test of the deadline sets its own.
        settings = Settings(request_deadline_ms=20_000)
        app = create_app(
            settings, database=database, engine=engine, keyring=KeyRing(database, ADMIN_KEY), metrics=metrics
        )
        try:
            yield Client(app, runner)
        finally:
            app.state.evaluations.stop()
            runner.run(engine.stop())


async def _started(database: Database, metrics: Metrics) -> Engine:
    limits = {"queue_max": 1000, "deadline_seconds": 20, "memory_bytes_max": 2**28, "lock_timeout_ms": 500}
    engine = Engine(database, **limits, metrics=metrics)
    await engine.start()
    return engine


def key_for(database: Database, role: str, campaigns: tuple[str, ...] | None = None) -> str:
    """Create a key and return its text. Its campaigns need not exist: version 0.1 made such keys."""
    with database.write() as connection:
        key_id, text = create_key(connection, role, role, None, now=1)
        if campaigns is not None:
            limited = update(tables.api_key).where(tables.api_key.c.id == key_id)
            connection.execute(limited.values(campaigns=json.dumps(sorted(campaigns))))
    return text
