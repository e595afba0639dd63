"""The form of identifiers, and new ones."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from itertools import count

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$"
_ID = re.compile(ID_PATTERN.strip("^$"))
_IDS = re.compile(rf"{_ID.pattern}(?:\n{_ID.pattern})*")
match_id = _ID.fullmatch
NOT_AN_ID = f"must match {ID_PATTERN}"


def is_id(text: str) -> bool:
    r"""Return whether the text is a valid id of a campaign, an arm, a resource, a decision, a key or a request.

    >>> is_id("summer-sale"), is_id("-x"), is_id("x\n")
    (True, False, False)
    """
    return match_id(text) is not None


def check_ids(texts: Sequence[str]) -> None:
    r"""Raise a ValueError unless every text is an id: one match for all takes half the time.

    >>> check_ids(["summer-sale", "x"])
    >>> check_ids(["x\ny"])
    Traceback (most recent call last):
    ValueError: must match ^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$
    """
    lines = "\n".join(texts)
    if texts and (lines.count("\n") >= len(texts) or _IDS.fullmatch(lines) is None):
        raise ValueError(NOT_AN_ID)


class RequestIds:
    """Ids of requests that were sent without one.

    The first part is unique to the process, the second within it; this is much cheaper than a UUID.
    """

    def __init__(self) -> None:
        self._process, self._numbers = secrets.token_hex(6), count(1)

    def next(self) -> str:
        """Return a new id."""
        return f"{self._process}-{next(self._numbers):x}"


def uuid7(now_micros: int) -> str:
    """Return a UUIDv7: 48 bits of milliseconds, then random bits.

    >>> uuid7(1_700_000_000_000_000)[14]
    '7'
    """
    value = (now_micros // 1000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
