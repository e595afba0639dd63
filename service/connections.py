"""Connections: requests that there are too many of are refused, and those that do not arrive are not waited for.

uvicorn has a limit for connections that rest between two requests, and none for a request that has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SWEEP_EVERY_SECONDS = 0.5


class _Refused:
    """What stands for a request that was answered before it came in."""

    response_complete = True

    def __init__(self) -> None:
        self.message_event = asyncio.Event()


class Connection(HttpToolsProtocol):
    """A connection that knows since when a request is awaited or on its way."""

    awaited_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.awaited_since = self.loop.time()

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        super().on_message_begin()
        self.awaited_since = self.loop.time()

    def on_headers_complete(self) -> None:
        """The request can be refused, unless others before it on this connection are not answered yet."""
        gate = getattr(self.config.app, "gate", None)
        if gate is not None and gate.is_shut(len(self.tasks)) and (self.cycle is None or self.cycle.response_complete):
            refusal = gate.refusal(self.parser.get_method(), self.url, self.server_state.default_headers)
            if refusal is not None and not self.transport.is_closing() and self.parser.should_keep_alive():
                self.cycle = _Refused()  # type: ignore[assignment]
                self.transport.write(refusal)
                self.on_response_complete()
                return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The last byte of its body has come."""
        self.awaited_since = None
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
