"""A running service as commands see it: at CBWK_URL, with the key CBWK_API_KEY."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

if TYPE_CHECKING:
    import httpx

RESPONSE_SECONDS_MAX = 30.0

Url = Annotated[str, typer.Option("--url", envvar="CBWK_URL", help="Address of the service.")]
URL_DEFAULT = "http://127.0.0.1:8000"


@contextmanager
def service_client(url: str) -> Iterator["httpx.Client"]:
    """Opens a client of the service; reports a failed connection as one line."""
    import httpx

    key = os.environ.get("CBWK_API_KEY", "").strip()
    if not key:
        raise typer.TyperException("CBWK_API_KEY must be set to an API key")
    if not key.isascii() or not key.isprintable():
        raise typer.TyperException("CBWK_API_KEY is not an API key: it contains characters that no key contains")
    headers = {"Authorization": f"Bearer {key}"}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=RESPONSE_SECONDS_MAX) as client:
            yield client
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise typer.BadParameter(
            "must be http:// or https://, a host and optionally a port", param_hint="--url"
        ) from error
    except httpx.TransportError as error:
        raise typer.TyperException(f"no answer from {url}: {error or type(error).__name__}") from error


def call(client: "httpx.Client", method: str, path: str, **request: Any) -> Any:
    """Returns the body of a successful response; any other response becomes one line with its status and reason."""
    response = require_success(client.request(method, path, **request))
    try:
        return response.json()
    except ValueError as error:
        raise typer.TyperException(f"the server at {client.base_url} is not this service") from error


def list_all(client: "httpx.Client", path: str, **parameters: str) -> Iterator[dict[str, Any]]:
    """Yields the items of a list, page after page."""
    cursor: dict[str, str] = {}
    while True:
        page = call(client, "GET", path, params=parameters | cursor)
        yield from page["items"]
        if page["next_cursor"] is None:
            return
        cursor = {"cursor": page["next_cursor"]}


def require_success(response: "httpx.Response") -> "httpx.Response":
    """Returns the response if it is a success; raises one line with its status and reason otherwise."""
    if response.is_success:
        return response
    try:
        problem = response.json()
        reasons = [problem["detail"], *(f"{error['field']}: {error['message']}" for error in problem.get("errors", ()))]
    except (ValueError, KeyError, TypeError, AttributeError):
        reasons = [response.reason_phrase or "no reason was given"]
    raise typer.TyperException(f"{response.status_code}: {'; '.join(reasons)}")


def path_segment(text: str) -> str:
    """Returns a name as one segment of a path.

    >>> path_segment("a/b")
    'a%2Fb'
    """
    return quote(text, safe="")
