"""A TCP proxy between the service and PostgreSQL that delays, drops, resets, half-closes, or loses COMMITs."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# The message that commits a transaction: a simple query of PostgreSQL's protocol.
COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
BROKEN = (ConnectionError, OSError, EOFError)


class Proxy:
    """Listens on a free port and forwards everything to a socket while its `mode` is `pass`.

    delay         every message arrives later
    drop          messages are lost without an error
    reset         all connections are reset
    half-close    the connection to the service is closed for writing; requests still arrive
    lose-before   at the next COMMIT the connection is reset, and the server never sees the COMMIT
    lose-sent     the next COMMIT is forwarded and the connection reset at once
    lose-after    after the next COMMIT the connection is reset when the server replies, and the reply is lost
    """

    def __init__(self, upstream: Path) -> None:
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.mode = "pass"
        self.delay_seconds = 0.05
        self.struck = 0  # how many COMMITs a lose- mode has disturbed

    @property
    def port(self) -> int:
        """The address on which it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Start to listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        """Stop listening and reset all connections."""
        assert self._server is not None
        self._server.close()
        self.reset()
        await asyncio.gather(*self._tasks)

    def through(self, url: str) -> str:
        """Return the URL of a database through this proxy."""
        name = url.partition("@/")[2].partition("?")[0]
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}?sslmode=disable&gssencmode=disable"

    def reset(self) -> None:
        """Reset both sides of every connection."""
        for pair in list(self._pairs):
            pair.reset()

    def half_close(self) -> None:
        """Close every connection for writing to the service."""
        for pair in list(self._pairs):
            pair.half_closed = True
            with suppress(*BROKEN):
                pair.down.write_eof()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(str(self._upstream))
        except BROKEN:
            _abort(writer)
            return
        pair = _Pair(up=up_writer, down=writer)
        self._pairs.add(pair)
        await asyncio.gather(
            self._pass(reader, up_writer, pair, self._on_request), self._pass(up_reader, writer, pair, self._on_reply)
        )
        self._pairs.discard(pair)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pair: _Pair,
        look: Callable[[bytes, _Pair], bool],
    ) -> None:
        """Forward until one side closes."""
        with suppress(*BROKEN):
            while piece := await reader.read(65536):
                if self.mode == "delay":
                    await asyncio.sleep(self.delay_seconds)
                if self.mode == "drop" or not look(piece, pair) or (pair.half_closed and writer is pair.down):
                    continue
                writer.write(piece)
                await writer.drain()
        with suppress(*BROKEN):
            writer.close()

    def _on_request(self, piece: bytes, pair: _Pair) -> bool:
        if not self.mode.startswith("lose-") or not piece.endswith(COMMIT):
            return True
        mode, self.mode = self.mode, "pass"
        self.struck += 1
        if mode == "lose-after":
            pair.reply_lost = True
            return True
        if mode == "lose-sent":
            pair.up.write(piece)
            pair.down_reset()
            return False
        pair.reset()
        return False

    @staticmethod
    def _on_reply(piece: bytes, pair: _Pair) -> bool:
        if pair.reply_lost:
            pair.down_reset()
            return False
        return True


class _Pair:
    """The two sides of one connection."""

    def __init__(self, up: asyncio.StreamWriter, down: asyncio.StreamWriter) -> None:
        self.up = up
        self.down = down
        self.reply_lost = False
        self.half_closed = False

    def reset(self) -> None:
        _abort(self.down)
        _abort(self.up)

    def down_reset(self) -> None:
        """Reset the side of the service, and close the side of the server after it has read everything."""
        _abort(self.down)
        with suppress(*BROKEN):
            self.up.close()


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN, if it is TCP."""
    with suppress(*BROKEN):
        found = writer.get_extra_info("socket")
        if found is not None and found.family == socket.AF_INET:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
