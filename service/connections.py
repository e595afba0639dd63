"""Connections whose requests do not arrive: they are closed, however slowly their bytes still drip in.

uvicorn has a limit for connections that rest between two requests, and none for a request that has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SWEEP_EVERY_SECONDS = 0.5


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
