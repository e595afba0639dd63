"""One server process: it listens, serves requests and stops on a signal."""

import asyncio
import ctypes
import gc
import signal
import socket
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from types import FrameType
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

from service.app import PLAIN, Instrumentation, create_app
from service.auth import KeyRing
from service.evaluation.runner import end_interrupted
from service.fault import fault_at
from service.hot.protocol import Connection, close_late
from service.metrics import Metrics
from service.settings import Settings
from service.store.database import Database
from service.webhooks.sender import Sender

log = structlog.get_logger(__name__)

STOP_SECONDS = 3  # for requests in progress when the process receives a signal
# libuv accepts one connection per descriptor in each iteration of its loop, and under load an iteration is long: with
# one descriptor of the socket, new clients would wait for seconds, even for a refusal.
ACCEPTS_PER_ITERATION = 32
# For idle connections: a request is lost if its connection is closed at the moment when the client uses it again.
KEEP_ALIVE_SECONDS = 15
# What the kernel takes of an answer before the client reads. By default it is megabytes for each connection, and a slow
# client looks as if it did not read at all.
KERNEL_UNSENT_BYTES_MAX = 2**17
# The garbage collector runs after this many net allocations. Requests in progress exceed the default of 700; the
# collector then paused the process for 3 to 15 ms again and again and found nothing.
GC_THRESHOLD = 20_000
# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# A batch of 256 decisions allocates and frees a few megabytes of arrays. By default glibc may return this memory to the
# system each time. In some processes, depending on the position of the first allocations, that costs 500 page faults or
# a sixth of the time of every batch.
FREE_BYTES_MAX = 64 * 2**20
HEAP_BLOCK_BYTES_MAX = 32 * 2**20  # the largest value that glibc accepts
UVICORN_OPTIONS: dict[str, Any] = {
    "timeout_keep_alive": KEEP_ALIVE_SECONDS,
    "log_level": "warning",
    "access_log": False,
    "log_config": None,
    "ws": "none",
    "http": Connection,
    "timeout_graceful_shutdown": STOP_SECONDS,
    "proxy_headers": False,  # nothing depends on the address of the client
    "server_header": False,
}


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections; raise OSError if the address is in use, unknown or not local."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # A restart need not wait until the connections of the previous process time out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_UNSENT_BYTES_MAX)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of the listener, with the port that the system assigned."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next batch; return whether the allocator is glibc and accepts this."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        accepted = (mallopt(_M_TRIM_THRESHOLD, FREE_BYTES_MAX), mallopt(_M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX))
        return all(accepted)
    return False


def _log_start(settings: Settings, listener: socket.socket, database: Database) -> None:
    """Log what starts: the version, the database, and every setting that is no secret."""
    secrets = {"admin_key", "database_url"}
    log.info(
        "the service has started",
        version=version("cbwk"),
        address=url_of(listener),
        database=database.shown_url,
        settings=settings.model_dump(mode="json", exclude=secrets),
    )


def _exit(_number: int, _frame: FrameType | None) -> None:
    # A server that was made and has not begun is no mistake where the process ends.
    warnings.simplefilter("ignore", RuntimeWarning)
    sys.exit(0)


def serve(
    settings: Settings, listener: socket.socket, database: Database, instrumentation: Instrumentation = PLAIN
) -> None:
    """Serve requests until SIGTERM or SIGINT, finish those in progress, then exit with code 0.

    If the SQLite file fails, queued requests are answered with 503 and the process exits with code 1.
    """
    # After its shutdown uvicorn raises the signal again; the default handler would end the process with an error.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    admin_key = None if settings.admin_key is None else settings.admin_key.get_secret_value()
    metrics, failures = Metrics(settings.metrics_campaigns_max), list[bool]()

    def fail() -> None:
        failures.append(True)
        server.should_exit = True

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine = instrumentation.engine(
            database,
            queue_max=settings.queue_max,
            deadline_seconds=settings.request_deadline_ms / 1000,
            memory_bytes_max=settings.memory_bytes_max,
            lock_timeout_ms=settings.lock_timeout_ms,
            work_max=settings.decide_work_max,
            slow_seconds=settings.slow_transaction_ms / 1000,
            metrics=metrics,
            reached=fault_at(settings.fault_point),
            on_failure=fail,
        )
        await engine.start()
        app.state.engine = engine
        end_interrupted(database)
        # Objects that exist now live as long as the process; the collector need not traverse them.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        keep_freed_memory()
        sweep = asyncio.create_task(close_late(server.server_state.connections, settings.receive_seconds_max))
        sender = asyncio.create_task(Sender(database, engine, private=settings.webhook_private).run())
        app.state.tasks += (sweep, sender)
        _log_start(settings, listener, database)
        try:
            yield
        finally:  # uvicorn has finished all requests
            log.info("the service stops")
            sweep.cancel()
            sender.cancel()
            await asyncio.to_thread(app.state.evaluations.stop)
            await engine.stop()
            await asyncio.to_thread(instrumentation.stop)
            database.close()
            log.info("the service has stopped")
            if app.state.access_log is not None:
                app.state.access_log.close()

    keyring = KeyRing(database, admin_key)
    app = create_app(
        settings,
        database=database,
        keyring=keyring,
        metrics=metrics,
        lifespan=lifespan,
        instrumentation=instrumentation,
    )
    server = uvicorn.Server(uvicorn.Config(app, **UVICORN_OPTIONS))
    server.run(sockets=[listener, *(listener.dup() for _ in range(ACCEPTS_PER_ITERATION - 1))])
    if failures:
        sys.exit(1)
