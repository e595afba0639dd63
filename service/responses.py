"""Bodies of answers: JSON by orjson, problems as `application/problem+json`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.responses import Response

from service.problems import BadRequest, Invalid, Misfit, Problem, TooManyRequests, Unavailable, UnknownRules

Model = TypeVar("Model", bound=BaseModel)

# A place in a body and what is wrong there.
Fault = tuple[tuple[str, ...], str]

# A body may be wrong in a thousand places; a problem document lists the first of them.
ERRORS_MAX = 20
# How much of a field's name is shown; the caller may have made it up.
FIELD_PART_LENGTH_MAX = 64


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
    [{'field': 'context.hour', 'message': 'is required'}]
    """
    errors = [
        {"field": ".".join(map(_shown, path)) or "body", "message": message}
        for path, message in islice(faults, ERRORS_MAX)
    ]
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
        raise invalid("the body", error.title, _faults(details, from_json(body))) from None


def _faults(details: Iterable[ErrorDetails], body: Any) -> Iterator[Fault]:
    """The fields that are wrong, each with everything that is wrong with it.

    pydantic reports a value of several kinds once for each kind. The error of a field is left out if a field inside it
    has one: the caller meant that kind.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for detail in details:
        messages = found.setdefault(_path(detail, body), [])
        message = _message(detail)
        if message not in messages:
            messages.append(message)
    for path, messages in found.items():
        if not any(len(other) > len(path) and other[: len(path)] == path for other in found if path):
            yield path, _joined(messages)


def _path(detail: ErrorDetails, body: Any) -> tuple[str, ...]:
    """The place in the body: pydantic also names the kinds it tried, which are no part of it."""
    parts: list[str] = []
    for part in detail["loc"]:
        named = isinstance(body, dict) and part in body
        if named or (isinstance(body, list) and isinstance(part, int) and part < len(body)):
            body = body[part]
            parts.append(str(part))
        elif detail["type"] == "missing" and part == detail["loc"][-1]:
            parts.append(str(part))
    error = detail.get("ctx", {}).get("error")
    if isinstance(error, Misfit):
        parts += error.field.split(".")
    return tuple(parts)


def _joined(messages: Sequence[str]) -> str:
    """Several complaints about one field.

    >>> _joined(["Input should be a valid number", "Input should be a valid string"])
    'Input should be a valid number or a valid string'
    """
    first, *others = messages
    return " or ".join([first, *(other.removeprefix("Input should be ") for other in others)])


def _shown(part: str) -> str:
    text = part[:FIELD_PART_LENGTH_MAX]
    return text if text.isprintable() else ascii(text)


def _message(detail: ErrorDetails) -> str:
    """What is wrong, without the value: pydantic quotes it where it chooses between kinds by a tag."""
    context = detail.get("ctx", {})
    if detail["type"] == "union_tag_invalid":
        return f"type must be one of {context['expected_tags']}"
    if detail["type"] == "union_tag_not_found":
        return "type is required"
    if detail["type"] == "extra_forbidden":
        return "is not a field of this body"
    if detail["type"] == "value_error":
        error = context["error"]
        return error.message if isinstance(error, Misfit) else str(error)
    return detail["msg"]
