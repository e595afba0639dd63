"""A running service as commands see it: at CBWK_URL, with the key CBWK_API_KEY."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

if TYPE_CHECKING:
    import httpx

ANSWER_SECONDS_MAX = 30.0

Url = Annotated[str, typer.Option("--url", envvar="CBWK_URL", help="Where the service is.")]
URL_DEFAULT = "http://127.0.0.1:8000"


@contextmanager
def service_at(url: str) -> Iterator["httpx.Client"]:
    """A client of the service; what goes wrong between here and there is one line."""
    import httpx

    key = os.environ.get("CBWK_API_KEY", "").strip()
    if not key:
        raise typer.TyperException("CBWK_API_KEY must have the key to ask with")
    if not key.isascii() or not key.isprintable():
        raise typer.TyperException("CBWK_API_KEY has characters that no key has")
    try:
        with httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=ANSWER_SECONDS_MAX
        ) as client:
            yield client
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise typer.BadParameter(
            "must be http:// or https://, a host and perhaps a port", param_hint="--url"
        ) from error
    except httpx.TransportError as error:
        raise typer.TyperException(f"no answer from {url}: {error or type(error).__name__}") from error


def asked(client: "httpx.Client", method: str, path: str, **request: Any) -> Any:
    """The body of a good answer; any other answer is one line with its status and its reason."""
    answer = client.request(method, path, **request)
    if not answer.is_success:
        raise refusal(answer)
    try:
        return answer.json()
    except ValueError as error:
        raise typer.TyperException(f"what answers at {client.base_url} is not this service") from error


def every(client: "httpx.Client", path: str, **parameters: str) -> Iterator[dict[str, Any]]:
    """The items of a list, page after page."""
    cursor: dict[str, str] = {}
    while True:
        page = asked(client, "GET", path, params=parameters | cursor)
        yield from page["items"]
        if page["next_cursor"] is None:
            return
        cursor = {"cursor": page["next_cursor"]}


def refusal(answer: "httpx.Response") -> typer.TyperException:
    """What an answer that is no good one says."""
    try:
        problem = answer.json()
        said = [problem["detail"], *(f"{error['field']}: {error['message']}" for error in problem.get("errors", ()))]
    except (ValueError, KeyError, TypeError, AttributeError):
        said = [answer.reason_phrase or "no reason was given"]
    return typer.TyperException(f"{answer.status_code}: {'; '.join(said)}")


def part(text: str) -> str:
    """A name as one part of a path.

    >>> part("a/b")
    'a%2Fb'
    """
    return quote(text, safe="")
