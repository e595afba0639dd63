"""An HTTP/1.1 connection without a library: it records what was sent and received, and can be cut at any byte."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from tests.faults.history import Call
from tests.service.http_client import ADMIN_KEY

ANSWER_SECONDS_MAX = 8.0
GONE = (ConnectionError, EOFError, OSError, TimeoutError)


class Wire:
    """A connection to a port, opened at its first use and again after every failure."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, call: Call, *, method: str = "POST") -> Call:
        """Send the call and record its answer; without an answer its status stays None."""
        call.port, call.sent_at = self.port, time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await self._open()
                await self._ask(call, method)
        except GONE:
            self.cut()
        return call

    async def hang_up_on(self, call: Call, *, bytes_sent: int | None = None) -> Call:
        """Send the call or only its first bytes, and close without waiting for the answer."""
        call.port, call.sent_at = self.port, time.monotonic()
        try:
            await self._open()
            assert self._writer is not None
            self._writer.write(_request("POST", call.path, call.body)[:bytes_sent])
            await self._writer.drain()
        except GONE:
            call.status = None
        self.cut()
        return call

    def cut(self) -> None:
        """Close at once."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def _open(self) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def _ask(self, call: Call, method: str) -> None:
        assert self._reader is not None
        assert self._writer is not None
        self._writer.write(_request(method, call.path, call.body))
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        answer = await self._reader.readexactly(int(headers["content-length"]))
        call.answered_at = time.monotonic()
        call.status, call.answer = int(first.split()[1]), answer
        call.replayed = headers.get("idempotent-replayed") == "true"
        if headers.get("connection") == "close":
            self.cut()


def _request(method: str, path: str, body: dict[str, Any]) -> bytes:
    text = json.dumps(body).encode() if method != "GET" else b""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: faults\r\nAuthorization: Bearer {ADMIN_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


async def get(port: int, path: str) -> Any:
    """Return the body of a GET request, which must succeed."""
    wire = Wire(port)
    call = await wire.ask(Call(path, {}, 0.0), method="GET")
    wire.cut()
    assert call.status == 200, f"GET {path}: {call.status} {call.answer!r}"
    return call.json
