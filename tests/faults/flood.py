"""A process that sends decisions at a rate of its own, whatever becomes of them: `python -m tests.faults.flood ORDER`.

ORDER is JSON: port, key, campaign, label, rate (a second; 0: as fast as the answers come), seconds, connections, out.
Every request has a connection to itself while it waits, so that a slow answer delays no other request; where all are
taken, the request is not sent and counted. What was sent and answered goes to the file `out`, one JSON array a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

TICK_SECONDS = 0.004
LAST_ANSWERS_SECONDS = 8.0


class Connection(asyncio.Protocol):
    """One request at a time, by hand: the client must be cheaper than the service."""

    def __init__(self, flood: Flood) -> None:
        self._flood = flood
        self._received = b""
        self._request: tuple[str, float] | None = None
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._flood.idle.append(self)

    def send(self, decision_id: str, request: bytes) -> None:
        self._request = (decision_id, time.monotonic())
        self.transport.write(request)

    def data_received(self, piece: bytes) -> None:
        self._received += piece
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self._received = b""
        assert self._request is not None
        decision_id, sent = self._request
        self._request = None
        self._flood.answers.append((decision_id, sent, time.monotonic(), int(head[9:12]), body.decode()))
        self._flood.answered(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._request is not None:
            self._flood.answers.append((self._request[0], self._request[1], None, None, ""))
            self._request = None
        if self in self._flood.idle:
            self._flood.idle.remove(self)


class Flood:
    """The requests, the connections, and what was answered."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self.idle: list[Connection] = []
        self.answers: list[tuple[str, float, float | None, int | None, str]] = []
        self.sent = 0
        self.unsent = 0
        self._running = True

    def answered(self, connection: Connection) -> None:
        if self._order["rate"] == 0 and self._running:
            self._send(connection)
        else:
            self.idle.append(connection)

    def _send(self, connection: Connection) -> None:
        decision_id = f"{self._order['label']}{self.sent}"
        self.sent += 1
        body = {"campaign_id": self._order["campaign"], "decision_id": decision_id, "context": [0.25, 0.75]}
        text = json.dumps(body).encode()
        head = (
            f"POST /decide HTTP/1.1\r\nHost: flood\r\nAuthorization: Bearer {self._order['key']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        connection.send(decision_id, head.encode() + text)

    async def run(self) -> None:
        """Send for the time ordered, then wait for the last answers."""
        loop = asyncio.get_running_loop()
        for _ in range(self._order["connections"]):
            await loop.create_connection(lambda: Connection(self), "127.0.0.1", self._order["port"])
        started = time.monotonic()
        due = 0
        if self._order["rate"] == 0:
            while self.idle:
                self._send(self.idle.pop())
        while (elapsed := time.monotonic() - started) < self._order["seconds"]:
            while due < self._order["rate"] * elapsed:
                due += 1
                if self.idle:
                    self._send(self.idle.pop())
                else:
                    self.unsent += 1
            await asyncio.sleep(TICK_SECONDS)
        self._running = False
        while len(self.answers) < self.sent and time.monotonic() - started < elapsed + LAST_ANSWERS_SECONDS:
            await asyncio.sleep(TICK_SECONDS)


def main() -> None:
    """Run one order."""
    order = json.loads(sys.argv[1])
    flood = Flood(order)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(flood.run())
    lines = [json.dumps(["unsent", flood.unsent]), *(json.dumps(answer) for answer in flood.answers)]
    Path(order["out"]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
