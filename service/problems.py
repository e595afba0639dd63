"""Errors of the interface: RFC 9457 problem documents, one class per status, described here.

Problem
├── BadRequest 400            not JSON, not UTF-8
├── Unauthorized 401          no key, or a key that is not valid
├── Forbidden 403             the role or the campaigns of the key do not allow this
├── NotFound 404              no such campaign, decision, key, path
├── MethodNotAllowed 405      the path exists but does not accept the method
├── Conflict 409              contradicts stored data: another body for an id, a budget below the spent amount
├── TooLarge 413              the body exceeds the limit
├── Invalid 422               a field has a value that is not allowed; `errors` names the fields
├── TooManyRequests 429       the key's requests_per_second are used up; nothing was done
├── HeadTooLarge 431          the head of the request exceeds the limit
├── Unavailable 503           the database does not answer, the queue is full, the deadline passed; try again
└── UnknownRules 503          a newer version of the service created the campaign; other campaigns are not affected
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from service.words import error_at

TYPE_PREFIX = "urn:cbwk:problem:"
# The page that says what each kind means and what to do; the kind is the fragment.
HELP_PATH = "/docs/problems"


class Problem(Exception):  # noqa: N818 - the term of RFC 9457
    """An error response; its texts never repeat a value of the request."""

    status = 500
    kind = "internal"
    title = "Internal error"

    def __init__(self, detail: str, *, kind: str | None = None, **extensions: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.kind = kind or type(self).kind
        self.extensions = extensions

    def document(self) -> dict[str, Any]:
        """Return the body of the response.

        >>> NotFound("there is no such campaign", kind="campaign-not-found").document()["type"]
        'urn:cbwk:problem:campaign-not-found'
        """
        head = {"type": TYPE_PREFIX + self.kind, "title": self.title, "status": self.status, "detail": self.detail}
        return {**head, "help": f"{HELP_PATH}#{self.kind}", **self.extensions}


class BadRequest(Problem):
    status, kind, title = 400, "bad-request", "The body cannot be read"


class Unauthorized(Problem):
    status, kind, title = 401, "unauthorized", "A valid API key is needed"


class Forbidden(Problem):
    status, kind, title = 403, "forbidden", "The key does not allow this"


class NotFound(Problem):
    status, kind, title = 404, "not-found", "There is no such thing"


class MethodNotAllowed(Problem):
    status, kind, title = 405, "method-not-allowed", "The path does not take this method"


class Conflict(Problem):
    status, kind, title = 409, "conflict", "This contradicts what is there"


class TooLarge(Problem):
    status, kind, title = 413, "too-large", "The body is too large"


class Invalid(Problem):
    status, kind, title = 422, "invalid", "A field has a value it cannot have"


class TooManyRequests(Problem):
    status, kind, title = 429, "too-many-requests", "The key has made too many requests"

    def __init__(self, per_second: float, retry_after_seconds: int) -> None:
        super().__init__(f"the key may make {per_second:g} requests a second; nothing was done, try again later")
        self.retry_after_seconds = retry_after_seconds


class HeadTooLarge(Problem):
    status, kind, title = 431, "head-too-large", "The head of the request is too large"


class Unavailable(Problem):
    status, kind, title = 503, "unavailable", "Not available now"

    retry_after_seconds = 1


class UnknownRules(Problem):
    status, kind, title = 503, "rules-unknown", "The rules of the campaign are not known"

    retry_after_seconds = 10

    def __init__(self, version: object) -> None:
        super().__init__(f"the campaign has version {version} of the rules, which this version of cbwk does not know")


class Misfit(ValueError):  # noqa: N818 - it becomes an entry of `errors`
    """A field that does not fit another one."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field
        self.message = message

    @property
    def error(self) -> dict[str, str]:
        """Its entry in the `errors` of a problem."""
        return error_at(self.field, self.message)


@contextmanager
def misfit_of(field: str) -> Iterator[None]:
    """Turns an error of the library into a Misfit of the field, without the value that it quotes."""
    try:
        yield
    except ValueError as error:
        raise Misfit(field, f"cannot be used: {without_values(str(error))}") from None


def without_values(message: str) -> str:
    """Returns an error message of the library up to the value that it quotes.

    >>> without_values("preset must be one of ['paper'], got 'x'")
    "preset must be one of ['paper']"
    """
    return message.partition(", got ")[0]
