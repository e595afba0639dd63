"""Where both clients meet httpx: how one is set up, and what its exceptions and answers amount to."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import httpx

from service.client.conversation import Failure, Reply, Send
from service.client.terms import Terms

# Below the five seconds after which uvicorn closes a connection, so that it is not closed while it is being used.
_IDLE_SECONDS_MAX = 3.0
# A wrong or lying Retry-After must not stop deliveries for long.
_RETRY_AFTER_SECONDS_MAX = 10.0
# With these the request has not left.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True)
class Address:
    """Where the service is, and as whom it is asked."""

    url: str
    key: str = field(repr=False)

    def __post_init__(self) -> None:
        parsed = httpx.URL(self.url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"url must be http:// or https://, a host and perhaps a port, got {self.url!r}")
        if not self.key or not self.key.isascii() or not self.key.isprintable():
            raise ValueError("key must be the text of an API key: printable ASCII")  # which, is nobody's business

    @cached_property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}

    def request(self, step: Send) -> httpx.Request:
        """What is sent."""
        url = _parsed(self.url.rstrip("/") + step.path)
        # httpx asks the mapping for each phase's timeout, so all phases together have the time left.
        extensions = {"timeout": step.time_left}
        return httpx.Request(
            step.method,
            url,
            params=step.query or None,
            headers=self._headers,
            content=step.content,
            extensions=extensions,
        )


@lru_cache(maxsize=256)
def _parsed(url: str) -> httpx.URL:
    return httpx.URL(url)


def arguments(terms: Terms) -> dict[str, Any]:
    """What a transport of httpx is made with.

    The clients use transports and not httpx's own clients: cookies, redirects and the like are no use here and a third
    of a request's time.
    """
    return {
        # No proxies and no .netrc: their surprises take longer than a decision.
        "trust_env": False,
        "limits": httpx.Limits(
            max_connections=terms.connections_max,
            max_keepalive_connections=terms.connections_max,
            keepalive_expiry=_IDLE_SECONDS_MAX,
        ),
    }


def reply(response: httpx.Response) -> Reply:
    """An answer, read to its end."""
    replayed = response.headers.get("Idempotent-Replayed") == "true"
    return Reply(response.status_code, response.content, replayed, _seconds(response.headers.get("Retry-After")))


def _seconds(retry_after: str | None) -> float:
    """A number of seconds; the header's other form, a date, counts as none.

    >>> _seconds("1"), _seconds(None), _seconds("Wed, 21 Oct 2026 07:28:00 GMT")
    (1.0, 0.0, 0.0)
    """
    if retry_after is None or not retry_after.isdecimal():
        return 0.0
    return min(float(retry_after), _RETRY_AFTER_SECONDS_MAX)


def failure(error: httpx.RequestError) -> Failure:
    """What a request without an answer amounts to."""
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Failure(detail, not isinstance(error, _NOT_SENT), isinstance(error, httpx.TimeoutException))
