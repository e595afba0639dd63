"""What both clients need of httpx: requests, the options of a transport, and results from responses and exceptions."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import httpx

from cbwk_client.steps import Failure, Reply, Send
from cbwk_client.terms import Terms

# uvicorn closes an idle connection after five seconds; the client must not start a request at that moment.
_IDLE_SECONDS_MAX = 3.0
# A wrong Retry-After must not stop deliveries for long.
_RETRY_AFTER_SECONDS_MAX = 10.0
_HEADER_VALUE = re.compile(r"[!-~]+")
# After these errors the request was certainly not sent.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True)
class Access:
    """The API key, and the addresses that it is sent to."""

    key: str = field(repr=False)
    urls: Collection[str]

    def __post_init__(self) -> None:
        for url in self.urls:
            parsed = httpx.URL(url)
            if parsed.scheme not in ("http", "https") or not parsed.host:
                raise ValueError(f"url must be http:// or https://, a host and perhaps a port, got {url!r}")
        if not self.key or not self.key.isascii() or not self.key.isprintable():
            raise ValueError("key must be the text of an API key: printable ASCII")  # the message must not show the key

    @cached_property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}

    def request(self, step: Send) -> httpx.Request:
        """Return the HTTP request of a step."""
        url = _parsed(step.url + step.path)
        # What is no id is refused for its body; it might not be a header either.
        headers = self._headers
        if step.campaign_id is not None and _HEADER_VALUE.fullmatch(step.campaign_id):
            headers = {**headers, "X-Campaign-Id": step.campaign_id}
        # httpcore reads the timeout of each phase from this object, so that the time left covers all phases together.
        extensions = {"timeout": step.time_left}
        return httpx.Request(
            step.method,
            url,
            params=step.query or None,
            headers=headers,
            content=step.content,
            extensions=extensions,
        )


@lru_cache(maxsize=256)
def _parsed(url: str) -> httpx.URL:
    return httpx.URL(url)


def options(terms: Terms) -> dict[str, Any]:
    """Return the arguments of an httpx transport.

    The clients use transports instead of httpx's clients, whose cookies and redirects take a third of a request's time.
    """
    return {
        # No proxies and no .netrc: a proxy may take longer than a decision.
        "trust_env": False,
        "limits": httpx.Limits(
            max_connections=terms.connections_max,
            max_keepalive_connections=terms.connections_max,
            keepalive_expiry=_IDLE_SECONDS_MAX,
        ),
    }


def reply(response: httpx.Response) -> Reply:
    """Return the reply of a response that has been read completely."""
    replayed = response.headers.get("Idempotent-Replayed") == "true"
    return Reply(response.status_code, response.content, replayed, _seconds(response.headers.get("Retry-After")))


def _seconds(retry_after: str | None) -> float:
    """Return the seconds of a Retry-After header; a date counts as 0.

    >>> _seconds("1"), _seconds(None), _seconds("Wed, 21 Oct 2026 07:28:00 GMT")
    (1.0, 0.0, 0.0)
    """
    if retry_after is None or not retry_after.isdecimal():
        return 0.0
    return min(float(retry_after), _RETRY_AFTER_SECONDS_MAX)


def failure(error: httpx.RequestError) -> Failure:
    """Return the failure of a request without a response."""
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Failure(detail, not isinstance(error, _NOT_SENT), isinstance(error, httpx.TimeoutException))
