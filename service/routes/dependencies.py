"""What routes take from the application's state, and the two ways they use the database: commands and reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from anyio import to_thread
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from service import responses as answers
from service.auth import KeyRing
from service.engine.commands import Answer, Command
from service.metrics import Metrics
from service.problems import Problem, Unavailable
from service.responses import command_answer
from service.store.database import Database

# A change of a campaign that nobody has asked about for long begins with reading its log.
ADMIN_DEADLINE_SECONDS = 30.0

TOO_LATE = "the answer did not come in time; what was asked may have been done, so ask again with the same id"

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")


class Submits(Protocol):
    """What routes need of the engine."""

    async def submit(self, command: Command) -> Answer:
        """Do it, or raise a Problem."""

    async def submit_together(self, commands: Sequence[Command]) -> list[Answer | Problem]:
        """Do all of them in one transaction."""


def engine_of(request: Request) -> Submits:
    """The engine, once it is there."""
    return cast(Submits, _part(request, "engine"))


def database_of(request: Request) -> Database:
    """The database, once it is there."""
    return cast(Database, _part(request, "database"))


def keyring_of(request: Request) -> KeyRing:
    """The keys, once they are there."""
    return cast(KeyRing, _part(request, "keyring"))


def metrics_of(request: Request) -> Metrics:
    """The metrics."""
    return cast(Metrics, request.app.state.metrics)


def _part(request: Request, name: str) -> Any:
    part = getattr(request.app.state, name, None)
    if part is None:
        raise Unavailable("the service is not ready yet; try again", kind="not-ready")
    return part


async def parsed(request: Request, model: type[Model]) -> Model:
    """The body as a model, straight from its bytes."""
    return answers.parsed(await request.body(), model)


async def submit_together(request: Request, commands: Sequence[Command]) -> list[Answer | Problem]:
    """The engine's answers to hot commands of one transaction, within the request's deadline."""
    return await _in_time(_deadline_seconds(request), engine_of(request).submit_together(commands))


async def submitted(request: Request, command: Command) -> Response:
    """The engine's answer to a command of an administrator, who can wait."""
    return command_answer(await _in_time(ADMIN_DEADLINE_SECONDS, engine_of(request).submit(command)))


def _deadline_seconds(request: Request) -> float:
    return float(request.app.state.settings.request_deadline_ms / 1000)


async def _in_time(seconds: float, waiting: Awaitable[Result]) -> Result:
    """Nobody waits for ever, not even for a database that hangs; what was begun is still finished.

    As `asyncio.timeout` does, at a fraction of its cost: it was a quarter of a whole request.
    """
    task = asyncio.current_task()
    assert task is not None
    rung = False

    def ring() -> None:
        nonlocal rung
        rung = True
        task.cancel()

    alarm = asyncio.get_running_loop().call_later(seconds, ring)
    try:
        return await waiting
    except asyncio.CancelledError:
        if not rung or task.uncancel() > 0:
            raise
        raise Unavailable(TOO_LATE, kind="deadline-passed") from None
    finally:
        alarm.cancel()


async def read(request: Request, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """What a function of `service.reads` finds, in a thread and one snapshot."""
    database = database_of(request)

    def work() -> Result:
        with database.read() as connection:
            return function(connection, *arguments, **named)

    return await to_thread.run_sync(work, limiter=request.app.state.read_limiter)
