"""The OpenAPI document: what FastAPI knows of its routes, the hot endpoints it does not, one schema per body."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from msgspec.json import schema_components
from pydantic.json_schema import models_json_schema

from service import problems
from service.schemas import ANSWERS, REQUESTS
from service.schemas.deciding import ProblemDocument
from service.schemas.view import Answered
from service.words import error_at

_PROBLEMS: dict[int, problems.Problem] = {
    400: problems.BadRequest("the body is not JSON: expected value at line 1 column 1", kind="not-json"),
    401: problems.Unauthorized("the key is not valid, or not any more"),
    403: problems.Forbidden("this needs a key with the role admin", kind="role-missing"),
    404: problems.NotFound("there is no such campaign", kind="campaign-not-found"),
    409: problems.Conflict("this decision_id was used with another body", kind="decision-id-reused"),
    413: problems.TooLarge("the body may have at most 1048576 bytes"),
    422: problems.Invalid(
        "the body does not fit CampaignConfig; /docs shows what it may be",
        errors=[error_at("resources.0.budget", "must have at most 6 decimals")],
    ),
    429: problems.TooManyRequests(50, retry_after_seconds=1),
    503: problems.Unavailable("the database did not answer; try again", kind="database-away"),
}
_OPEN_PATHS = {"/livez", "/readyz"}
OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_DESCRIPTION = """\
Which arm for this request, within several budgets? Ask `POST /decide`, act, and tell `POST /feedback` what it earned
and what it cost. Every error is `application/problem+json`; clients switch on its `type`. Amounts are numbers up to
9,000,000,000 with at most six decimals.
"""
_TAGS = [
    {"name": "decide", "description": "Choose an arm."},
    {"name": "feedback", "description": "Tell what became of a choice."},
    {"name": "campaigns", "description": "What there is to choose and what it may cost."},
    {"name": "portfolios", "description": "Budgets that several campaigns share."},
    {"name": "admin", "description": "Budgets, the log behind them, keys."},
    {"name": "health", "description": "For those who run the service."},
]

_CAMPAIGN_HINT = {
    "name": "X-Campaign-Id",
    "in": "header",
    "required": False,
    "description": "the campaign of the body, so that a balancer can route by it; another one is 400",
    "schema": {"type": "string"},
}
_ID = "$response.body#/id"
_CAMPAIGN_ID, _DECISION_ID = "$response.body#/campaign_id", "$response.body#/decision_id"

_CAMPAIGN_OPERATIONS = (
    "show_campaign",
    "change_campaign",
    "ensure_campaign",
    "pause_campaign",
    "resume_campaign",
    "archive_campaign",
    "show_budget",
    "list_movements",
    "adjust_spent",
    "verify_campaign",
    "show_timeline",
    "show_feedback",
    "list_arms",
    "list_decisions",
    "export_decisions",
    "list_evaluations",
    "show_uplift",
)
_WEBHOOK_OPERATIONS = ("list_deliveries", "delete_webhook")
_SHOW_DECISION = {"parameters": {"campaign_id": _CAMPAIGN_ID, "decision_id": _DECISION_ID}}
_BOTH_IDS = {"requestBody": {"campaign_id": _CAMPAIGN_ID, "decision_id": _DECISION_ID}}

# From an operation to the operations that can follow its response.
LINKS: dict[str, dict[str, dict[str, Any]]] = {
    "create_campaign": {
        **{following: {"parameters": {"campaign_id": _ID}} for following in _CAMPAIGN_OPERATIONS},
        "decide": {"requestBody": {"campaign_id": _ID}},
        "decide_batch": {"requestBody": {"campaign_id": _ID}},
    },
    "create_portfolio": {
        following: {"parameters": {"portfolio_id": _ID}}
        for following in (
            "show_portfolio",
            "change_portfolio",
            "show_portfolio_budget",
            "list_portfolio_movements",
            "verify_portfolio",
        )
    },
    "pause_campaign": {"resume_campaign": {"parameters": {"campaign_id": _ID}}},
    "decide": {"feedback": _BOTH_IDS, "show_decision": _SHOW_DECISION},
    "feedback": {"feedback": _BOTH_IDS, "show_decision": _SHOW_DECISION},
    "start_evaluation": {"show_evaluation": {"parameters": {"campaign_id": _CAMPAIGN_ID, "evaluation_id": _ID}}},
    "create_webhook": {following: {"parameters": {"webhook_id": _ID}} for following in _WEBHOOK_OPERATIONS},
    "create_key": {"revoke_key": {"parameters": {"key_id": _ID}}},
}


@dataclass(frozen=True)
class HotRoute:
    """A hot POST endpoint and its entry in the OpenAPI document."""

    path: str
    # From the key's holder, the body and X-Campaign-Id to a `service.hot.endpoints.Submission`.
    parse: Callable[[Any, bytes, str | None], Any]
    tag: str
    takes: type[Any]  # a struct of `service.hot.bodies`
    answers: type[Answered]
    timed: bool = False  # observed by `cbwk_decide_seconds`

    def operation(self) -> dict[str, Any]:
        """Its entry in the document."""
        name = self.parse.__name__
        described = replayable(documented(self.answers, 404, 409, body=self.takes))
        return {
            "tags": [self.tag],
            "summary": name.replace("_", " ").capitalize(),
            "description": self.parse.__doc__,
            "operationId": name,
            "parameters": [_CAMPAIGN_HINT],
            **described["openapi_extra"],
            "responses": {str(status): answer for status, answer in described["responses"].items()},
        }


def _reference(model: type[Any]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def documented(
    model: type[Answered], *problems: int, body: type[Any] | None = None, status: int | tuple[int, ...] = 200
) -> dict[str, Any]:
    """The arguments of a route that needs a key: its good answers, its problems and its request body.

    Such a route may answer 401, 403, 429 and 503; one with a body may also answer 400, 413 and 422.
    """
    statuses = sorted({401, 403, 429, 503, *problems, *((400, 413, 422) if body else ())})
    first, *others = (status,) if isinstance(status, int) else status
    described: dict[str, Any] = {"status_code": first, "responses": answers(model, *statuses, status=first)}
    described["responses"] |= dict.fromkeys(others, described["responses"][first])
    if body:
        described["openapi_extra"] = takes({"application/json": {"schema": _reference(body)}})
    return described


def replayable(described: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a route whose good answer may be the stored one to an earlier request: its header says so."""
    described["responses"][described["status_code"]]["headers"] = {
        "Idempotent-Replayed": {
            "description": "true for the stored answer to a request that came before",
            "schema": {"type": "string", "enum": ["true"]},
        }
    }
    return described


def takes(content: dict[str, Any]) -> dict[str, Any]:
    """The body of a request, as a part of an operation."""
    return {"requestBody": {"required": True, "content": content}}


def answers(model: type[Answered], *problems: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The answers of an operation: one good one and its problems."""
    good = {"description": "Done.", "content": {"application/json": {"schema": _reference(model)}}}
    return {status: good, **_problem_answers(problems)}


def streams(media_types: Iterable[str], *problems: int) -> dict[int | str, dict[str, Any]]:
    """The answers of an operation that streams text."""
    content = {media_type: {"schema": {"type": "string"}} for media_type in media_types}
    return {200: {"description": "A stream.", "content": content}, **_problem_answers(problems)}


def gives_octets(headers: dict[str, str], *problems: int) -> dict[int | str, dict[str, Any]]:
    """The answers of an operation that gives bytes, with what its headers say."""
    described = {name: {"description": said, "schema": {"type": "string"}} for name, said in headers.items()}
    return {200: {"description": "Bytes.", "headers": described, "content": OCTETS}, **_problem_answers(problems)}


def _problem_answers(statuses: Sequence[int]) -> dict[int | str, dict[str, Any]]:
    return {status: _problem_answer(_PROBLEMS[status]) for status in statuses}


def _problem_answer(problem: problems.Problem) -> dict[str, Any]:
    media = {"schema": _reference(ProblemDocument), "example": problem.document()}
    answer: dict[str, Any] = {"description": problem.title, "content": {"application/problem+json": media}}
    if problem.status == 401:
        answer["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    if problem.status in (429, 503):
        answer["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
    return answer


def document(app: FastAPI, hot: Sequence[HotRoute], routers: Sequence[APIRouter]) -> dict[str, Any]:
    """The whole document."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        description=_DESCRIPTION,
        tags=_TAGS,
        routes=app.routes,
    )
    demands = _demands(routers)
    paths = {route.path: {"post": route.operation()} for route in hot} | made["paths"]
    for path, operations in paths.items():
        for operation in operations.values():
            passed = demands.get(operation["operationId"])
            operation["security"] = _security(path, passed)
            if passed and passed & {"unlimited_admin", "unlimited_reader"}:
                operation["x-unlimited-key"] = True
            # FastAPI adds its own 422 to every path with a name in it; any text is a name, and a wrong one is 404.
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]
            links = LINKS.get(operation["operationId"])
            if links:
                good = next(status for status in operation["responses"] if status.startswith("2"))
                linked = {following: {"operationId": following, **link} for following, link in links.items()}
                operation["responses"][good]["links"] = linked
    _, schemas = models_json_schema(
        [(model, "validation") for model in (*REQUESTS, *ANSWERS)], ref_template="#/components/schemas/{model}"
    )
    made["paths"] = paths
    made["components"] = {
        "schemas": schemas["$defs"] | _struct_schemas([route.takes for route in hot]),
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        },
    }
    return made


def _demands(routers: Sequence[APIRouter]) -> dict[str, set[str]]:
    """By operation, the names of the functions that its request must pass, such as `admin`."""
    return {
        route.endpoint.__name__: {getattr(each.call, "__name__", "") for each in _dependencies(route.dependant)}
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
    }


def _dependencies(dependant: Dependant) -> Iterator[Dependant]:
    for dependency in dependant.dependencies:
        yield dependency
        yield from _dependencies(dependency)


def _security(path: str, demands: set[str] | None) -> list[dict[str, list[str]]]:
    """The keys that open an operation, with the role that they need."""
    if path in _OPEN_PATHS:
        return []
    role = "decider" if demands is None else "admin" if "admin" in demands else "reader"
    return [{"bearer": [role]}, {"apiKey": [role]}]


def _struct_schemas(bodies: Sequence[type[Any]]) -> dict[str, Any]:
    _, schemas = schema_components(bodies, ref_template="#/components/schemas/{name}")
    for body in bodies:
        schemas[body.__name__]["examples"] = [body.example]
    # The end of a text is `\Z` in Python and `$` in JSON Schema.
    ends: dict[str, Any] = orjson.loads(orjson.dumps(schemas).replace(rb"\\Z", b"$"))
    return ends
