"""The outermost ASGI layer: request ids, the limit of bodies, the count of responses, unexpected errors."""

from collections.abc import Callable
from time import perf_counter

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access_log import AccessLog
from service.ids import is_id, request_ids
from service.logs import request_id
from service.metrics import Metrics
from service.problems import Problem, TooLarge
from service.responses import problem_answer

_REQUEST_ID = "x-request-id"
# Responses are about money, and some contain keys: by default no cache stores them and no browser guesses their type.
SECURITY_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
CLIENT_GONE = 499  # as proxies count a client that closed the connection before the response
INTERNAL_ERROR = "an internal error occurred; the log has the details under the id of the request"

log = structlog.get_logger(__name__)


class RequestMiddleware:
    """Wraps the whole application, so that unexpected errors also get a request id and a problem document."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        body_bytes_max: Callable[[str], int],
        access_log: AccessLog | None = None,
    ) -> None:
        self._app = app
        self._metrics, self._access_log = metrics, access_log
        self._body_bytes_max = body_bytes_max
        self._ids = request_ids()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = ["", *headers.getlist(_REQUEST_ID)][-1]
        identity = given if is_id(given) else next(self._ids)
        token = request_id.set(identity)
        status, started = 0, perf_counter()

        async def send_more(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                outgoing = MutableHeaders(scope=message)
                outgoing[_REQUEST_ID] = identity
                for name, value in SECURITY_HEADERS:
                    outgoing.setdefault(name.decode(), value.decode())
            await send(message)

        try:
            bytes_max = self._body_bytes_max(scope["path"])
            await self._app(scope, _limited(receive, bytes_max, headers.get("content-length", "")), send_more)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("request failed", method=scope["method"], route=route_of(scope))
            if status:
                raise  # part of the response is sent; closing the connection tells the client that it is incomplete
            await problem_answer(Problem(INTERNAL_ERROR))(scope, receive, send_more)
        finally:
            route, status = route_of(scope), status or CLIENT_GONE
            self._metrics.count_request(scope["method"], route, status)
            if self._access_log is not None:
                self._access_log.add(identity, scope["method"], route, status, perf_counter() - started)
            request_id.reset(token)


def _limited(receive: Receive, bytes_max: int, content_length: str) -> Receive:
    """Return a `receive` that refuses a body above the limit, at once if its content length is above it."""
    declared = int(content_length[:20]) if content_length.isdecimal() else 0
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        message = await receive() if declared <= bytes_max else {}
        taken += len(message.get("body", b""))
        if max(declared, taken) > bytes_max:
            raise TooLarge(f"the body may have at most {bytes_max} bytes")
        return message

    return receive_some


def route_of(scope: Scope) -> str:
    """Return the path of the route with its parameter names, or "other" if there is no route."""
    route = scope.get("route")
    if route is None and "endpoint" in scope:
        return str(scope["path"])  # a Starlette endpoint, whose path has no parameters
    return getattr(route, "path", "other")
