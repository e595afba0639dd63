"""What routes take from the application's state, and the two ways they use the database: commands and reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from service.answers import body_problem, command_answer
from service.auth import KeyRing
from service.engine.commands import Answer, Command
from service.metrics import Metrics
from service.problems import Problem, Unavailable
from service.store.database import Database

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
    body = await request.body()
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise body_problem(error, body) from None


async def submitted(request: Request, command: Command) -> Response:
    """The engine's answer to one command."""
    return command_answer(await engine_of(request).submit(command))


async def read(request: Request, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """What a function of `service.store.reads` finds, in a thread and one snapshot."""
    database = database_of(request)

    def work() -> Result:
        with database.read() as connection:
            return _called(function, connection, arguments, named)

    return await run_in_threadpool(work)


def _called(
    function: Callable[..., Result], connection: Connection, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Result:
    return function(connection, *arguments, **named)
