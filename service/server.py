"""One process that listens, serves and stops when told."""

import asyncio
import gc
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, NoReturn

import uvicorn
from fastapi import FastAPI

from service.allocation import keep_freed_memory
from service.app import create_app
from service.auth import KeyRing
from service.engine import Engine
from service.evaluation.runner import end_interrupted
from service.fault import fault_at
from service.hot.protocol import Connection, close_late
from service.metrics import Metrics
from service.settings import Settings
from service.store.database import Database

# How long requests under way may take once the process was told to stop.
STOP_SECONDS = 3
# libuv takes one new connection of a socket in each turn of its loop, and under load a turn is long: with several
# descriptors of the socket it takes as many. Else a newcomer would wait for seconds, even for a refusal.
ACCEPTS_PER_TURN = 32
# How long a connection may rest between two requests: an ad server keeps its connections, and one that is closed just
# when it is used again costs a request.
KEEP_ALIVE_SECONDS = 15
# Python looks for garbage in cycles whenever so many more objects were made than went by themselves. Usually it is 700,
# which the requests under way are more than: each was looked at again and again, in pauses of 3 to 15 ms, for nothing.
COLLECTED_OBJECTS = 20_000
UVICORN_OPTIONS: dict[str, Any] = {
    "timeout_keep_alive": KEEP_ALIVE_SECONDS,
    "log_level": "warning",
    "access_log": False,
    "log_config": None,
    "ws": "none",
    "http": Connection,
    "timeout_graceful_shutdown": STOP_SECONDS,
    "proxy_headers": False,  # nothing here depends on the client's address
    "server_header": False,
}


def listen(host: str, port: int) -> socket.socket:
    """A socket that already accepts connections, so that whoever reads its address may connect at once.

    Raises OSError where the address is taken, unknown or not ours.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # A restart must not wait for the last connections of the process before it to time out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a client finds the listener, with the port it really got."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def serve(settings: Settings, listener: socket.socket, database: Database) -> None:
    """Answer requests until SIGTERM or SIGINT, finish those under way, then exit the process with code 0.

    If SQLite's file fails, what is queued is answered with 503 and the process ends with code 1.
    """
    # uvicorn raises the signal again once it has shut down, and the default handler would then kill an orderly stop.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    admin_key = None if settings.admin_key is None else settings.admin_key.get_secret_value()
    metrics, failures = Metrics(), list[bool]()

    def fail() -> None:
        failures.append(True)
        server.should_exit = True

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine = Engine(
            database,
            queue_max=settings.queue_max,
            deadline_seconds=settings.request_deadline_ms / 1000,
            memory_bytes_max=settings.memory_bytes_max,
            lock_timeout_ms=settings.lock_timeout_ms,
            metrics=metrics,
            reached=fault_at(settings.fault_point),
            on_failure=fail,
        )
        await engine.start()
        app.state.engine = engine
        end_interrupted(database)
        # What is there by now stays for good, and to look through it again and again would hold up requests.
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECTED_OBJECTS)
        keep_freed_memory()
        sweep = asyncio.create_task(close_late(server.server_state.connections, settings.receive_seconds_max))
        try:
            yield
        finally:  # by now no request is under way: uvicorn has waited for them
            sweep.cancel()
            await asyncio.to_thread(app.state.evaluations.stop)
            await engine.stop()
            database.close()

    keyring = KeyRing(database, admin_key)
    app = create_app(settings, database=database, keyring=keyring, metrics=metrics, lifespan=lifespan)
    config = uvicorn.Config(app, **UVICORN_OPTIONS)
    server = uvicorn.Server(config)
    server.run(sockets=[listener, *(listener.dup() for _ in range(ACCEPTS_PER_TURN - 1))])
    if failures:
        raise SystemExit(1)
