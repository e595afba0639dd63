"""Connections: requests that there are too many of are refused, and those that do not arrive are not waited for.

uvicorn has a limit for connections that rest between two requests, and none for a request that has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.hot.exchange import Express, Head
from service.hot.refusal import Gate

SWEEP_EVERY_SECONDS = 0.5


class _Refused:
    """What stands for a request that was answered before it came in."""

    response_complete = True

    def __init__(self) -> None:
        self.message_event = asyncio.Event()


class Connection(HttpToolsProtocol):
    """A connection that knows since when a request is awaited or on its way, and the short way to an answer."""

    awaited_since: float | None = None
    _head: Head | None = None  # of a request that goes the short way, as long as its body is not all there
    _body: bytes
    _at_rest = True  # between two requests, with nothing of the next
    _answered_at = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.awaited_since = self.loop.time()
        self._gate: Gate | None = getattr(self.config.app, "gate", None)
        self._express: Express | None = getattr(self.config.app, "express", None)

    def data_received(self, data: bytes) -> None:
        """Refuse one whole request by its bytes while the queue is full; give anything else to the parser."""
        if self._at_rest and self._can_refuse() and self._is_shut:
            assert self._gate is not None
            refusal = self._gate.refusal_of(data, self.server_state.default_headers)
            if refusal is not None:
                self.awaited_since = None
                self.transport.write(refusal)
                self.on_response_complete()
                return
        super().data_received(data)

    def _can_refuse(self) -> bool:
        """Whether nothing before this request waits for an answer on the connection."""
        done = self.cycle is None or self.cycle.response_complete
        return done and self._express is not None and not (self.transport.is_closing() or self.flow.write_paused)

    @property
    def _is_shut(self) -> bool:
        assert self._gate is not None
        assert self._express is not None
        return self._gate.is_shut(len(self.tasks) + self._express.under_way)

    def on_response_complete(self) -> None:
        """An answer was given; the alarm for a connection that rests is not set anew if it is set."""
        self._answered_at = self.loop.time()
        if self.timeout_keep_alive_task is None or self.pipeline or self.transport.is_closing():
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.flow.resume_reading()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has rested for long enough."""
        left = self.timeout_keep_alive - (self.loop.time() - self._answered_at)
        if self.cycle is not None and not self.cycle.response_complete:
            left = self.timeout_keep_alive
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        super().on_message_begin()
        self._at_rest = False
        self.awaited_since = self.loop.time()

    def on_headers_complete(self) -> None:
        """The request can be refused, or go the short way, unless others before it on this connection wait.

        Who does not take its answers is answered by the long way, which waits for it.
        """
        if self._express is not None and (self.cycle is None or self.cycle.response_complete):
            if self._is_refused():
                return
            if (
                self.parser.should_keep_alive()
                and self.parser.get_http_version() == "1.1"
                and not self.flow.write_paused
            ):
                self._head = self._express.head(self.parser.get_method(), self.url, self.headers)
                if self._head is not None:
                    self._body = b""
                    return
        super().on_headers_complete()

    def _is_refused(self) -> bool:
        if not self._is_shut:
            return False
        assert self._gate is not None
        refusal = self._gate.refusal(self.parser.get_method(), self.url, self.server_state.default_headers)
        if refusal is None or self.transport.is_closing() or not self.parser.should_keep_alive():
            return False
        self.cycle = _Refused()  # type: ignore[assignment]
        self.transport.write(refusal)
        self.on_response_complete()
        return True

    def on_body(self, body: bytes) -> None:
        """Some of the body has come."""
        if self._head is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """The last byte of its body has come."""
        self.awaited_since = None
        self._at_rest = True
        head, self._head = self._head, None
        if head is not None:
            assert self._express is not None
            exchange = self._express.take(self, head, self._body)
            if exchange is not None:
                if not exchange.response_complete:
                    self.cycle = exchange  # type: ignore[assignment]
                return
            super().on_headers_complete()
            super().on_body(self._body)
        super().on_message_complete()

    def is_late(self, now: float, seconds_max: float) -> bool:
        """Whether a request takes too long to arrive, unless it is we who read no further while another is answered."""
        return self.awaited_since is not None and not self.pipeline and now - self.awaited_since > seconds_max


async def close_late(connections: Collection[Any], seconds_max: float) -> None:
    """Close connections whose request does not arrive in time, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_EVERY_SECONDS)
        now = loop.time()
        for connection in list(connections):
            if isinstance(connection, Connection) and connection.is_late(now, seconds_max):
                connection.transport.abort()
