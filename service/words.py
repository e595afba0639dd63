"""The words of error messages: names that a caller has sent, what is allowed instead, and where the error is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from service.ids import KEY_PREFIX

# How much of a name is shown; the caller may have made it up.
SHOWN_LENGTH_MAX = 64
# A message lists this many of the allowed names, and compares a wrong name with this many of them.
LISTED_MAX = 25
COMPARED_MAX = 200
# A key that was sent in the wrong place is not repeated: an answer may be logged.
_KEY = re.compile(KEY_PREFIX + r"[A-Za-z0-9_-]{16,}")


def shown(name: str) -> str:
    r"""Returns a name of a caller as part of a message: its beginning, and escapes for what cannot be printed.

    >>> shown("a\n")
    "'a\\n'"
    >>> shown("cbwk_tW9kKzOq2vN4xB7yS1dF")
    'cbwk_…'
    """
    text = _KEY.sub(KEY_PREFIX + "…", name[:SHOWN_LENGTH_MAX])
    return text if text.isprintable() else ascii(text)


def no_such(what: str, name: str, where: str = "", known: Iterable[str] = ()) -> str:
    """Returns the message for an id that does not exist.

    >>> no_such("arm", "baner-a", known=["banner-a", "banner-b"])
    'there is no arm "baner-a"; did you mean "banner-a"?'
    """
    return f'there is no {what} "{shown(name)}"{where}{suggestion(name, known)}'


def not_a_field(name: str, known: Sequence[str]) -> str:
    """Returns the message for a field that an object does not have.

    >>> not_a_field("contxt", ["context", "exclude"])
    'is not a field of this body; its fields are context, exclude; did you mean "context"?'
    """
    return f"is not a field of this body; its fields are {listed(known)}{suggestion(name, known)}"


def allowed(name: str, known: Iterable[str]) -> str:
    """Returns the message for a value that is none of the allowed ones.

    >>> allowed("mobil", ["mobile", "desktop"])
    'must be one of mobile, desktop; did you mean "mobile"?'
    """
    names = list(known)
    return f"must be one of {listed(names)}{suggestion(name, names)}"


def not_among(what: str, name: str, known: Iterable[str]) -> str:
    """Returns the message for a name that is none of those declared.

    >>> not_among("resources", "used", ["usd", "eur"])
    'is none of the resources, which are usd, eur; did you mean "usd"?'
    """
    names = list(known)
    return f"is none of the {what}, which are {listed(names)}{suggestion(name, names)}"


def listed(names: Sequence[str]) -> str:
    """Returns names in a row, of very many the first.

    >>> listed(["a", "b"]), listed([])
    ('a, b', 'none')
    """
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return ", ".join(islice(names, LISTED_MAX)) + more or "none"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns a question for the name that is meant, or nothing if none is similar.

    >>> suggestion("contxt", ["context", "exclude"]), suggestion("x", ["context"])
    ('; did you mean "context"?', '')
    """
    close = _closest(name, tuple(islice(known, COMPARED_MAX))) if len(name) <= SHOWN_LENGTH_MAX else None
    return "" if close is None else f'; did you mean "{close}"?'


@lru_cache(maxsize=1_024)  # the same mistake comes with every request of a program
def _closest(name: str, known: tuple[str, ...]) -> str | None:
    by_lower = {each.lower(): each for each in reversed(known)}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[found[0]] if found else None


def error_at(path: str | Sequence[str | int], message: str) -> dict[str, str]:
    """Returns an entry of `errors`: a place in the body, its path or its names with dots between them, and the message.

    >>> error_at(("context", "a/b"), "is required")
    {'field': 'context.a/b', 'message': 'is required', 'pointer': '/context/a~1b'}
    >>> error_at((), "must be an object")
    {'field': 'body', 'message': 'must be an object', 'pointer': ''}
    """
    parts = [shown(str(part)) for part in (path.split(".") if isinstance(path, str) else path)]
    pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
    return {"field": ".".join(parts) or "body", "message": message, "pointer": pointer}
