"""A load generator: one process, many connections, requests as bytes made beforehand.

An answer is read as far as its status, its length and what the caller looks for in it, which takes less of a core than
any server takes to make it; `Load.busy` says how much, so that nobody has to believe it.
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

# Between two looks while nothing is measured: the least that uvloop waits for.
TICK_SECONDS = 0.001
# Requests under way that an open loop may have: beyond it the server is not keeping up, and the load says so.
WAITING_MAX = 20_000
END_SECONDS_MAX = 30.0

Answered = Callable[[Any, bytes], None]


@dataclass(frozen=True)
class Call:
    """One request: its bytes, and what the caller knows it by."""

    data: bytes
    tag: Any = None


@dataclass
class Load:
    """What a load saw."""

    seconds: float = 0.0
    busy: float = 0.0  # share of the time in which the generator itself was at work
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)  # seconds, of every answer
    late: int = 0  # requests an open loop could not send at all

    @property
    def rate(self) -> float:
        """Answers of status 200 per second."""
        return self.statuses[200] / self.seconds

    def percentile(self, share: float) -> float:
        """The latency, in seconds, that so many percent of the answers stay within."""
        return float(np.percentile(self.latencies, share))

    def check(self) -> Load:
        """The same load, if all went well."""
        if set(self.statuses) != {200}:
            raise RuntimeError(f"the server should have answered 200 to everything, got {dict(self.statuses)}")
        return self


class _Connection(asyncio.Protocol):
    """One connection that is kept, with at most one request under way."""

    def __init__(self, idle: Callable[[_Connection], None], load: Load, answered: Answered | None) -> None:
        self._idle, self._load, self._answered = idle, load, answered
        self._buffer = b""
        self._call: Call | None = None
        self._since = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        """Keep what to write to."""
        self.transport = transport

    def send(self, call: Call, since: float) -> None:
        """Send a request whose latency counts from `since`."""
        self._call, self._since = call, since
        self.transport.write(call.data)

    def data_received(self, data: bytes) -> None:
        """Read on, until the answer is whole."""
        buffer = self._buffer + data if self._buffer else data
        head = buffer.find(b"\r\n\r\n")
        at = buffer.find(b"content-length: ", 0, head)
        if head < 0 or at < 0 or len(buffer) < head + 4 + int(buffer[at + 16 : buffer.find(b"\r", at)]):
            self._buffer = buffer
            return
        self._buffer = b""
        call, self._call = self._call, None
        assert call is not None, "a server answers only what it is asked"
        load = self._load
        load.latencies.append(time.perf_counter() - self._since)
        load.statuses[int(buffer[9:12])] += 1
        if self._answered is not None:
            self._answered(call.tag, buffer[head + 4 :])
        self._idle(self)

    def connection_lost(self, error: Exception | None) -> None:
        """A connection that goes with a request under way is an answer that never came."""
        if self._call is not None:
            self._load.statuses[0] += 1


def closed_loop(
    ports: Sequence[int],
    calls: Iterator[Call],
    *,
    connections: int,
    seconds: float,
    answered: Answered | None = None,
    beside: Call | None = None,
) -> Load:
    """Every connection sends its next request as soon as it has its answer, for so long or until there are no more.

    Connections are to the ports in turn. `beside` is asked once a second on a connection of its own, and not counted.
    """
    return uvloop.run(_closed(ports, calls, connections, seconds, answered, beside))


async def _closed(
    ports: Sequence[int],
    calls: Iterator[Call],
    connections: int,
    seconds: float,
    answered: Answered | None,
    beside: Call | None,
) -> Load:
    load, done = Load(), asyncio.Event()
    under_way = connections

    def more(connection: _Connection) -> None:
        nonlocal under_way
        now = time.perf_counter()
        call = next(calls, None) if now < end else None
        if call is not None:
            connection.send(call, now)
            return
        under_way -= 1
        if not under_way:
            done.set()

    opened = await _opened(ports, connections, more, load, answered)
    aside = None if beside is None else asyncio.create_task(_asked_beside(ports, beside))
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


async def _asked_beside(ports: Sequence[int], call: Call) -> None:
    (connection,) = await _opened(ports, 1, lambda _: None, Load(), None)
    try:
        while True:
            await asyncio.sleep(1.0)
            connection.send(call, time.perf_counter())
    finally:
        connection.transport.close()


def open_loop(ports: Sequence[int], calls: Iterator[Call], *, connections: int, seconds: float, rate: float) -> Load:
    """Requests leave at a fixed rate whatever comes back; latency counts from when a request should have left.

    Every connection is used once before that, and not counted: clients keep theirs, and a server that has just been
    connected to takes them up while the first requests wait.
    """
    return uvloop.run(_open(ports, calls, connections, seconds, rate))


async def _open(ports: Sequence[int], calls: Iterator[Call], connections: int, seconds: float, rate: float) -> Load:
    load = Load()
    free: deque[_Connection] = deque()
    opened = await _opened(ports, connections, free.append, load, None)
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
        due = min(total, 1 + int((time.perf_counter() - started) * rate))  # the first leaves at once
        while sent < due and free:
            free.popleft().send(next(calls), started + sent / rate)
            sent += 1
        if due - sent > WAITING_MAX or time.perf_counter() > started + seconds + END_SECONDS_MAX:
            load.late = total - sent
            break
        # No sleep: a millisecond of it would count as the server's. Where there are two cores one is ours.
        await asyncio.sleep(0)
    load.seconds = time.perf_counter() - started
    load.busy = (time.process_time() - used) / load.seconds
    for connection in opened:
        connection.transport.close()
    return load


async def _opened(
    ports: Sequence[int],
    connections: int,
    idle: Callable[[_Connection], None],
    load: Load,
    answered: Answered | None,
) -> list[_Connection]:
    loop = asyncio.get_running_loop()
    made = await asyncio.gather(
        *(
            loop.create_connection(lambda: _Connection(idle, load, answered), "127.0.0.1", ports[i % len(ports)])
            for i in range(connections)
        )
    )
    return [connection for _, connection in made]
