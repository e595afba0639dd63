"""Debian's HAProxy before some replicas, with the configuration that `service.commands.haproxy` makes."""

from __future__ import annotations

import csv
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from service.commands.haproxy import configuration
from tests.service.server_process import free_port

PROGRAM = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
MISSING = "" if PROGRAM else "HAProxy is not installed (apt-get install haproxy)"
START_SECONDS_MAX = 20.0


@dataclass(frozen=True)
class Balancer:
    """A running HAProxy."""

    folder: Path
    port: int
    local: int

    @property
    def url(self) -> str:
        """The address by which the replicas are reached."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def map_file(self) -> Path:
        """The map of cells."""
        return self.folder / "cells.map"

    def order(self, command: str) -> str:
        """Give an order at the socket and return the answer."""
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.folder / "s"))
            line.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: line.recv(65536), b"")).decode()

    def servers(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the statistics by backend and server."""
        lines = self.order("show stat").lstrip("# ").splitlines()
        rows = csv.DictReader(line for line in lines if line)
        return {(row["pxname"], row["svname"]): row for row in rows}

    def answered(self) -> dict[str, int]:
        """Return how many requests each server of the backend `cbwk` was sent."""
        found = self.servers().items()
        return {name: int(row["stot"]) for (cell, name), row in found if cell == "cbwk" and name.startswith("replica-")}

    def trust_all(self) -> None:
        """Take every server for well from now on: a busy machine may keep one from answering its checks."""
        for cell, name in self.servers():
            if name.startswith("replica-"):
                self.order(f"disable health {cell}/{name}; set server {cell}/{name} health up")

    def wait_until_up(self) -> None:
        """Wait until every server has passed its checks."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not all(row["check_status"] == "L7OK" for row in self.servers().values() if row["check_status"]):
            assert time.monotonic() < deadline, self.order("show servers state")
            time.sleep(0.05)


@contextmanager
def new_balancer(
    cells: Mapping[str, Sequence[int]], *, cell_map: str | None = None, replace: tuple[str, str] = ("", "")
) -> Iterator[Balancer]:
    """Start HAProxy before the ports of some replicas, and stop it afterwards; `replace` changes a line."""
    assert PROGRAM, MISSING
    with tempfile.TemporaryDirectory(prefix="cbwk-haproxy-") as name:
        balancer = Balancer(Path(name), free_port(), free_port())
        if cell_map is not None:
            balancer.map_file.write_text(cell_map, encoding="utf-8")
        text = configuration(
            {cell: [f"127.0.0.1:{port}" for port in ports] for cell, ports in cells.items()},
            bind=f"127.0.0.1:{balancer.port}",
            local=f"127.0.0.1:{balancer.local}",
            socket=f"{name}/s",
            map_file=None if cell_map is None else str(balancer.map_file),
        )
        assert replace[0] in text
        file = Path(name) / "haproxy.cfg"
        file.write_text(text.replace(*replace) if replace[0] else text, encoding="utf-8")
        with subprocess.Popen([PROGRAM, "-db", "-f", str(file)], stderr=subprocess.DEVNULL) as process:
            try:
                _wait_for_answer(balancer, process)
                balancer.wait_until_up()
                yield balancer
            finally:
                process.kill()


def _wait_for_answer(balancer: Balancer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        assert process.poll() is None, "HAProxy has ended"
        try:
            httpx.get(f"http://127.0.0.1:{balancer.local}/metrics", trust_env=False).raise_for_status()
        except httpx.HTTPError:
            assert time.monotonic() < deadline, "HAProxy does not start"
            time.sleep(0.02)
        else:
            return
