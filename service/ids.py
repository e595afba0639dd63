"""The form of identifiers, and new ones."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from itertools import count

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$"
_ID = re.compile(ID_PATTERN.strip("^$"))
KEY_PREFIX = "cbwk_"  # of API keys: people, and tools that search for leaked secrets, recognise them by it
NOT_AN_ID = "must have 1 to 128 letters, digits and . _ : ~ -, and begin with a letter or digit"


def is_id(text: str) -> bool:
    r"""Return whether the text is a valid id of a campaign, an arm, a resource, a decision, a key or a request.

    >>> is_id("summer-sale"), is_id("-x"), is_id("x\n")
    (True, False, False)
    """
    return _ID.fullmatch(text) is not None


def request_ids() -> Iterator[str]:
    """Return new ids for requests that were sent without one: a random prefix and a number, cheaper than a UUID."""
    return map(f"{secrets.token_hex(6)}-{{:x}}".format, count(1))


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
