"""`cbwk serve --workers N`: N processes on consecutive ports, which are started, restarted and stopped together.

Nothing passes requests on: the client with several addresses or a balancer chooses among the processes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
import typer

from service import server
from service.commands import haproxy
from service.settings import Settings, environment_variable

# The pause before a restart doubles with every worker that ends early.
RESTART_SECONDS_MIN, RESTART_SECONDS_MAX = 0.5, 30.0
EARLY_SECONDS: Final = 60.0
STOP_SECONDS_MAX = server.STOP_SECONDS + 5.0
POLL_SECONDS: Final = 0.05
_STOPPED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)  # the last two while Python starts
_PR_SET_PDEATHSIG: Final = 1  # from Linux' prctl.h
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}

log = structlog.get_logger(__name__)


@dataclass
class _Worker:
    settings: Settings
    port: int
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    ended_early: int = 0  # in a row
    restart_at: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        """Start the process, with the same settings but its port."""
        named = {"host": self.settings.host, "port": self.port, "database_url": self.settings.database_url}
        environment = os.environ | {environment_variable(name): str(value) for name, value in named.items()}
        command = [sys.executable, "-P", "-m", "service", "serve"]
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(command, env=environment, preexec_fn=_end_with_parent)  # noqa: PLW1509 - no threads

    def look(self) -> None:
        """Start the process if it is time to, or note that it has ended."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.restart_at:
                self.start()
            return
        code = self.process.poll()
        if code is not None:
            worker, self.process = self.process.pid, None
            self.ended_early = self.ended_early + 1 if now - self.started_at < EARLY_SECONDS else 0
            pause = min(RESTART_SECONDS_MAX, RESTART_SECONDS_MIN * 2.0 ** max(0, min(self.ended_early, 10) - 1))
            self.restart_at = now + pause
            log.error("a worker ended", port=self.port, worker=worker, code=code, restart_in_seconds=pause)


def _end_with_parent() -> None:
    """Have the kernel end this process when the supervisor is killed, so that no worker is left behind."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def check(settings: Settings, workers: int) -> None:
    """Raise an error of the command line if the settings cannot be those of several processes."""
    if settings.database_url.startswith("sqlite"):
        raise typer.BadParameter("several workers need PostgreSQL: SQLite is for one process", param_hint="--workers")
    if not 0 < settings.port <= 65536 - workers:
        raise typer.BadParameter("several workers need a port, and as many after it", param_hint="--port")


def ports(settings: Settings, workers: int) -> range:
    """Return the port of each process."""
    return range(settings.port, settings.port + workers)


def addresses(settings: Settings, workers: int) -> list[str]:
    """Return where the processes are reached: host:port, one for each."""
    host = _ANYWHERE.get(settings.host, settings.host)
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for port in ports(settings, workers)]


def balancer(settings: Settings, workers: int) -> str:
    """Return the configuration of HAProxy for the processes."""
    return haproxy.configuration({"cbwk": addresses(settings, workers)})


def supervise(settings: Settings, workers: int) -> int:
    """Keep the processes running until SIGTERM or SIGINT; then stop them and return the exit code: 1 if one failed."""
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopping.append(received))
    team = [_Worker(settings, port) for port in ports(settings, workers)]
    urls = ", ".join(f'"http://{address}"' for address in addresses(settings, workers))
    typer.echo(f"clients: Client([{urls}], key)", err=True)
    again = f"cbwk serve --host {settings.host} --port {settings.port} --workers {workers} --print-haproxy"
    typer.echo(f"HAProxy: {again} > haproxy.cfg", err=True)
    while not stopping:
        for worker in team:
            worker.look()
        time.sleep(POLL_SECONDS)
    return _stopped([worker.process for worker in team if worker.process is not None])


def _stopped(processes: list[subprocess.Popen[Any]]) -> int:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS_MAX
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.error("a worker does not stop and is killed", pid=process.pid)
            process.kill()
            process.wait()
    return int(any(process.returncode not in _STOPPED for process in processes))
