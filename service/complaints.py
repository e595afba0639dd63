"""What pydantic finds wrong with a value, in plain words, and where."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from service.ids import NOT_AN_ID
from service.problems import Misfit
from service.words import listed, not_a_field, suggestion

# A place in a body and what is wrong there.
Fault = tuple[tuple[str, ...], str]

_WHOLE, _NUMBER, _OBJECT, _LIST = "must be a whole number", "must be a number", "must be an object", "must be a list"
# By pydantic's type of error; the names in braces are those of its context.
_PLAIN = {
    "missing": "is required",
    "string_type": "must be a string",
    "string_sub_type": "must be a string",
    "string_unicode": "must be Unicode text",
    "string_pattern_mismatch": NOT_AN_ID,  # no other field has a pattern
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": "must be a smaller number",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "none_required": "must be null",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "greater_than": "must be greater than {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "less_than": "must be less than {lt:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
    "union_tag_not_found": "type is required",
}
_SIZES = {
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
    "too_short": ("at least", "min_length", "item"),
    "too_long": ("at most", "max_length", "item"),
}


def message_of(detail: ErrorDetails, value: Any = None) -> str:
    """Returns what is wrong, without the value.

    >>> message_of({"type": "float_type", "loc": (), "msg": "Input should be a valid number", "input": "x"})
    'must be a number'
    """
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "value_error":
        error = context["error"]
        return error.message if isinstance(error, Misfit) else str(error)
    if kind in _SIZES:
        bound, name, unit = _SIZES[kind]
        size, unit = context[name], "field" if context.get("field_type") == "Dictionary" else unit
        return f"must have {bound} {size} {unit}{'' if size == 1 else 's'}"
    if kind in ("literal_error", "union_tag_invalid"):
        expected = re.findall(r"'([^']*)'", context.get("expected") or context["expected_tags"])
        if kind == "union_tag_invalid":
            value = value.get("type") if isinstance(value, Mapping) else None
        hint = suggestion(value, expected) if isinstance(value, str) else ""
        subject = "type must be" if kind == "union_tag_invalid" else "must be"
        return f"{subject} {'' if len(expected) == 1 else 'one of '}{listed(expected)}{hint}"
    if kind in _PLAIN:
        return _PLAIN[kind].format_map(context)
    return detail["msg"].replace("Input should be a valid", "must be a").replace("Input should", "must")


def faults_of(details: Iterable[ErrorDetails], body: Any, model: type[BaseModel]) -> Iterator[Fault]:
    """Yields the fields that are wrong, each with everything that is wrong with it.

    pydantic reports a value of several kinds once for each kind. The error of a field is left out if a field inside it
    has one: the caller meant that kind.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for detail in details:
        path, value = _place(detail, body)
        if detail["type"] == "extra_forbidden":
            *parent, name = path
            message = not_a_field(name, fields_at(model, parent, body))
        else:
            message = message_of(detail, value)
        messages = found.setdefault(path, [])
        if message not in messages:
            messages.append(message)
    for path, messages in found.items():
        if not any(len(other) > len(path) and other[: len(path)] == path for other in found if path):
            yield path, _joined(messages)


def _place(detail: ErrorDetails, body: Any) -> tuple[tuple[str, ...], Any]:
    """The path in the body, and the value there: pydantic also names the kinds it tried, which are no part of it."""
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
    return tuple(parts), body


def _joined(messages: Sequence[str]) -> str:
    """Several complaints about one field.

    >>> _joined(["must be a number", "must be a string"])
    'must be a number or a string'
    """
    first, *others = messages
    return " or ".join([first, *(other.removeprefix("must be ") for other in others)])


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def fields_at(model: type[BaseModel], path: Sequence[str], body: Any) -> list[str]:
    """Returns the names of the fields that an object of a body may have: by its `type`, where objects have one."""
    schema = _schema(model)
    nodes = _options(schema, schema, body)
    for part in path:
        body = body[int(part)] if isinstance(body, list) else body.get(part)
        inner = (node.get("items") or node.get("properties", {}).get(part) for node in nodes)
        nodes = [option for node in inner if node for option in _options(node, schema, body)]
    return list(dict.fromkeys(name for node in nodes for name in node.get("properties", ())))


def _options(node: Mapping[str, Any], schema: Mapping[str, Any], value: Any) -> list[Mapping[str, Any]]:
    """Returns the schemas that a value at a node may have, without references and choices."""
    if "$ref" in node:
        return _options(schema["$defs"][node["$ref"].rpartition("/")[2]], schema, value)
    mapping = node.get("discriminator", {}).get("mapping", {})
    tagged = mapping.get(value.get("type")) if isinstance(value, dict) else None
    if tagged is not None:
        return _options({"$ref": tagged}, schema, value)
    choices = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    return [option for choice in choices for option in _options(choice, schema, value)] or [node]
