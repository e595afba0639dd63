"""How identifiers look."""

from __future__ import annotations

import re

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$"
_ID = re.compile(ID_PATTERN.strip("^$"))


def is_id(text: str) -> bool:
    r"""Whether the text may name a campaign, an arm, a resource, a decision, a key or a request.

    >>> is_id("summer-sale"), is_id("-x"), is_id("x\n")
    (True, False, False)
    """
    return _ID.fullmatch(text) is not None
