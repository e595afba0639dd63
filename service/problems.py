"""Errors of the interface: RFC 9457 problem documents, one class per kind, drawn here.

Problem
├── BadRequest 400            not JSON, not UTF-8
├── Unauthorized 401          no key, or one that is not valid
├── Forbidden 403             the key's role or campaigns do not allow this
├── NotFound 404              no such campaign, decision, key, path
├── MethodNotAllowed 405
├── Conflict 409              contradicts what is there: another body for an id, a budget below what is spent
├── TooLarge 413              the body is over the limit
├── Invalid 422               a field has a value it cannot have; `errors` names the fields
├── Unavailable 503           the database is away, the queue is full, the deadline has passed; try again
└── UnknownRules 503          a newer version of the service made the campaign; other campaigns go on
"""

from __future__ import annotations

from typing import Any

TYPE_PREFIX = "urn:cbwk:problem:"


class Problem(Exception):  # noqa: N818 - the standard's word for it
    """An answer that says what was asked, what was found, and never repeats a value it was sent."""

    status = 500
    kind = "internal"
    title = "Internal error"

    def __init__(self, detail: str, *, kind: str | None = None, **extensions: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.kind = kind or type(self).kind
        self.extensions = extensions

    def document(self) -> dict[str, Any]:
        """The body of the answer.

        >>> NotFound("there is no such campaign", kind="campaign-not-found").document()["type"]
        'urn:cbwk:problem:campaign-not-found'
        """
        head = {"type": TYPE_PREFIX + self.kind, "title": self.title, "status": self.status, "detail": self.detail}
        return head | self.extensions


class BadRequest(Problem):
    """The body cannot be read at all."""

    status, kind, title = 400, "bad-request", "The body cannot be read"


class Unauthorized(Problem):
    """No valid key."""

    status, kind, title = 401, "unauthorized", "A valid API key is needed"


class Forbidden(Problem):
    """A valid key that may not do this."""

    status, kind, title = 403, "forbidden", "The key does not allow this"


class NotFound(Problem):
    """What was named is not there."""

    status, kind, title = 404, "not-found", "There is no such thing"


class MethodNotAllowed(Problem):
    """The path is right, the method is not."""

    status, kind, title = 405, "method-not-allowed", "The path does not take this method"


class Conflict(Problem):
    """It contradicts what is there."""

    status, kind, title = 409, "conflict", "This contradicts what is there"


class TooLarge(Problem):
    """More than the limit."""

    status, kind, title = 413, "too-large", "The body is too large"


class Invalid(Problem):
    """A field has a value it cannot have."""

    status, kind, title = 422, "invalid", "A field has a value it cannot have"


class Unavailable(Problem):
    """Not now."""

    status, kind, title = 503, "unavailable", "Not available now"

    retry_after_seconds = 1


class UnknownRules(Problem):
    """The campaign decides by a version of the rules that this process does not know."""

    status, kind, title = 503, "rules-unknown", "The rules of the campaign are not known"

    retry_after_seconds = 10

    def __init__(self, version: object) -> None:
        super().__init__(f"the campaign has version {version} of the rules, which this version of cbwk does not know")
