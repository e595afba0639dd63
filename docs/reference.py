"""The reference of the interface: `.venv/bin/python docs/reference.py` writes docs/reference.md from OpenAPI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service.app import create_app
from service.ids import ID_PATTERN
from service.money import AMOUNT_MAX

FILE = Path(__file__).with_suffix(".md")
HEAD = """\
# Reference

Every endpoint, and every field of every body. `docs/reference.py` makes this page from the OpenAPI document that the
service answers at `/openapi.json`, and a test compares both; `/docs` shows the same with examples.
[FAQ](faq.md#problems) lists every type of problem, [exports](exports.md) every column of an export, and the
[glossary](glossary.md) explains the words.

A key is sent as `Authorization: Bearer …` or `X-API-Key: …`. An amount is a number up to 9,000,000,000 with at most six
decimals. A moment is RFC 3339 text, in answers always in UTC. An id has 1 to 128 letters, digits and `. _ : ~ -`, and
begins with a letter or a digit. A list has pages of `items`; pass its `next_cursor` as `cursor` to get the next one.
Later versions may add fields to answers; a field of a request that is not listed here is 422.
"""
LIMIT_MAX = 1e300  # a number may have any value below it
PROBLEM = "application/problem+json"


def reference() -> str:
    """The whole page."""
    document = create_app().openapi()
    lines = [*HEAD.splitlines(), ""]
    schemas = document["components"]["schemas"]
    inline = {name: schemas.pop(name) for name in _requests(document)}
    for tag in document["tags"]:
        lines += [f"## {tag['name'].capitalize()}", "", tag["description"], ""]
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if operation["tags"] == [tag["name"]]:
                    lines += _operation(inline, method, path, operation)
    lines += ["## Bodies", "", "Answers, and the parts of requests and answers, by name.", ""]
    for name, schema in sorted(schemas.items()):
        lines += [f"### {name}", "", schema["description"], "", *_fields(schema)]
    return "\n".join(lines).rstrip() + "\n"


def _requests(document: dict[str, Any]) -> set[str]:
    """The bodies that exactly one operation takes, which its section shows."""
    text = json.dumps(document)
    names = [_name(part.partition(chr(34))[0]) for part in text.split('"$ref": "')[1:]]
    taken = [
        _name(operation["requestBody"]["content"]["application/json"]["schema"]["$ref"])
        for operations in document["paths"].values()
        for operation in operations.values()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    ]
    return {name for name in taken if names.count(name) == 1}


def _operation(inline: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    """The section of one operation, with the fields of its body if it is one of these."""
    yield from (f"### {method.upper()} {path}", "", operation["description"], "")
    responses = operation["responses"]
    good = next(status for status in responses if status.startswith("2"))
    content = responses[good]["content"]
    answers = [_type(media["schema"]) if kind == "application/json" else f"`{kind}`" for kind, media in content.items()]
    problems = ", ".join(sorted(status for status in responses if PROBLEM in responses[status]["content"]))
    yield f"- Key: {_key(operation)}"
    yield f"- Answer: {good}, {' or '.join(answers)}"
    yield f"- Problems: {problems or 'none'}"
    yield ""
    if operation.get("parameters"):
        yield from ("| parameter | in | type | meaning |", "|---|---|---|---|")
        for one in operation["parameters"]:
            meaning = one["description"] + _default(one["schema"])
            yield f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {meaning} |"
        yield ""
    body = operation.get("requestBody", {"content": {}})["content"].get("application/json")
    if body and (name := _name(body["schema"]["$ref"])) in inline:
        yield from _fields(inline[name])
    elif body:
        yield from (f"The body is a {_type(body['schema'])}.", "")
    elif "requestBody" in operation:
        yield from (f"The body is `{next(iter(operation['requestBody']['content']))}`.", "")


def _key(operation: dict[str, Any]) -> str:
    if not operation["security"]:
        return "none is needed"
    (role,) = operation["security"][0]["bearer"]
    limit = ", not limited to campaigns" if operation.get("x-unlimited-key") else ""
    return f"`{role}`{limit}"


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    """The table of the fields of a body. Those that a request must have are marked."""
    must = schema.get("required", ()) if schema.get("additionalProperties") is False else ()
    if not schema.get("properties"):
        return
    yield from ("| field | type | meaning |", "|---|---|---|")
    for name, field in schema["properties"].items():
        needed = " (required)" if name in must else ""
        yield f"| `{name}`{needed} | {_type(field)} | {field['description']}{_default(field)} |"
    yield ""


def _default(field: dict[str, Any]) -> str:
    """The default of a field that has one."""
    value = field.get("default")
    if value is None or value == [] or isinstance(value, dict):  # the fields of an object have defaults of their own
        return ""
    return f"; default `{json.dumps(value, ensure_ascii=False).strip(chr(34))}`"


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]


def _type(schema: dict[str, Any]) -> str:
    """The type of a value in words, with its limits."""
    if "$ref" in schema:
        name = _name(schema["$ref"])
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema.get("anyOf") or schema["oneOf"])))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"`{value if isinstance(value, str) else json.dumps(value)}`" for value in values)
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(schema['items'])}{_range(schema, 'minItems', 'maxItems', ' items')}"
    if kind == "object":
        inner = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
        of = f" of {_type(inner)}" if isinstance(inner, dict) and inner else ""
        return f"object{of}{_range(schema, 'minProperties', 'maxProperties', ' entries')}"
    if kind == "string":
        if schema.get("pattern") == ID_PATTERN:
            return "id"
        form = "moment" if schema.get("format") == "date-time" else "string"
        return form + _range(schema, "minLength", "maxLength", " characters")
    if kind == "number" and schema.get("maximum") == AMOUNT_MAX:
        return "amount, above 0" if schema.get("exclusiveMinimum") == 0 else "amount"
    if kind in ("number", "integer"):
        return kind + _range(schema, "minimum", "maximum")
    return {"boolean": "true or false", "null": "null"}.get(str(kind), "any value")


def _range(schema: dict[str, Any], low_name: str, high_name: str, unit: str = "") -> str:
    """The limits of a number, a length or a count."""
    low, high = schema.get(low_name), schema.get(high_name)
    said = []
    if "exclusiveMinimum" in schema:
        said.append(f"above {schema['exclusiveMinimum']:,}")
    elif low is not None and low > -LIMIT_MAX:
        said.append(f"at least {low:,}")
    if "exclusiveMaximum" in schema:
        said.append(f"below {schema['exclusiveMaximum']:,}")
    elif high is not None and high < LIMIT_MAX:
        said.append(f"at most {high:,}")
    return f" ({', '.join(said)}{unit})" if said else ""


if __name__ == "__main__":
    FILE.write_text(reference(), encoding="utf-8")
