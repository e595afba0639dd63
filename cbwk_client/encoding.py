"""JSON of request and response bodies, with the standard library only."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, time
from enum import Enum
from typing import Any
from uuid import UUID


def encode(body: Any) -> bytes:
    """Return the body as compact UTF-8 JSON; floats keep every digit, and NaN and infinities become null.

    The service refuses a null where it needs a number, and names the field.

    >>> encode({"context": (0.1, float("nan")), "site": "café"}).decode()
    '{"context":[0.1,null],"site":"café"}'
    """
    try:
        text = _dumps(body)
    except ValueError:  # a number that JSON does not have
        text = _dumps(_with_null_for_nan(body))
    return text.encode()


def _dumps(body: Any) -> str:
    return json.dumps(body, default=_json_value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _json_value(value: Any) -> Any:
    """Return a value of a type that `json` does not know as one of a type that it knows."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "tolist"):  # arrays and scalars of numpy
        return value.tolist()
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent as JSON")


def _with_null_for_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, dict):
        return {name: _with_null_for_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_null_for_nan(item) for item in value]
    return _with_null_for_nan(_json_value(value))


def decode(content: bytes) -> Any:
    """Return the value of a JSON document, or None if the content is not JSON; the service never answers `null`."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
