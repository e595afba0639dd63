"""Debian's PgBouncer in front of a PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.service.server_process import free_port

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
MISSING = "" if PROGRAM else "PgBouncer is not installed (apt-get install pgbouncer)"
START_SECONDS_MAX = 10.0


@dataclass
class Pooler:
    """A running PgBouncer."""

    configuration: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def url(self, name: str) -> str:
        """Return the URL by which a database is reached through it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        owner = self.configuration.stat().st_uid
        self.process = subprocess.Popen(
            [str(PROGRAM), "-q", self.configuration], user=owner if os.geteuid() == 0 else None
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                psycopg.connect(self.url("pgbouncer"), connect_timeout=2).close()
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "PgBouncer does not start"
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """Kill it; every connection through it is lost."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def change_mode(self, mode: str) -> None:
        """Change its pool mode while it runs; clients stay connected, and sessions are made again once released."""
        before = self.configuration.read_text().partition("pool_mode = ")[0]
        self.configuration.write_text(f"{before}pool_mode = {mode}\n")
        with psycopg.connect(self.url("pgbouncer"), autocommit=True) as console:
            for command in ("RELOAD", "RECONNECT"):
                console.execute(command)


@contextmanager
def new_pooler(server: Path, mode: str, **settings: int) -> Iterator[Pooler]:
    """Start PgBouncer in a pool mode for the server with this data folder; stop it afterwards."""
    assert PROGRAM, MISSING
    folder = Path(tempfile.mkdtemp(prefix="cbwk-pgbouncer-"))
    port = free_port()
    lines = [
        "[databases]",
        f"* = host={server} user=postgres",
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = any",
        "admin_users = postgres",
        *(f"{name} = {value}" for name, value in settings.items()),
        f"pool_mode = {mode}",
    ]
    configuration = folder / "pgbouncer.ini"
    configuration.write_text("\n".join(lines) + "\n")
    # PgBouncer refuses to run as root, and other users do not reach the server's socket.
    for path in (folder, configuration):
        os.chown(path, server.stat().st_uid, -1)
    pooler = Pooler(configuration, port)
    try:
        pooler.start()
        yield pooler
    finally:
        pooler.kill()
        shutil.rmtree(folder)
