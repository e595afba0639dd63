"""What surrounds every request: its id, the limit of its body, the count of its answer, and the last word on errors.

Plain ASGI, outside everything else of the application: what goes wrong inside still gets an id and a problem document.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.ids import RequestIds, is_id
from service.logs import request_id
from service.metrics import Metrics
from service.problems import Problem, TooLarge
from service.responses import problem_answer

_REQUEST_ID = b"x-request-id"
# Answers are about money, and some carry keys: unless one says otherwise, it is not kept and not guessed at.
CAUTIONS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
# What proxies call an answer that nobody was there to take.
CLIENT_GONE = 499
OURS = "something went wrong on our side; the log knows what, by the request's id"

log = structlog.get_logger(__name__)


class Envelope:
    """The outermost part of the application."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, body_bytes_max: Callable[[str], int]) -> None:
        self._app = app
        self._metrics = metrics
        self._body_bytes_max = body_bytes_max
        self._ids = RequestIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given, length = _declared(scope)
        identity = given if is_id(given) else self._ids.next()
        token = request_id.set(identity)
        outgoing = _Outgoing(send, identity)
        incoming = _limited(receive, self._body_bytes_max(scope["path"]), length)
        try:
            await self._app(scope, incoming, outgoing)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("request failed", method=scope["method"], route=route_of(scope))
            if outgoing.status:
                raise  # too late for an answer: the connection ends in the middle, which a client can tell
            await problem_answer(Problem(OURS))(scope, receive, outgoing)
        finally:
            self._metrics.count_request(scope["method"], route_of(scope), outgoing.status or CLIENT_GONE)
            request_id.reset(token)


class _Outgoing:
    """Sends on, with the request's id among the headers, and remembers the status."""

    __slots__ = ("_identity", "_send", "status")

    def __init__(self, send: Send, identity: str) -> None:
        self._send = send
        self._identity = identity
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"]
            given = [name for name, _ in headers]
            headers.append((_REQUEST_ID, self._identity.encode()))
            headers += [caution for caution in CAUTIONS if caution[0] not in given]
        await self._send(message)


def _declared(scope: Scope) -> tuple[str, int]:
    """The request's id and the length of its body, as the client says; nothing and 0 where it says nothing useful."""
    given, length = "", 0
    for name, value in scope["headers"]:
        if name == _REQUEST_ID:
            given = value.decode("latin-1")
        elif name == b"content-length" and value.isdigit():
            length = int(value[:20])
    return given, length


def _limited(receive: Receive, bytes_max: int, declared: int) -> Receive:
    """Receives as before, up to the limit; nobody is waited for who says beforehand that it will be too much."""
    if declared > bytes_max:

        async def refuse() -> Message:
            raise _too_large(bytes_max)

        return refuse
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > bytes_max:
            raise _too_large(bytes_max)
        return message

    return receive_some


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"the body may have at most {bytes_max} bytes")


def route_of(scope: Scope) -> str:
    """The route's own path, with names for its parts; one name for everything that is no route."""
    route = scope.get("route")
    if route is None and "endpoint" in scope:
        return str(scope["path"])  # plain endpoints of Starlette, whose paths have no parts with a name
    return getattr(route, "path", "other")
