"""Server processes, pinned to their own core."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from service.settings import environment_variable

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0


@dataclass(frozen=True)
class Server:
    """A server that accepts requests."""

    process: subprocess.Popen[bytes]
    port: int
    key: str
    ready_seconds: float  # from the start of the process to its first /readyz of 200

    @property
    def url(self) -> str:
        """Returns the address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> httpx.Client:
        """Returns a client with the admin key."""
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, trust_env=False, timeout=60.0
        )

    def memory_bytes(self) -> int:
        """Returns the resident memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the server has no resident memory")


class Cores:
    """One core for the servers and another for everything else; the same one if there is only one."""

    def __init__(self) -> None:
        self.all = sorted(os.sched_getaffinity(0))
        self.server, self.load = self.all[0], self.all[-1]

    @property
    def apart(self) -> bool:
        """Tells whether there are two cores."""
        return self.server != self.load


@contextmanager
def pinned(cores: Cores) -> Iterator[None]:
    """Pins this process and its children to the core of the load."""
    os.sched_setaffinity(0, {cores.load})
    try:
        yield
    finally:
        os.sched_setaffinity(0, set(cores.all))


@contextmanager
def served(
    cores: Cores, database_url: str, *, key: str | None = None, pin: bool = True, **settings: str | int
) -> Iterator[Server]:
    """Runs `cbwk serve` on a database, on the core for servers or, if not pinned, on any."""
    key = key or secrets.token_hex(32)
    chosen = {"database_url": database_url, "admin_key": key, **settings}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CBWK_")}
    environment |= {environment_variable(name): str(value) for name, value in chosen.items()}
    port = _free_port()
    command = [sys.executable, "-c", "import sys; from service.cli import main; sys.exit(main())"]
    with _process([*command, "serve", "--port", str(port)], environment, cores if pin else None, port, key) as server:
        yield server


@contextmanager
def baseline(cores: Cores) -> Iterator[Server]:
    """Runs the empty handler."""
    port = _free_port()
    command = [sys.executable, "-m", "service.benchmark.baseline", str(port)]
    with _process(command, dict(os.environ), cores, port, key="") as server:
        yield server


@contextmanager
def redis_peer(cores: Cores, redis_socket: Path) -> Iterator[Server]:
    """Runs the peer of `redis_peer.py` with the Redis at this socket."""
    port = _free_port()
    command = [sys.executable, "-m", "service.benchmark.redis_peer", str(port), str(redis_socket)]
    with _process(command, dict(os.environ), cores, port, key="unused") as server:
        yield server


@contextmanager
def _process(
    command: Sequence[str], environment: dict[str, str], cores: Cores | None, port: int, key: str
) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="cbwk-bench-") as folder:
        started = time.perf_counter()
        errors = Path(folder, "stderr")
        with errors.open("wb") as stderr:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=stderr, stderr=stderr)
        if cores is not None:
            os.sched_setaffinity(process.pid, {cores.server})
        try:
            _wait(process, port, errors)
            yield Server(process, port, key, time.perf_counter() - started)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(process: subprocess.Popen[bytes], port: int, errors: Path) -> None:
    deadline = time.perf_counter() + START_SECONDS_MAX
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            raise RuntimeError(
                f"the server ended with {process.returncode}: {errors.read_text(errors='replace')[-2000:]}"
            )
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.01)
    raise RuntimeError("the server was not ready in time")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
