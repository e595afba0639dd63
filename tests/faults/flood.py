"""A process that sends decisions at a fixed rate, whatever the answers are: `python -m tests.faults.flood ORDER`.

ORDER is JSON: port, key, campaign, label, rate (a second; 0: as fast as the answers come), seconds, connections, out.
Every request has a connection to itself while it waits, so that a slow answer delays no other request; where all are
taken, the request is not sent and counted. What was sent and answered goes to the file `out`, one JSON array a line;
of an answer that refuses only its kind is kept.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import uvloop

from service.problems import TYPE_PREFIX

TICK_SECONDS = 0.004
LAST_ANSWERS_SECONDS = 8.0
CONTEXT = [0.25, 0.75] * 10
_KIND = TYPE_PREFIX.encode()


class Connection(asyncio.Protocol):
    """Sends one request at a time, without an HTTP library: the client must be cheaper than the service."""

    def __init__(self, flood: Flood) -> None:
        self._flood = flood
        self._received = b""
        self._number = -1  # of the current request
        self._sent_at = 0.0
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._flood.idle.append(self)

    def send(self, number: int, request: bytes) -> None:
        self._number, self._sent_at = number, time.monotonic()
        self.transport.write(request)

    def data_received(self, piece: bytes) -> None:
        received = self._received + piece if self._received else piece
        head = received.find(b"\r\n\r\n")
        at = received.find(b"content-length: ", 0, head)
        if head < 0 or len(received) < head + 4 + int(received[at + 16 : received.find(b"\r", at)]):
            self._received = received
            return
        self._received = b""
        status, body = int(received[9:12]), received[head + 4 :]
        if status == 503:
            body = body.partition(_KIND)[2].partition(b'"')[0]
        self._flood.answers.append((self._number, self._sent_at, time.monotonic(), status, body))
        self._number = -1
        self._flood.answered(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._number >= 0:
            self._flood.answers.append((self._number, self._sent_at, None, None, b""))
            self._number = -1
        if self in self._flood.idle:
            self._flood.idle.remove(self)


class Flood:
    """The requests, the connections and the answers."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self.idle: deque[Connection] = deque()  # the longest idle one is next, before the service closes it
        self.answers: list[tuple[int, float, float | None, int | None, bytes]] = []
        self.sent = 0
        self.unsent = 0
        self._running = True
        body = {"campaign_id": order["campaign"], "decision_id": "DECISION", "context": CONTEXT}
        parts = json.dumps(body).encode().partition(b"DECISION")
        self._before, self._after = parts[0], parts[2]
        self._head = (
            f"POST /decide HTTP/1.1\r\nHost: flood\r\nAuthorization: Bearer {order['key']}\r\n"
            "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        ).encode()

    def name(self, number: int) -> str:
        """Return the id of a decision."""
        return f"{self._order['label']}{number}"

    def answered(self, connection: Connection) -> None:
        if self._order["rate"] == 0 and self._running:
            self._send(connection)
        else:
            self.idle.append(connection)

    def _send(self, connection: Connection) -> None:
        body = self._before + self.name(self.sent).encode() + self._after
        connection.send(self.sent, self._head % len(body) + body)
        self.sent += 1

    async def run(self) -> None:
        """Send for the requested time, then wait for the last answers."""
        loop = asyncio.get_running_loop()
        for _ in range(self._order["connections"]):
            await loop.create_connection(lambda: Connection(self), "127.0.0.1", self._order["port"])
        started = time.monotonic()
        due = 0
        if self._order["rate"] == 0:
            while self.idle:
                self._send(self.idle.popleft())
        while (elapsed := time.monotonic() - started) < self._order["seconds"]:
            while due < self._order["rate"] * elapsed:
                due += 1
                if self.idle:
                    self._send(self.idle.popleft())
                else:
                    self.unsent += 1
            await asyncio.sleep(TICK_SECONDS)
        self._running = False
        while len(self.answers) < self.sent and time.monotonic() - started < elapsed + LAST_ANSWERS_SECONDS:
            await asyncio.sleep(TICK_SECONDS)


def main() -> None:
    """Run one order and write its results."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    order = json.loads(sys.argv[1])
    flood = Flood(order)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(flood.run())
    with Path(order["out"]).open("w") as out:
        busy = time.process_time() / order["seconds"]
        print(json.dumps({"unsent": flood.unsent, "busy": busy}), file=out)
        for number, *times, status, body in flood.answers:
            print(json.dumps([flood.name(number), *times, status, body.decode()]), file=out)


if __name__ == "__main__":
    main()
