"""Bodies of answers: JSON by orjson, problems as `application/problem+json`."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.responses import Response

from service.complaints import Fault, faults_of
from service.problems import BadRequest, Invalid, Problem, TooManyRequests, Unavailable, UnknownRules
from service.words import error_at

Model = TypeVar("Model", bound=BaseModel)

# A body may be wrong in a thousand places; a problem document lists the first of them.
ERRORS_MAX = 20


class Json(Response):
    """A body as JSON, with the two headers it needs; Starlette's own constructor takes as long as the JSON."""

    def __init__(self, body: Any, status: int = 200, *, replayed: bool = False) -> None:
        self.body = content = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        self.status_code, self.background = status, None
        self.raw_headers = [(b"content-length", b"%d" % len(content)), (b"content-type", b"application/json")]
        if replayed:
            self.raw_headers.append((b"idempotent-replayed", b"true"))


def problem_answer(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem document, with the headers its status asks for."""
    more = dict(headers or {})
    if problem.status == 401:
        more["WWW-Authenticate"] = 'Bearer realm="cbwk"'
    if isinstance(problem, Unavailable | UnknownRules | TooManyRequests):
        more["Retry-After"] = str(problem.retry_after_seconds)
    return Response(orjson.dumps(problem.document()), problem.status, more, "application/problem+json")


def invalid(place: str, schema: str, faults: Iterable[Fault]) -> Problem:
    """422 for a value that does not fit its schema: the first of its faults, by their path in the body.

    >>> invalid("the body", "DecideRequest", [(("context", "hour"), "is required")]).document()["errors"]
    [{'field': 'context.hour', 'message': 'is required', 'pointer': '/context/hour'}]
    """
    errors = [error_at(path, message) for path, message in islice(faults, ERRORS_MAX)]
    return Invalid(f"{place} does not fit {schema}; /docs shows what it may be", errors=errors)


def parsed(body: bytes, model: type[Model]) -> Model:
    """A body of JSON as a model. Raises BadRequest if it is no JSON, Invalid if the model refuses it."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        if details[0]["type"] == "json_invalid":
            reason = details[0]["msg"].removeprefix("Invalid JSON: ")
            raise BadRequest(f"the body is not JSON: {reason}", kind="not-json") from None
        raise invalid("the body", error.title, faults_of(details, from_json(body), model)) from None
