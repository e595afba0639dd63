"""The short way to the hot endpoints: from a request's bytes to its answer's without an ASGI task in between.

What is usual goes this way: HTTP/1.1, one request after the other, a body of a declared length, a key that is
remembered. Everything else goes the long way, through uvicorn and FastAPI, and is answered in the same words.
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

from service.auth import key_digest
from service.components import Parts
from service.engine import Engine, answers_of
from service.engine.commands import Item
from service.hot.endpoints import ROLE
from service.hot.request import Asked
from service.ids import RequestIds, is_id
from service.logs import request_id
from service.metrics import Metrics
from service.middleware import CAUTIONS, CLIENT_GONE, OURS
from service.openapi import HotRoute
from service.problems import Problem, Unavailable
from service.responses import problem_answer
from service.routes.access import checked
from service.routes.dependencies import TOO_LATE

Headers = Sequence[tuple[bytes, bytes]]

_STATUS_LINES = {int(status): b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
_CAUTIONS = b"".join(b"%b: %b\r\n" % caution for caution in CAUTIONS)

log = structlog.get_logger(__name__)


class Head(NamedTuple):
    """What the short way has to know of a request before its body is there."""

    route: HotRoute
    key: bytes | None  # its digest
    request_id: str
    named: bool  # by the client


class Express:
    """The short way of one application."""

    def __init__(
        self, parts: Parts, routes: Sequence[HotRoute], metrics: Metrics, body_bytes_max: Callable[[str], int]
    ) -> None:
        self._parts = parts
        self._routes = {route.path.encode(): (route, body_bytes_max(route.path)) for route in routes}
        self.metrics = metrics
        self.under_way = 0
        self._ids = RequestIds()
        self._waiting: deque[Exchange] = deque()  # in the order of their deadlines, the answered ones taken out in turn
        self._alarm: Any = None  # rings for the first of them
        self._common: tuple[Headers, bytes] = ((), b"")

    def head(self, method: bytes, target: bytes, headers: Headers) -> Head | None:
        """What is known of a request by its headers; None where it has to go the long way."""
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
        named = is_id(identity)
        return Head(route, key_digest(key), identity if named else self._ids.next(), named)

    def take(self, connection: Any, head: Head, body: bytes) -> Exchange | None:
        """Begin to answer, if that can be done without waiting for anything but the engine."""
        engine: Engine | None = self._parts.engine
        keyring = self._parts.keyring
        if engine is None or keyring is None:
            return None
        certain, principal = keyring.remembered_by(head.key)
        if not certain:
            return None
        exchange = Exchange(self, connection, head)
        try:
            asked = head.route.reads(checked(principal, ROLE), body)
            exchange.ask(engine, asked, self._parts.settings.request_deadline_ms / 1000)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told, and the log where it is ours
            exchange.fail(error)
        return exchange

    def wait_for(self, exchange: Exchange) -> None:
        """See to it that an exchange is answered by its deadline; all have the same time, so they are due in turn."""
        self._waiting.append(exchange)
        if self._alarm is None:
            self._set_alarm(exchange.loop)

    def _set_alarm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = loop.call_at(self._waiting[0].due, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm, now = None, loop.time()
        self.tidy()
        while self._waiting and self._waiting[0].due <= now:
            self._waiting[0].give_up()  # which takes it out
        if self._waiting:
            self._set_alarm(loop)

    def common(self, headers: Headers) -> bytes:
        """The lines of uvicorn's own headers, which are another list every second."""
        known, lines = self._common
        if known is not headers:
            lines = b"".join(b"%b: %b\r\n" % header for header in headers)
            self._common = headers, lines
        return lines

    def tidy(self) -> None:
        """Take out what was answered and stands first."""
        while self._waiting and self._waiting[0].response_complete:
            self._waiting.popleft()


class _Nobody:
    """Who waits for more of a request that is there as a whole."""

    def set(self) -> None:
        """Nobody needs to know."""


class Exchange:
    """A request under way. To uvicorn it is its connection's cycle, of which it reads and writes the public names."""

    __slots__ = (
        "_asked",
        "_connection",
        "_express",
        "_head",
        "_started",
        "_waiter",
        "disconnected",
        "due",
        "keep_alive",
        "response_complete",
    )
    message_event = _Nobody()

    def __init__(self, express: Express, connection: Any, head: Head) -> None:
        self._express, self._connection, self._head = express, connection, head
        self._started = perf_counter()
        self._asked: Asked | None = None
        self._waiter: Any = None
        self.due = 0.0  # on the loop's clock
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = False
        express.under_way += 1

    def ask(self, engine: Engine, asked: Asked, deadline_seconds: float) -> None:
        """Hand the commands to the engine, or raise."""
        if not asked.commands:
            self._send(asked.answered([]))
            return
        self._asked = asked
        self._waiter = engine.ask(asked.commands, self._deliver)
        self.due = self.loop.time() + deadline_seconds
        self._express.wait_for(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of its connection."""
        loop: asyncio.AbstractEventLoop = self._connection.loop
        return loop

    def _deliver(self, items: Sequence[Item]) -> None:
        assert self._asked is not None, "only what was asked is answered"
        try:
            response = self._asked.answered(answers_of(items))
        except Exception as error:  # noqa: BLE001 - as above; and the others of the batch are still answered
            self.fail(error)
        else:
            self._send(response)
            if self._head.route.timed:
                self._express.metrics.decide_seconds.observe(perf_counter() - self._started)

    def give_up(self) -> None:
        """Nobody waits for ever, not even for a database that hangs; what was begun is still finished."""
        self._waiter.gone = True
        self.fail(Unavailable(TOO_LATE, kind="deadline-passed"))

    def fail(self, error: Exception) -> None:
        """Answer with a problem; what is no problem is ours, and the log has it."""
        if not isinstance(error, Problem):
            token = request_id.set(self._head.request_id)
            log.error("request failed", method="POST", route=self._head.route.path, exc_info=error)
            request_id.reset(token)
            error = Problem(OURS)
        self._send(problem_answer(error))

    def _send(self, response: Response) -> None:
        """Answer first, for that is waited for, and then see to the rest."""
        self.response_complete = True
        self._asked = self._waiter = None  # which knows us: in a circle they would wait for the garbage collector
        express, connection = self._express, self._connection
        express.under_way -= 1
        gone = self.disconnected or connection.transport.is_closing()
        if not gone:
            lines = [_STATUS_LINES[response.status_code], express.common(connection.server_state.default_headers)]
            lines += [b"%b: %b\r\n" % header for header in response.raw_headers]
            closing = b"" if self.keep_alive else b"connection: close\r\n"
            lines += [b"x-request-id: ", self._head.request_id.encode(), b"\r\n", _CAUTIONS, closing, b"\r\n"]
            lines.append(bytes(response.body))
            connection.transport.write(b"".join(lines))
            if not self.keep_alive:
                connection.transport.close()
        express.tidy()
        express.metrics.count_request("POST", self._head.route.path, CLIENT_GONE if gone else response.status_code)
        if not gone:
            connection.on_response_complete()
