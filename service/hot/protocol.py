"""Connections that take the short way to the hot endpoints and do not wait for clients that stop sending or reading.

uvicorn limits the time that a connection rests between two requests, but not the time that a request takes to arrive or
that a client takes to read its answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import Any

from service.hot.bounds import BoundedConnection
from service.hot.exchange import Head, HotPath
from service.hot.refusal import Refusals

SWEEP_EVERY_SECONDS = 0.5
# A client must read at least this much of its answers in `receive_seconds_max`.
READ_BYTES_MIN = 2**15


class _Refused:
    """The cycle of a request that was answered before it came in."""

    response_complete = True

    def __init__(self) -> None:
        self.message_event = asyncio.Event()


class Connection(BoundedConnection):
    """A connection that knows since when a request is on its way, and the short way to an answer."""

    waiting_since: float | None = None
    _head: Head | None = None  # of a request that takes the short way, until its body is complete
    _pieces: list[bytes]  # of its body
    _at_rest = True  # between two requests, with nothing of the next
    _has_room = False  # the engine took more when the data that is being parsed came
    _answered_at = 0.0
    _unread: tuple[float, int] = (0.0, 0)  # when the client had last read enough, and how much was unread then

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        self._refusals: Refusals | None = getattr(self.config.app, "refusals", None)
        self._hot_path: HotPath | None = getattr(self.config.app, "hot_path", None)

    def data_received(self, data: bytes) -> None:
        """Answer or refuse one whole request by its bytes; give anything else to the parser."""
        if self._at_rest and self._is_free():
            assert self._hot_path is not None
            self._has_room = not self._is_full()
            whole = self._hot_path.whole(data)
            if whole is not None and (self._take(whole) if self._has_room else self._refuse(b"POST", whole[1])):
                self.waiting_since = None
                return
        self.parse(data)
        self._has_room = False

    def _take(self, whole: re.Match[bytes]) -> bool:
        assert self._hot_path is not None
        exchange = self._hot_path.take(self, whole)
        if exchange is not None and not exchange.response_complete:
            self.cycle = exchange  # type: ignore[assignment]
        return exchange is not None

    def _unset_keepalive_if_required(self) -> None:
        """Leave the timer of an open connection as it is: to set it again for every answer takes 2 µs."""
        if self.transport.is_closing():
            super()._unset_keepalive_if_required()

    def _is_free(self) -> bool:
        """Whether an answer can be sent at once: no earlier request waits, and the client reads its answers."""
        if self._hot_path is None or (self.cycle is not None and not self.cycle.response_complete):
            return False
        return not (self.flow.write_paused or self.transport.is_closing())

    def _is_full(self) -> bool:
        """Whether the engine takes no more."""
        assert self._hot_path is not None
        engine = self._hot_path.components.engine
        return engine is not None and engine.is_full(len(self.tasks) + self._hot_path.under_way)

    def on_response_complete(self) -> None:
        """Count an answer; the timer of a connection at rest is not set again if it is set."""
        self._answered_at = self.loop.time()
        if self.timeout_keep_alive_task is None or self.pipeline or self.transport.is_closing():
            super()._unset_keepalive_if_required()
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.flow.resume_reading()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has rested for long enough."""
        left = self.timeout_keep_alive - (self.loop.time() - self._answered_at)
        if not self._at_rest or (self.cycle is not None and not self.cycle.response_complete):
            left = self.timeout_keep_alive
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        super().on_message_begin()
        self._at_rest = False
        self.waiting_since = self.loop.time()

    def on_headers_complete(self) -> None:
        """Refuse the request or let it take the short way, unless an earlier request on this connection waits.

        A client that does not read its answers is answered the long way, which waits for it.
        """
        if not self.end_head():
            return
        if self._is_free() and self.parser.should_keep_alive():
            assert self._hot_path is not None
            method = self.parser.get_method()
            if not self._has_room and self._is_full() and self._refuse(method, self.url):
                self.cycle = _Refused()  # type: ignore[assignment]
                return
            if self.parser.get_http_version() == "1.1":
                self._head = self._hot_path.head(method, self.url, self.headers)
                if self._head is not None:
                    self._pieces = []
                    return
        self._in_body = False  # uvicorn may not accept the target; the request then has no cycle
        super().on_headers_complete()
        self._in_body = True

    def _refuse(self, method: bytes, target: bytes) -> bool:
        assert self._refusals is not None
        refusal = self._refusals.refusal(method, target, self.server_state.default_headers)
        if refusal is None:
            return False
        self.transport.write(refusal)
        self.on_response_complete()
        return True

    def on_body(self, body: bytes) -> None:
        """A piece of the body has come."""
        self._moved = True
        if self._head is None:
            super().on_body(body)
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The last byte of the body has come."""
        if not self.end_body():
            return
        self.waiting_since = None
        self._at_rest = True
        head, self._head = self._head, None
        if head is not None:
            assert self._hot_path is not None
            body, self._pieces = b"".join(self._pieces), []
            exchange = self._hot_path.start(self, head, body)
            if exchange is not None:
                if not exchange.response_complete:
                    self.cycle = exchange  # type: ignore[assignment]
                return
            super().on_headers_complete()
            super().on_body(body)
        super().on_message_complete()

    def resume_writing(self) -> None:
        """The client has read all but the rest of its answer."""
        super().resume_writing()
        self._unread = (0.0, 0)

    def is_late(self, now: float, seconds_max: float) -> bool:
        """Whether a request takes too long to arrive, and not because this side stopped reading."""
        return self.waiting_since is not None and not self.pipeline and now - self.waiting_since > seconds_max

    def is_stuck(self, now: float, seconds_max: float) -> bool:
        """Whether the client reads less than READ_BYTES_MIN of its answers in that time."""
        unread, (since, before) = self.transport.get_write_buffer_size(), self._unread
        if not unread or not before or unread > before or before - unread >= READ_BYTES_MIN:
            self._unread = now, unread
            return False
        return now - since > seconds_max


async def close_late(connections: Collection[Any], seconds_max: float) -> None:
    """Close connections whose request does not arrive in time, or whose answer is not read, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_EVERY_SECONDS)
        now = loop.time()
        for connection in list(connections):
            if connection.is_late(now, seconds_max) or connection.is_stuck(now, seconds_max):
                connection.transport.abort()
