"""The outermost ASGI layer: request ids, the limit of bodies, the count of responses, unexpected errors."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.ids import is_id, request_ids
from service.logs import request_id
from service.metrics import Metrics
from service.problems import Problem, TooLarge
from service.responses import problem_answer

_REQUEST_ID = b"x-request-id"
# Responses are about money, and some contain keys: by default no cache stores them and no browser guesses their type.
SECURITY_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
CLIENT_GONE = 499  # as proxies count a client that closed the connection before the response
INTERNAL_ERROR = "an internal error occurred; the log has the details under the id of the request"

log = structlog.get_logger(__name__)


class RequestMiddleware:
    """Wraps the whole application, so that unexpected errors also get a request id and a problem document."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, body_bytes_max: Callable[[str], int]) -> None:
        self._app = app
        self._metrics = metrics
        self._body_bytes_max = body_bytes_max
        self._ids = request_ids()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given, length = _headers_of(scope)
        identity = given if is_id(given) else next(self._ids)
        token = request_id.set(identity)
        outgoing = _ResponseSender(send, identity)
        incoming = _limited_receive(receive, self._body_bytes_max(scope["path"]), length)
        try:
            await self._app(scope, incoming, outgoing)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("request failed", method=scope["method"], route=route_of(scope))
            if outgoing.status:
                raise  # part of the response is sent; closing the connection tells the client that it is incomplete
            await problem_answer(Problem(INTERNAL_ERROR))(scope, receive, outgoing)
        finally:
            self._metrics.count_request(scope["method"], route_of(scope), outgoing.status or CLIENT_GONE)
            request_id.reset(token)


class _ResponseSender:
    """Adds the request id and the security headers to a response and records its status."""

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
            headers += [header for header in SECURITY_HEADERS if header[0] not in given]
        await self._send(message)


def _headers_of(scope: Scope) -> tuple[str, int]:
    """Return the request id and the content length that the client sent; "" and 0 if they are missing or malformed."""
    given, length = "", 0
    for name, value in scope["headers"]:
        if name == _REQUEST_ID:
            given = value.decode("latin-1")
        elif name == b"content-length" and value.isdigit():
            length = int(value[:20])
    return given, length


def _limited_receive(receive: Receive, bytes_max: int, content_length: int) -> Receive:
    """Return a `receive` that refuses a body above the limit, at once if its content length is above it."""
    if content_length > bytes_max:

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
    """Return the path of the route with its parameter names, or "other" if there is no route."""
    route = scope.get("route")
    if route is None and "endpoint" in scope:
        return str(scope["path"])  # a Starlette endpoint, whose path has no parameters
    return getattr(route, "path", "other")
