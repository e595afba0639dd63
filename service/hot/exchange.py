"""The short way to the hot endpoints: from the bytes of a request to the bytes of its answer without an ASGI task.

It takes requests of HTTP/1.1, one after the other, with a body of declared length and a cached key. Everything else
takes the long way, through uvicorn and FastAPI, and gets the same answers.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import orjson
import structlog

from service.auth import checked_role
from service.dependencies import DEADLINE_PASSED, Components
from service.engine import answers_of
from service.engine.commands import Item
from service.hot.bounds import HEAD_BYTES_MAX, HEADERS_MAX, WaitingBytes
from service.hot.endpoints import ROLE, Submission
from service.ids import is_id, request_ids
from service.logs import request_id
from service.metrics import Metrics
from service.middleware import CLIENT_GONE, INTERNAL_ERROR, SECURITY_HEADERS
from service.openapi import HotRoute
from service.problems import Problem, Unavailable
from service.responses import problem_answer

Headers = Sequence[tuple[bytes, bytes]]

_STATUS_LINES = {int(status): b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
_CAUTIONS = b"".join(b"%b: %b\r\n" % caution for caution in SECURITY_HEADERS)
_JSON = b"content-type: application/json\r\n"
_REPLAYED = _JSON + b"idempotent-replayed: true\r\n"

# A head of which nothing counts but target (1), length (2), key (3), id (4) and campaign (5), each given at most once.
# A head with another header that counts, or with unusual bytes, is in doubt.
_HEAD = re.compile(
    rb"POST (\S++) HTTP/1\.1\r\n(?i:(?:"
    rb"content-length: (?(2)(?!))([0-9]{1,9})\r\n|"
    rb"authorization: (?(3)(?!))(?-i:Bearer ([ -~]++))\r\n|"
    rb"x-request-id: (?(4)(?!))([!-~]++)\r\n|"
    rb"x-campaign-id: (?(5)(?!))([!-~]++)\r\n|"
    rb"(?!content-|authorization|x-request-id|x-campaign-id|x-api-key|transfer-encoding|expect|upgrade|(?:proxy-)?connection)"
    rb"(?-i:[A-Za-z0-9-]++: [ -~]*+\r\n)|"
    rb"content-type: [ -~]*+\r\n|connection: keep-alive\r\n"
    rb")*+)\r\n"
)

log = structlog.get_logger(__name__)


class Head(NamedTuple):
    """What the headers of a request say."""

    route: HotRoute
    key: str
    request_id: str
    hint: str | None  # X-Campaign-Id
    trace: Any = None  # of the caller, where traces are on


class HotPath:
    """The short way of one application."""

    def __init__(
        self, components: Components, routes: Sequence[HotRoute], metrics: Metrics, body_bytes_max: Callable[[str], int]
    ) -> None:
        self.components = components
        self._routes = {route.path.encode(): (route, body_bytes_max(route.path)) for route in routes}
        self.exchange: type[Exchange] = Exchange
        self.metrics, self.access_log = metrics, getattr(components, "access_log", None)
        self.under_way = 0
        self.waiting_bytes = WaitingBytes()
        self._ids = request_ids()
        self.waiting: deque[Exchange] = deque()  # in the order of their deadlines; the answered ones leave in turn
        self._timer: Any = None  # for the first of them
        self.common: tuple[Headers, bytes] = ((), b"")  # uvicorn's own headers, which change every second, as lines

    def whole(self, data: bytes) -> re.Match[bytes] | None:
        """The head of the data, if it is one whole request to a hot endpoint; None if in doubt.

        The parser reads the same in every request that is accepted here, and the requests in doubt.
        """
        found = _HEAD.match(data)
        if found is None or found[2] is None or found[1] not in self._routes or found.end() > HEAD_BYTES_MAX:
            return None
        # The line of the request and the empty line are no headers. A header takes at least five bytes.
        if found.end() > 5 * HEADERS_MAX and data.count(b"\r\n", 0, found.end()) > HEADERS_MAX + 2:
            return None
        return found if len(data) == found.end() + int(found[2]) else None

    def take(self, connection: Any, whole: re.Match[bytes]) -> Exchange | None:
        """Begin to answer a whole request, as `start` does."""
        route, bytes_max = self._routes[whole[1]]
        key = (whole[3] or b"").decode("latin-1").strip()
        if not key or int(whole[2]) > bytes_max:
            return None
        identity = "" if whole[4] is None else whole[4].decode("latin-1")
        hint = None if whole[5] is None else whole[5].decode("latin-1")
        head = Head(route, key, identity if identity and is_id(identity) else next(self._ids), hint)
        return self.start(connection, head, whole.string[whole.end() :])

    def head(self, method: bytes, target: bytes, headers: Headers) -> Head | None:
        """What the headers say; None if the request must take the long way, which checks its key before its body."""
        route, bytes_max = self._routes.get(target, (None, 0))
        if route is None or method != b"POST":
            return None
        length, bearer, other, given, hints = -1, b"", b"", b"", list[bytes]()
        for name, value in headers:
            if name == b"authorization" and not bearer:
                bearer = value
            elif name == b"content-length" and value.isdigit():
                length = int(value[:20])
            elif name == b"x-api-key":
                other = value
            elif name == b"x-request-id":
                given = value
            elif name == b"x-campaign-id":
                hints.append(value)
            elif name in (b"transfer-encoding", b"expect", b"upgrade", b"content-encoding"):
                return None
        if not 0 <= length <= bytes_max or other or bearer[:7] != b"Bearer ":
            return None
        key = bearer[7:].decode("latin-1").strip()
        keyring = self.components.keyring
        if not key or keyring is None or keyring.remembered(key)[1] is None:
            return None
        identity = given.decode("latin-1")
        hint = b", ".join(hints).decode("latin-1") if hints else None
        return Head(route, key, identity if identity and is_id(identity) else next(self._ids), hint)

    def start(self, connection: Any, head: Head, body: bytes) -> Exchange | None:
        """Begin to answer, if that needs nothing but the engine; None if the request must take the long way."""
        engine, keyring = self.components.engine, self.components.keyring
        if engine is None or keyring is None:
            return None
        certain, principal = keyring.remembered(head.key)
        if not certain:
            return None
        # All exchanges have the same time, so they are due in order.
        loop: asyncio.AbstractEventLoop = connection.loop
        due = loop.time() + self.components.settings.request_deadline_ms / 1000
        exchange = self.exchange(self, connection, head, perf_counter(), due)
        self.under_way += 1
        try:
            if principal is not None and principal.requests_per_second is not None:
                keyring.count_request(principal)
            exchange.submission = submission = head.route.parse(checked_role(principal, ROLE), body, head.hint)
            if not submission.commands:
                exchange.deliver([])
                return exchange
            exchange.waiter = engine.enqueue(submission.commands, exchange.deliver)
        except Exception as error:  # noqa: BLE001 - the client gets an answer, and the log has what is our fault
            exchange.fail(error)
            return exchange
        self.waiting.append(exchange)
        if self._timer is None:
            self._timer = loop.call_at(due, self._expire, loop)
        return exchange

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer every exchange whose deadline has passed."""
        self._timer, now = None, loop.time()
        while self.waiting and (self.waiting[0].response_complete or self.waiting[0].due <= now):
            exchange = self.waiting.popleft()
            if not exchange.response_complete:
                # What the engine has begun it still finishes.
                exchange.waiter.gone = True
                exchange.fail(Unavailable(DEADLINE_PASSED, kind="deadline-passed"))
        if self.waiting:
            self._timer = loop.call_at(self.waiting[0].due, self._expire, loop)


class _NoEvent:
    """Stands for the event that uvicorn sets when more of a request comes; the request is complete."""

    def set(self) -> None:
        """Do nothing."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request under way. To uvicorn it is the cycle of its connection, whose public names it has."""

    path: HotPath
    connection: Any
    head: Head
    started: float  # on perf_counter's clock
    due: float  # on the loop's clock
    submission: Submission | None = None
    waiter: Any = None
    disconnected: bool = False
    keep_alive: bool = True
    response_complete: bool = False
    message_event: ClassVar = _NoEvent()

    def deliver(self, items: Sequence[Item]) -> None:
        """Send the answer of the engine."""
        assert self.submission is not None, "only what was asked is answered"
        try:
            answer = self.submission.respond(answers_of(items))
            body = orjson.dumps(answer.body, option=orjson.OPT_SERIALIZE_NUMPY)
        except Exception as error:  # noqa: BLE001 - as above; and the others of the batch are still answered
            self.fail(error)
        else:
            self._send(answer.status, body, _REPLAYED if answer.replayed else _JSON)
            if self.head.route.timed:
                self.path.metrics.decide_seconds.observe(perf_counter() - self.started)

    def fail(self, error: Exception) -> None:
        """Answer with a problem; an error that is no problem is our fault and goes to the log."""
        if not isinstance(error, Problem):
            token = request_id.set(self.head.request_id)
            log.error("request failed", method="POST", route=self.head.route.path, exc_info=error)
            request_id.reset(token)
            error = Problem(INTERNAL_ERROR)
        elif error.status == 401 and self.path.components.keyring is not None:
            self.path.components.keyring.note_refusal(self.head.request_id)
        response = problem_answer(error)
        lines = [b"%b: %b\r\n" % header for header in response.raw_headers if header[0] != b"content-length"]
        self._send(response.status_code, bytes(response.body), b"".join(lines))

    def _send(self, status: int, body: bytes, lines: bytes) -> None:
        """Send the answer first, because the client waits for it; then count the exchange as ended."""
        self.response_complete = True
        self.submission = self.waiter = None  # they refer to this exchange: a circle waits for the garbage collector
        connection, path = self.connection, self.path
        gone = self.disconnected or connection.transport.is_closing()
        if not gone:
            common = connection.server_state.default_headers
            if path.common[0] is not common:
                path.common = common, b"".join([b"%b: %b\r\n" % header for header in common])
            connection.transport.write(
                b"%b%bcontent-length: %d\r\n%bx-request-id: %b\r\n%b%b\r\n%b"
                % (
                    _STATUS_LINES[status],
                    path.common[1],
                    len(body),
                    lines,
                    self.head.request_id.encode(),
                    _CAUTIONS,
                    b"" if self.keep_alive else b"connection: close\r\n",
                    body,
                )
            )
            if not self.keep_alive:
                connection.transport.close()
        path.under_way -= 1
        while path.waiting and path.waiting[0].response_complete:
            path.waiting.popleft()
        status = CLIENT_GONE if gone else status
        path.metrics.count_request("POST", self.head.route.path, status)
        if path.access_log is not None:
            path.access_log.add(
                self.head.request_id, "POST", self.head.route.path, status, perf_counter() - self.started
            )
        if not gone:
            connection.on_response_complete()
