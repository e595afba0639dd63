"""The ASGI application: its routes, its middleware, and the handlers that turn errors into problem documents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, cast

import orjson
from anyio import CapacityLimiter
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from pydantic_core import ErrorDetails
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from service import openapi
from service.access_log import AccessLog
from service.auth import KeyRing
from service.complaints import message_of
from service.dependencies import Components
from service.engine import Engine
from service.evaluation.runner import Evaluations
from service.gauges import DatabaseGauges
from service.hot.endpoints import HOT_ROUTES, endpoint
from service.hot.exchange import HotPath
from service.hot.refusal import Refusals
from service.metrics import Metrics
from service.middleware import RequestMiddleware, route_of
from service.problems import BadRequest, Forbidden, Invalid, MethodNotAllowed, NotFound, Problem, Unavailable
from service.responses import ERRORS_MAX, problem_answer
from service.routes import admin, campaigns, evaluations, health, portfolios, webhooks
from service.routes.dashboard import add_pages
from service.settings import Settings
from service.store.database import Database
from service.words import shown, suggestion

_HTTP_PROBLEMS: dict[int, Problem] = {
    400: BadRequest("the request cannot be read"),
    403: Forbidden("this is not allowed"),
}


ROUTERS = (campaigns.router, portfolios.router, admin.router, evaluations.router, webhooks.router, health.router)


@dataclass(frozen=True)
class Instrumentation:
    """The classes that a process chooses when it starts; those of `service.tracing` make spans."""

    engine: type[Engine] = Engine
    hot_path: type[HotPath] = HotPath
    middleware: tuple[Callable[[ASGIApp], ASGIApp], ...] = ()  # inside of the one that gives a request its id
    stop: Callable[[], None] = lambda: None


PLAIN = Instrumentation()


# FastAPI would make spans, metrics and log records of its own as soon as the process has a provider for them.
_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
_UNTRACED = {"/livez", "/readyz", "/metrics"}  # asked for by machines every few seconds
_SPANS: TelemetryConfig = {
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "exclude": lambda scope: scope["path"] in _UNTRACED,
}


class _Application(FastAPI):
    refusals: Refusals
    hot_path: HotPath

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which is built once."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.document(self, HOT_ROUTES, ROUTERS)
        return self.openapi_schema

    @cached_property
    def openapi_bytes(self) -> bytes:
        """The OpenAPI document as JSON."""
        return orjson.dumps(self.openapi())


def create_app(
    settings: Settings | None = None,
    *,
    database: Database | None = None,
    engine: Engine | None = None,
    keyring: KeyRing | None = None,
    metrics: Metrics | None = None,
    lifespan: Any = None,
    instrumentation: Instrumentation = PLAIN,
) -> FastAPI:
    """Create an application; two applications in one process share nothing.

    `app.state` is a `Components`. A lifespan may set database, engine and keyring later; until then, requests that
    need one of them are answered with 503.
    """
    settings = settings or Settings()
    metrics = metrics or Metrics(settings.metrics_campaigns_max)
    app = _Application(
        title="cbwk",
        version=version("cbwk"),
        openapi_url=None,  # FastAPI would write the document again for every request, for some 5 ms
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=_SPANS if settings.traces else _NO_TELEMETRY,
        generate_unique_id_function=lambda route: route.name,
    )
    components = Components(
        settings,
        metrics,
        # Long reads leave one connection free, so that keys can always be looked up.
        read_limiter=CapacityLimiter(max(1, settings.pool_size - 1)),
        evaluations=Evaluations(at_once=settings.evaluations_max, seconds_max=settings.evaluation_seconds_max),
        database=database,
        engine=engine,
        keyring=keyring,
        access_log=AccessLog() if settings.access_log else None,
    )
    app.state = components  # type: ignore[assignment]
    access_log = components.access_log
    for middleware in instrumentation.middleware:
        app.add_middleware(middleware)
    app.add_middleware(
        RequestMiddleware, metrics=metrics, body_bytes_max=settings.body_bytes_max_of, access_log=access_log
    )
    app.refusals = Refusals([route.path for route in HOT_ROUTES], metrics, access_log)
    app.hot_path = instrumentation.hot_path(components, HOT_ROUTES, metrics, settings.body_bytes_max_of)
    for route in HOT_ROUTES:
        app.add_route(route.path, endpoint(route), methods=["POST"], name=route.path)
    add_pages(app)
    for router in ROUTERS:
        app.include_router(router)
    app.exception_handler(Problem)(_problem)
    app.exception_handler(HTTPException)(_http_exception)
    app.exception_handler(RequestValidationError)(_invalid_query)
    app.exception_handler(SQLAlchemyError)(_database_error)
    metrics.queue_depth.set_function(lambda: getattr(components.engine, "queued", 0))
    metrics.registry.register(DatabaseGauges(lambda: components.database, metrics.campaigns_max))
    return app


async def _problem(request: Request, error: Problem) -> Response:
    return problem_answer(error)


async def _http_exception(request: Request, error: HTTPException) -> Response:
    """Answer the errors that Starlette and FastAPI raise."""
    if error.status_code >= 500:
        raise error
    path = request.url.path
    if error.status_code == 404:
        detail = f"there is nothing at {shown(path)}{suggestion(path, request.app.openapi()['paths'])}"
        return problem_answer(NotFound(detail, kind="path-not-found"))
    if error.status_code == 405:
        methods = _methods(request)
        return problem_answer(MethodNotAllowed(f"{shown(path)} takes {methods} only"), {"Allow": methods})
    return problem_answer(_HTTP_PROBLEMS.get(error.status_code, _HTTP_PROBLEMS[400]), error.headers)


def _methods(request: Request) -> str:
    """Return all methods of the path; Starlette knows only those of the first matching route."""
    operations = request.app.openapi()["paths"].get(route_of(request.scope), {"get": {}})
    return ", ".join(sorted(method.upper() for method in operations))


async def _invalid_query(request: Request, error: RequestValidationError) -> Response:
    errors = [
        {"field": _parameter(found["loc"]), "message": message_of(cast(ErrorDetails, found), found["input"])}
        for found in error.errors()[:ERRORS_MAX]
    ]
    return problem_answer(Invalid("the query or a header cannot be taken as it is", errors=errors))


def _parameter(place: Sequence[str | int]) -> str:
    """Return the name of a parameter of the query, or of a header as it is usually written."""
    kind, *names = map(str, place)
    return ".".join(names).title() if kind == "header" else ".".join(names)


async def _database_error(request: Request, error: SQLAlchemyError) -> Response:
    if not Database.is_connection_error(error):
        raise error
    return problem_answer(Unavailable(Database.away_reason(error), kind="database-away"))
