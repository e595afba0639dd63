"""What a client without a key may make a connection hold: limits of heads and of waiting bytes.

uvicorn has none of these limits. What cannot be read is answered with a problem, after the requests before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.middleware import RequestMiddleware
from service.problems import BadRequest, HeadTooLarge, Problem
from service.responses import problem_answer

HEAD_BYTES_MAX = 2**16
HEADERS_MAX = 256  # each takes some 200 bytes of memory, however short it is
PIPELINED_MAX = 64  # requests that wait on a connection for the answers to earlier ones
# Bytes that wait on all connections for the rest of a head, or for the check of a key. Beyond this, the connections
# that hold the most are aborted.
WAITING_BYTES_MAX = 2**25
COUNT_EVERY_BYTES = 2**22  # a count looks at every connection
CYCLE_BYTES = 2**12  # memory of a request that waits, beside its own bytes

_NOT_HTTP = "the request is not valid HTTP/1.1"
_TOO_LARGE = f"the head may have at most {HEAD_BYTES_MAX} bytes and {HEADERS_MAX} headers"
_TOO_MANY = f"at most {PIPELINED_MAX} requests may wait on a connection"


class WaitingBytes:
    """Counts what comes on all connections of an application, and aborts those that hold the most of it."""

    def __init__(self) -> None:
        self._uncounted = 0

    def add(self, count: int, connections: Collection[Any]) -> None:
        """Count bytes that have come. What the application has taken since is not held any more."""
        self._uncounted += count
        if self._uncounted < COUNT_EVERY_BYTES:
            return
        self._uncounted = 0
        held = sorted(((one.held_bytes(), one) for one in connections), key=lambda pair: pair[0])
        total = sum(size for size, _ in held)
        if total > WAITING_BYTES_MAX:
            while total > WAITING_BYTES_MAX // 2:
                size, connection = held.pop()
                total -= size
                connection.drop()


class BoundedConnection(HttpToolsProtocol):
    """A connection that reads heads of a bounded size, no trailers and no other protocol."""

    _hot_path: Any = None  # a `service.hot.exchange.HotPath`
    _in_head = False  # of a request whose head is not complete
    _in_body = False  # of a request whose head is complete and accepted
    _head_bytes = 0  # of a head or a trailer that is not complete
    _moved = False  # the data that is being parsed has completed a head, a request or a part of a body
    _rejected = False  # nothing more is read
    _running: RequestResponseCycle | None = None

    def parse(self, data: bytes) -> None:
        """Give data to the parser; reject what it cannot read."""
        if self._rejected:
            return
        self._moved = False
        rest: bytes | None = data
        try:
            while rest is not None:
                rest = self._parse_until_upgrade(rest)
            self._head_bytes = 0 if self._moved else self._head_bytes + len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                raise HeadTooLarge(_TOO_LARGE)
        except httptools.HttpParserError as error:
            reason = error.__context__
            self._reject(reason if isinstance(reason, Problem) else BadRequest(_NOT_HTTP, kind="not-http"))
        except HeadTooLarge as problem:
            self._reject(problem)
        if self._hot_path is not None:
            self._hot_path.waiting_bytes.add(len(data) + CYCLE_BYTES * len(self.pipeline), self.connections)

    def _parse_until_upgrade(self, data: bytes) -> bytes | None:
        """Parse the data; returns what is left if a request asks for another protocol, which we do not speak.

        httptools takes such a request for one without a body, and its body for another request. So the request is
        parsed again without that header.
        """
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            version = self.parser.get_http_version().encode()
            lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
            lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
            return b"\r\n".join([*lines, b"", data[upgrade.args[0] :]])
        return None

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        if len(self.pipeline) >= PIPELINED_MAX:
            raise BadRequest(_TOO_MANY, kind="not-http")
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come. Those of a trailer are ignored: a key is valid only before the body."""
        if self._in_head:
            super().on_header(name, value)
            if len(self.headers) > HEADERS_MAX:
                raise HeadTooLarge(_TOO_LARGE)

    def end_head(self) -> bool:
        """Check a complete head; returns whether the request is to be served, and not parsed again."""
        if self.parser.get_method() == b"CONNECT":
            raise BadRequest(_NOT_HTTP, kind="not-http")
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > HEAD_BYTES_MAX:
            raise HeadTooLarge(_TOO_LARGE)
        self._in_head, self._moved = False, True
        self._in_body = not self.parser.should_upgrade()
        return self._in_body

    def end_body(self) -> bool:
        """Note that a request is complete; returns whether it is served, and not parsed again."""
        served, self._in_body, self._moved = self._in_body, False, True
        return served

    def _reject(self, problem: Problem) -> None:
        """Answer a request that cannot be read, after the requests before it, and close the connection."""
        self._rejected = True
        if self._in_body:
            if self.pipeline:
                self.pipeline.popleft()  # the newest, whose body it is
            elif self._running is None or self._running.response_started:
                self.transport.close()  # the request has an answer
                return
            else:
                self._running.disconnected = self._running.response_complete = True
                self._running.message_event.set()
        scope: Any = {"type": "http", "method": "other", "path": "", "headers": [], "http_version": "1.1"}
        app: Any = problem_answer(problem)
        if self._hot_path is not None:
            app = RequestMiddleware(app, metrics=self._hot_path.metrics, body_bytes_max=lambda path: 0)
        earlier = self.cycle
        self.cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=False,
            on_response=self.on_response_complete,
        )
        if self.pipeline or not (earlier is None or earlier.response_complete):
            self.pipeline.appendleft((self.cycle, app))
        else:
            self._start_asgi_task(self.cycle, app)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def held_bytes(self) -> int:
        """How much memory the connection takes for what the application has not taken yet.

        Requests that run are as many as connections; only their own bytes count.
        """
        waiting = sum(CYCLE_BYTES + _bytes_of(cycle) for cycle, _ in self.pipeline)
        return self._head_bytes + waiting + (0 if self._running is None else _bytes_of(self._running))

    def drop(self) -> None:
        """Abort the connection and free what waits now: the loop may read many others before it ends this one."""
        self.pipeline.clear()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what runs and free what waits; uvicorn ends only the newest request."""
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self._running = None


def _bytes_of(cycle: RequestResponseCycle) -> int:
    return len(cycle.body) + sum(len(name) + len(value) for name, value in cycle.scope["headers"])
