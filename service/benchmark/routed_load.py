"""Loads on several replicas: each request goes to the replica that its campaign is routed to.

The generator sleeps between its turns: database and replicas need the cores, and processor time is what is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvloop

from service.benchmark.load import END_SECONDS_MAX, TICK_SECONDS, WAITING_MAX, Call, Load, OnResponse, open_connections

Route = Callable[[Call], int]  # the index of the replica that a request goes to


def round_robin(replicas: int) -> Route:
    """Returns a route that goes to each replica in turn."""
    turn = itertools.cycle(range(replicas))
    return lambda _: next(turn)


def by_campaign(replica_of: Callable[[str], int]) -> Route:
    """Returns a route that goes to the replica of the campaign."""
    return lambda call: replica_of(call.tag[0])


class _Router:
    """Connections to replicas, and the requests that wait for a free one of their replica."""

    def __init__(self, replicas: int, route: Route, calls: Iterator[Call]) -> None:
        self._route, self._calls = route, calls
        self.free: list[deque[Any]] = [deque() for _ in range(replicas)]
        self._waiting: list[deque[tuple[Call, float]]] = [deque() for _ in range(replicas)]
        self._replica_of: dict[int, int] = {}  # by the identity of the connection
        self.sent = self.answered = 0

    def add(self, connection: Any, replica: int) -> None:
        """Use another connection, which is free."""
        self._replica_of[id(connection)] = replica
        self.free[replica].append(connection)

    def send_next(self, since: float) -> None:
        """Send the next request, or keep it until a connection of its replica is free."""
        call = next(self._calls)
        replica = self._route(call)
        self.sent += 1
        if self.free[replica]:
            self.free[replica].popleft().send(call, since)
        else:
            self._waiting[replica].append((call, since))

    def idle(self, connection: Any) -> None:
        """A connection has its response."""
        self.answered += 1
        replica = self._replica_of[id(connection)]
        if self._waiting[replica]:
            connection.send(*self._waiting[replica].popleft())
        else:
            self.free[replica].append(connection)


def routed_open_loop(
    ports: Sequence[int],
    calls: Iterator[Call],
    route: Route,
    *,
    connections: int,
    seconds: float,
    rate: float,
    on_response: OnResponse | None = None,
) -> Load:
    """Sends requests at a fixed rate; latency counts from the time at which a request was due."""
    return uvloop.run(_open(ports, calls, route, connections, seconds, rate, on_response))


async def _open(
    ports: Sequence[int],
    calls: Iterator[Call],
    route: Route,
    connections: int,
    seconds: float,
    rate: float,
    on_response: OnResponse | None,
) -> Load:
    load, router = Load(), _Router(len(ports), route, calls)
    made = await open_connections(ports, connections, router.idle, load, on_response)
    for index, connection in enumerate(made):
        router.add(connection, index % len(ports))
    started, total = time.perf_counter(), int(rate * seconds)
    while router.answered < total:
        now = time.perf_counter() - started
        due = min(total, 1 + int(now * rate))
        while router.sent < due:
            router.send_next(started + router.sent / rate)
        if due - router.answered > WAITING_MAX or now > seconds + END_SECONDS_MAX:
            load.late = total - router.answered
            break
        await asyncio.sleep(TICK_SECONDS)
    load.seconds = time.perf_counter() - started
    for connection in made:
        connection.transport.close()
    return load


def routed_closed_loop(
    ports: Sequence[int],
    calls: Iterator[Call],
    route: Route,
    *,
    connections: int,
    seconds: float,
    on_response: OnResponse | None = None,
) -> Load:
    """As many requests are under way as there are connections, wherever their replicas are, until the time is over."""
    return uvloop.run(_closed(ports, calls, route, connections, seconds, on_response))


async def _closed(
    ports: Sequence[int],
    calls: Iterator[Call],
    route: Route,
    connections: int,
    seconds: float,
    on_response: OnResponse | None,
) -> Load:
    load, done, router = Load(), asyncio.Event(), _Router(len(ports), route, calls)

    def next_call(connection: Any) -> None:
        router.idle(connection)
        now = time.perf_counter()
        if now < end:
            router.send_next(now)
        elif router.answered == router.sent:
            done.set()

    # Routes are not quite even: each replica has a connection for every request that may be under way.
    made = await open_connections(ports, connections * len(ports), next_call, load, on_response)
    for index, connection in enumerate(made):
        router.add(connection, index % len(ports))
    started = time.perf_counter()
    end = started + seconds
    for _ in range(connections):
        router.send_next(started)
    await asyncio.wait_for(done.wait(), seconds + END_SECONDS_MAX)
    load.seconds = time.perf_counter() - started
    for connection in made:
        connection.transport.close()
    return load
