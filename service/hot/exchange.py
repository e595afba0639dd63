"""The short way to the hot endpoints: from the bytes of a request to the bytes of its answer without an ASGI task.

It takes requests of HTTP/1.1, one after the other, with a body of declared length and a cached key. Everything else
takes the long way, through uvicorn and FastAPI, and gets the same answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus
from time import perf_counter
from typing import Any, NamedTuple

import structlog
from starlette.responses import Response

from service.auth import checked_role, key_digest
from service.dependencies import DEADLINE_PASSED, Components
from service.engine import Engine, answers_of
from service.engine.commands import Item
from service.hot.endpoints import ROLE, Submission
from service.ids import RequestIds, is_id
from service.logs import request_id
from service.metrics import Metrics
from service.middleware import CLIENT_GONE, INTERNAL_ERROR, SECURITY_HEADERS
from service.openapi import HotRoute
from service.problems import Problem, Unavailable
from service.responses import problem_answer

Headers = Sequence[tuple[bytes, bytes]]

_STATUS_LINES = {int(status): b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
_CAUTIONS = b"".join(b"%b: %b\r\n" % caution for caution in SECURITY_HEADERS)

log = structlog.get_logger(__name__)


class Head(NamedTuple):
    """What the headers of a request say."""

    route: HotRoute
    key: bytes | None  # its digest
    request_id: str


class HotPath:
    """The short way of one application."""

    def __init__(
        self, parts: Components, routes: Sequence[HotRoute], metrics: Metrics, body_bytes_max: Callable[[str], int]
    ) -> None:
        self._parts = parts
        self._routes = {route.path.encode(): (route, body_bytes_max(route.path)) for route in routes}
        self.metrics = metrics
        self.under_way = 0
        self._ids = RequestIds()
        self._waiting: deque[Exchange] = deque()  # in the order of their deadlines; the answered ones leave in turn
        self._timer: Any = None  # for the first of them
        self._common: tuple[Headers, bytes] = ((), b"")

    def is_full(self, tasks: int) -> bool:
        """Whether the engine takes no more beside that many ASGI tasks and the exchanges under way."""
        engine: Engine | None = self._parts.engine
        return engine is not None and engine.is_full(tasks + self.under_way)

    def head(self, method: bytes, target: bytes, headers: Headers) -> Head | None:
        """What the headers say; None if the request must take the long way."""
        route, bytes_max = self._routes.get(target, (None, 0))
        if route is None or method != b"POST":
            return None
        length, bearer, other, given = -1, b"", b"", b""
        for name, value in headers:
            if name == b"authorization" and not bearer:
                bearer = value
            elif name == b"content-length" and value.isdigit():
                length = int(value[:20])
            elif name == b"x-api-key":
                other = value
            elif name == b"x-request-id":
                given = value
            elif name in (b"transfer-encoding", b"expect", b"upgrade", b"content-encoding"):
                return None
        if not 0 <= length <= bytes_max or other or bearer[:7] != b"Bearer ":
            return None
        key = bearer[7:].decode("latin-1").strip()
        if not key:
            return None
        identity = given.decode("latin-1")
        return Head(route, key_digest(key), identity if identity and is_id(identity) else self._ids.next())

    def start(self, connection: Any, head: Head, body: bytes) -> Exchange | None:
        """Begin to answer, if that needs nothing but the engine; None if the request must take the long way."""
        engine: Engine | None = self._parts.engine
        keyring = self._parts.keyring
        if engine is None or keyring is None:
            return None
        certain, principal = keyring.remembered_by(head.key)
        if not certain:
            return None
        exchange = Exchange(self, connection, head)
        try:
            submission = head.route.parse(checked_role(principal, ROLE), body)
            exchange.submit(engine, submission)
        except Exception as error:  # noqa: BLE001 - the client gets an answer, and the log has what is our fault
            exchange.fail(error)
        return exchange

    def add(self, exchange: Exchange) -> None:
        """Answer an exchange at its deadline at the latest. All have the same time, so they are due in order."""
        loop: asyncio.AbstractEventLoop = exchange.connection.loop
        exchange.due = loop.time() + self._parts.settings.request_deadline_ms / 1000
        self._waiting.append(exchange)
        if self._timer is None:
            self._timer = loop.call_at(exchange.due, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        while self._waiting and (self._waiting[0].response_complete or self._waiting[0].due <= now):
            exchange = self._waiting.popleft()
            if not exchange.response_complete:
                exchange.give_up()
        if self._waiting:
            self._timer = loop.call_at(self._waiting[0].due, self._expire, loop)

    def finish(self, status: int, route: HotRoute) -> None:
        """Count an exchange that has ended; forget the answered ones that stand first."""
        self.under_way -= 1
        while self._waiting and self._waiting[0].response_complete:
            self._waiting.popleft()
        self.metrics.count_request("POST", route.path, status)

    def common(self, headers: Headers) -> bytes:
        """The lines of uvicorn's own headers, which change every second."""
        known, lines = self._common
        if known is not headers:
            lines = b"".join([b"%b: %b\r\n" % header for header in headers])
            self._common = headers, lines
        return lines


class _NoEvent:
    """Stands for the event that uvicorn sets when more of a request comes; the request is complete."""

    def set(self) -> None:
        """Do nothing."""


class Exchange:
    """A request under way. To uvicorn it is the cycle of its connection, whose public names it has."""

    __slots__ = (
        "_head",
        "_path",
        "_started",
        "_submission",
        "_waiter",
        "connection",
        "disconnected",
        "due",
        "keep_alive",
        "response_complete",
    )
    message_event = _NoEvent()

    def __init__(self, path: HotPath, connection: Any, head: Head) -> None:
        self._path, self.connection, self._head = path, connection, head
        self._started = perf_counter()
        self._submission: Submission | None = None
        self._waiter: Any = None
        self.due = 0.0  # on the loop's clock
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = False
        path.under_way += 1

    def submit(self, engine: Engine, submission: Submission) -> None:
        """Give the commands to the engine, or raise."""
        if not submission.commands:
            self._send(submission.respond([]))
            return
        self._submission = submission
        self._waiter = engine.enqueue(submission.commands, self._deliver)
        self._path.add(self)

    def _deliver(self, items: Sequence[Item]) -> None:
        assert self._submission is not None, "only what was asked is answered"
        try:
            response = self._submission.respond(answers_of(items))
        except Exception as error:  # noqa: BLE001 - as above; and the others of the batch are still answered
            self.fail(error)
        else:
            self._send(response)
            if self._head.route.timed:
                self._path.metrics.decide_seconds.observe(perf_counter() - self._started)

    def give_up(self) -> None:
        """Answer that the deadline has passed; what the engine has begun it still finishes."""
        self._waiter.gone = True
        self.fail(Unavailable(DEADLINE_PASSED, kind="deadline-passed"))

    def fail(self, error: Exception) -> None:
        """Answer with a problem; an error that is no problem is our fault and goes to the log."""
        if not isinstance(error, Problem):
            token = request_id.set(self._head.request_id)
            log.error("request failed", method="POST", route=self._head.route.path, exc_info=error)
            request_id.reset(token)
            error = Problem(INTERNAL_ERROR)
        self._send(problem_answer(error))

    def _send(self, response: Response) -> None:
        """Send the answer first, because the client waits for it."""
        self.response_complete = True
        self._submission = self._waiter = None  # they refer to this exchange: a circle waits for the garbage collector
        connection = self.connection
        gone = self.disconnected or connection.transport.is_closing()
        if not gone:
            common = self._path.common(connection.server_state.default_headers)
            lines = [_STATUS_LINES[response.status_code], common]
            lines += [b"%b: %b\r\n" % header for header in response.raw_headers]
            closing = b"" if self.keep_alive else b"connection: close\r\n"
            lines += [b"x-request-id: ", self._head.request_id.encode(), b"\r\n", _CAUTIONS, closing, b"\r\n"]
            lines.append(bytes(response.body))
            connection.transport.write(b"".join(lines))
            if not self.keep_alive:
                connection.transport.close()
        self._path.finish(CLIENT_GONE if gone else response.status_code, self._head.route)
        if not gone:
            connection.on_response_complete()
