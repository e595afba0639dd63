"""A real server in its own process."""

import os
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from service.settings import environment_variable
from tests.service.http_client import ADMIN_KEY

CBWK = Path(sysconfig.get_path("scripts")) / "cbwk"
START_SECONDS_MAX = 240.0


@dataclass(frozen=True)
class RunningServer:
    """A server that has answered at least one request."""

    process: subprocess.Popen[str]
    port: int
    folder: Path  # its working directory, with its database

    @property
    def url(self) -> str:
        """The base URL of the server."""
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    """Return a port that no process listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_server(
    admin_key: str = ADMIN_KEY, *, port: int | None = None, **settings: str | int
) -> Iterator[RunningServer]:
    """Start `cbwk serve` in a temporary folder, wait until it answers, and kill it afterwards if it still runs.

    `settings` are fields of `service.settings.Settings`. With `port` a server can replace an earlier one.
    """
    port = port or free_port()
    command = [str(CBWK), "serve", "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CBWK_")}
    environment |= {environment_variable(name): str(value) for name, value in settings.items()}
    with (
        tempfile.TemporaryDirectory(prefix="cbwk-server-") as folder,
        subprocess.Popen(
            command,
            cwd=folder,
            # A slow machine must not fail a test; a test of the deadline sets its own. Nobody reads the pipe of stderr
            # before the end, so that a long log would block the server.
            env={"CBWK_REQUEST_DEADLINE_MS": "20000", "CBWK_LOG_LEVEL": "warning"}
            | environment
            | {"CBWK_ADMIN_KEY": admin_key},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        server = RunningServer(process, port, Path(folder))
        try:
            _wait_for_answer(server)
            yield server
        finally:
            if process.poll() is None:
                process.kill()


def _wait_for_answer(server: RunningServer) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        if server.process.poll() is not None:
            raise AssertionError(
                f"the server ended with {server.process.returncode}: {server.process.communicate()[1]}"
            )
        try:
            httpx.get(server.url + "/livez", trust_env=False)
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
