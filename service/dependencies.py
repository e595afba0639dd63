"""The components a route uses, and its two ways to the database: commands of the engine, and reads in a thread."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast

import structlog
from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Header, Query
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from service.access_log import AccessLog
from service.auth import KeyRing
from service.engine import Engine
from service.engine.commands import Adjust, Answer, Command, CreateCampaign, CreatePortfolio, Once, request_digest
from service.evaluation.runner import Evaluations
from service.limits import IDEMPOTENCY_KEY_LENGTH_MAX, PAGE_DEFAULT, PAGE_MAX
from service.metrics import Metrics
from service.problems import Problem, Unavailable
from service.responses import Json
from service.settings import Settings
from service.store.database import Database

# A change of a campaign that is not in memory first reads the campaign's log.
ADMIN_DEADLINE_SECONDS = 30.0

DEADLINE_PASSED = (
    "the deadline passed before there was an answer; the request may still be carried out: repeat it with the same id"
)

Result = TypeVar("Result")

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Components:
    """The application's `state`; its attributes are read faster than those of Starlette's `State`."""

    settings: Settings
    metrics: Metrics
    read_limiter: CapacityLimiter  # bounds concurrent reads of the database
    evaluations: Evaluations
    database: Database | None = None
    engine: Engine | None = None
    keyring: KeyRing | None = None
    access_log: AccessLog | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)  # in the background, until the process stops


def components_of(request: Request) -> Components:
    """Return the components of the application."""
    return cast(Components, request.app.state)


def engine_of(request: Request) -> Engine:
    """Return the engine; raise a Problem until it has started."""
    return _ready(components_of(request).engine)


def database_of(request: Request) -> Database:
    """Return the database; raise a Problem until it is open."""
    return _ready(components_of(request).database)


def keyring_of(request: Request) -> KeyRing:
    """Return the keyring; raise a Problem until there is one."""
    return _ready(components_of(request).keyring)


def _ready(component: Result | None) -> Result:
    if component is None:
        raise Unavailable("the service is not ready yet; try again", kind="not-ready")
    return component


async def page_of(
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX, description="maximum number of items")] = PAGE_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=256, description="next_cursor of the previous page")] = None,
) -> dict[str, Any]:
    """Return the arguments by which a read function selects a page."""
    return {"limit": limit, "cursor": cursor}


PageQuery = Annotated[dict[str, Any], Depends(page_of)]


async def submit_together(request: Request, commands: Sequence[Command]) -> list[Answer | Problem]:
    """Return the answers of the engine to commands of one transaction, within the request's deadline."""
    seconds = components_of(request).settings.request_deadline_ms / 1000
    return await _within(seconds, engine_of(request).submit_together(commands))


async def idempotency_key_of(
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=IDEMPOTENCY_KEY_LENGTH_MAX,
            description="the same key and body again within 24 hours: the same answer, and nothing is done",
        ),
    ] = None,
) -> str | None:
    """Return the header by which a client may repeat a request."""
    return idempotency_key


IdempotencyKey = Annotated[str | None, Depends(idempotency_key_of)]


async def submitted_once(
    request: Request, command: CreateCampaign | CreatePortfolio | Adjust, key: str | None
) -> Response:
    """Return the response to a command, or the stored one if its request has come before with the same key."""
    if key is None:
        return await submitted(request, command)
    digest = request_digest(request.url.path, from_json(await request.body()))
    return await submitted(request, command, Once(command, key, digest))


async def submitted(request: Request, command: Command, once: Once | None = None) -> Response:
    """Return the response to an administrator's command, which has a longer deadline; the log names both."""
    line = log.bind(command=type(command).__name__, campaign=campaign_of(command), actor=getattr(command, "actor", ""))
    try:
        answer = await _within(ADMIN_DEADLINE_SECONDS, engine_of(request).submit(once or command))
    except Problem as problem:
        line.info("a change was refused", status=problem.status, problem=problem.kind)
        raise
    line.info("changed", status=answer.status)
    response = Json(answer.body, answer.status, replayed=answer.replayed)
    if isinstance(command, CreateCampaign | CreatePortfolio) and answer.status == 201:
        # Relative to the request, as a proxy may need; an id may have a colon, so after a PUT it begins with a dot.
        folder = "portfolios"
        if isinstance(command, CreateCampaign):
            folder = "campaigns" if command.chosen is None else "."
        response.headers["Location"] = f"{folder}/{answer.body['id']}"
    return response


def campaign_of(command: Command) -> str | None:
    """Return the id of the campaign that a command is about, if it is about one."""
    return command.config["id"] if isinstance(command, CreateCampaign) else getattr(command, "campaign_id", None)


async def _within(seconds: float, answer: Awaitable[Result]) -> Result:
    """Bound the wait, even if the database hangs; the engine still finishes the command."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise Unavailable(DEADLINE_PASSED, kind="deadline-passed") from None


async def read(request: Request, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """Return the result of a function of `service.reads`, which runs in a thread and in one snapshot."""
    database = database_of(request)

    def run() -> Result:
        with database.read() as connection:
            return function(connection, *arguments, **named)

    return await to_thread.run_sync(run, limiter=components_of(request).read_limiter)


async def show(request: Request, function: Callable[..., Any], *arguments: Any, **named: Any) -> Response:
    """Return the result of `read` as a response."""
    return Json(await read(request, function, *arguments, **named))
