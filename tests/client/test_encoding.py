"""Bodies are sent as the service reads them, whatever types the caller uses."""

import enum
import json
from collections import UserDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime
from types import MappingProxyType
from uuid import UUID

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbwk_client.encoding import decode, encode

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
)


class Device(enum.Enum):
    PHONE = "phone"


@dataclass
class Point:
    x: float


@given(VALUES)
def test_every_value_of_json_arrives_as_it_is(value):
    assert orjson.loads(encode(value)) == value
    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        (0.5, 1),
        range(3),
        deque([1]),
        MappingProxyType({"x": 1}),
        UserDict({"x": 1}),
        Device.PHONE,
        Point(0.1),
        date(2026, 1, 2),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        UUID(int=7),
        np.array([[0.1, 0.2], [3.0, 4.0]]),
        np.arange(3),
        np.float64(0.1),
        np.int32(7),
        np.bool_(True),
        [float("nan"), {"x": np.array([float("inf"), 1.0])}],
    ],
    ids=repr,
)
def test_other_types_are_sent_as_orjson_sends_them(value):
    def default(other):
        return dict(other) if hasattr(other, "keys") else list(other)

    assert encode({"v": value}) == orjson.dumps({"v": value}, default=default, option=orjson.OPT_SERIALIZE_NUMPY)


def test_a_number_of_single_precision_keeps_its_value():
    assert json.loads(encode([np.float32(0.1)])) == [float(np.float32(0.1))]


@pytest.mark.parametrize("value", [object(), {1, 2}, int])
def test_what_is_not_json_is_refused_with_its_type(value):
    with pytest.raises(TypeError, match=type(value).__name__):
        encode({"v": value})


@pytest.mark.parametrize("content", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_read_as_none(content):
    assert decode(content) is None
