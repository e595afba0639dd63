"""A load generator: one process, many connections, requests prepared as bytes.

It reads only the status and the length of a response, which takes less of a core than producing the response;
`Load.busy` is the share it takes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvloop

# Interval of checks while nothing is measured: the shortest sleep of uvloop.
TICK_SECONDS = 0.001
# Requests that an open loop may owe; with more the server does not keep up, and the loop ends.
WAITING_MAX = 20_000
END_SECONDS_MAX = 30.0

OnResponse = Callable[[Any, bytes], None]


@dataclass(frozen=True)
class Call:
    """One request: its bytes, and a tag of the caller."""

    data: bytes
    tag: Any = None


@dataclass
class Load:
    """The measurements of one load."""

    seconds: float = 0.0
    busy: float = 0.0  # share of a core that the generator used
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)  # seconds, of every response
    late: int = 0  # requests an open loop did not send

    @property
    def rate(self) -> float:
        """Returns the responses of status 200 per second."""
        return self.statuses[200] / self.seconds

    def percentile(self, share: float) -> float:
        """Returns a percentile of the latency in seconds."""
        return float(np.percentile(self.latencies, share))

    def check(self) -> Load:
        """Returns the same load; raises unless every response was 200."""
        if set(self.statuses) != {200}:
            raise RuntimeError(f"the server must answer everything with 200, got {dict(self.statuses)}")
        return self


class _Connection(asyncio.Protocol):
    """One persistent connection with at most one request in flight."""

    def __init__(self, idle: Callable[[_Connection], None], load: Load, on_response: OnResponse | None) -> None:
        self._idle, self._load, self._on_response = idle, load, on_response
        self._buffer = b""
        self._call: Call | None = None
        self._since = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        """Stores the transport."""
        self.transport = transport

    def send(self, call: Call, since: float) -> None:
        """Sends a request whose latency counts from `since`."""
        self._call, self._since = call, since
        self.transport.write(call.data)

    def data_received(self, data: bytes) -> None:
        """Reads until the response is complete."""
        buffer = self._buffer + data if self._buffer else data
        head = buffer.find(b"\r\n\r\n")
        at = buffer.find(b"content-length: ", 0, head)
        if head < 0 or at < 0 or len(buffer) < head + 4 + int(buffer[at + 16 : buffer.find(b"\r", at)]):
            self._buffer = buffer
            return
        self._buffer = b""
        call, self._call = self._call, None
        assert call is not None, "a response without a request"
        load = self._load
        load.latencies.append(time.perf_counter() - self._since)
        status = int(buffer[9:12])
        load.statuses[status] += 1
        if status == 200 and self._on_response is not None:
            self._on_response(call.tag, buffer[head + 4 :])
        self._idle(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Counts a request without a response as status 0."""
        if self._call is not None:
            self._load.statuses[0] += 1


def closed_loop(
    ports: Sequence[int],
    calls: Iterator[Call],
    *,
    connections: int,
    seconds: float,
    on_response: OnResponse | None = None,
    beside: Call | None = None,
) -> Load:
    """Every connection sends its next request when it has a response, until the time or the calls are over.

    Connections go to the ports in turn. `beside` is sent once a second on its own connection and is not counted.
    """
    return uvloop.run(_closed(ports, calls, connections, seconds, on_response, beside))


async def _closed(
    ports: Sequence[int],
    calls: Iterator[Call],
    connections: int,
    seconds: float,
    on_response: OnResponse | None,
    beside: Call | None,
) -> Load:
    load, done = Load(), asyncio.Event()
    active = connections

    def more(connection: _Connection) -> None:
        nonlocal active
        now = time.perf_counter()
        call = next(calls, None) if now < end else None
        if call is not None:
            connection.send(call, now)
            return
        active -= 1
        if not active:
            done.set()

    opened = await open_connections(ports, connections, more, load, on_response)
    aside = None if beside is None else asyncio.create_task(_repeat(ports, beside))
    started, used = time.perf_counter(), time.process_time()
    end = started + seconds
    for connection in opened:
        more(connection)
    await asyncio.wait_for(done.wait(), seconds + END_SECONDS_MAX)
    load.seconds = time.perf_counter() - started
    load.busy = (time.process_time() - used) / load.seconds
    if aside is not None:
        aside.cancel()
    for connection in opened:
        connection.transport.close()
    return load


async def _repeat(ports: Sequence[int], call: Call) -> None:
    (connection,) = await open_connections(ports, 1, lambda _: None, Load(), None)
    try:
        while True:
            await asyncio.sleep(1.0)
            connection.send(call, time.perf_counter())
    finally:
        connection.transport.close()


def open_loop(ports: Sequence[int], calls: Iterator[Call], *, connections: int, seconds: float, rate: float) -> Load:
    """Sends requests at a fixed rate; latency counts from the time at which a request was due.

    Every connection is used once before that, uncounted: clients keep connections, and accepting them takes time.
    """
    return uvloop.run(_open(ports, calls, connections, seconds, rate))


async def _open(ports: Sequence[int], calls: Iterator[Call], connections: int, seconds: float, rate: float) -> Load:
    load = Load()
    free: deque[_Connection] = deque()
    opened = await open_connections(ports, connections, free.append, load, None)
    end = time.perf_counter() + END_SECONDS_MAX
    for connection in opened:
        connection.send(next(calls), time.perf_counter())
    while len(free) < connections and time.perf_counter() < end:
        await asyncio.sleep(TICK_SECONDS)
    if set(load.statuses) == {200}:
        load.statuses.clear()
        load.latencies.clear()
    started, used, sent = time.perf_counter(), time.process_time(), 0
    total = int(rate * seconds)
    while sent < total or len(free) < connections:
        due = min(total, 1 + int((time.perf_counter() - started) * rate))  # the first is due at once
        while sent < due and free:
            free.popleft().send(next(calls), started + sent / rate)
            sent += 1
        if due - sent > WAITING_MAX or time.perf_counter() > started + seconds + END_SECONDS_MAX:
            load.late = total - sent
            break
        # No sleep: it would count as latency of the server. With two cores, one is the generator's.
        await asyncio.sleep(0)
    load.seconds = time.perf_counter() - started
    load.busy = (time.process_time() - used) / load.seconds
    for connection in opened:
        connection.transport.close()
    return load


async def open_connections(
    ports: Sequence[int],
    connections: int,
    idle: Callable[[_Connection], None],
    load: Load,
    on_response: OnResponse | None,
) -> list[_Connection]:
    loop = asyncio.get_running_loop()
    made = await asyncio.gather(
        *(
            loop.create_connection(lambda: _Connection(idle, load, on_response), "127.0.0.1", ports[i % len(ports)])
            for i in range(connections)
        )
    )
    return [connection for _, connection in made]
