"""Attacks from outside: what clients without a key, or without the will to read, can do to the others.

`python -m tests.faults.attacks` starts a server for each attack and prints the median time of a calm client's decisions
and the memory of the server, before and during the attack. `--source FOLDER` measures another version of the service.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from service import assets
from tests.service.engine.campaigns import config
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import free_port

CALM_SECONDS, ATTACK_SECONDS = 3.0, 10.0
PAUSE_SECONDS = 0.005  # between two decisions of the calm client
EXPORTED_DECISIONS = 20_000
KEY = f"Authorization: Bearer {ADMIN_KEY}\r\n"
WRONG_KEY = f"Authorization: Bearer {'x' * 43}\r\n"
SCRIPT = f"GET /{assets.address('plotly.min.js')} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def _head(path: str, length: int, key: str = WRONG_KEY) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{key}Content-Length: {length}\r\n\r\n".encode()


def _streams(port: int, count: int, stream: Callable[[], Iterator[bytes]]) -> None:
    """Send a stream on each connection, a piece at a time in turn, and never read."""
    held: list[tuple[socket.socket, Iterator[bytes]]] = []
    for _ in range(count):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.setblocking(False)
        held.append((client, stream()))
    rest: dict[socket.socket, bytes] = {}
    while True:
        for client, pieces in list(held):
            piece = rest.pop(client, b"") or next(pieces, b"")
            try:
                rest[client] = piece[client.send(piece) :] if piece else b""
            except BlockingIOError:
                rest[client] = piece
            except OSError:
                held.remove((client, pieces))
                client.close()
        time.sleep(0.02)


def _once(data: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([data])


def _body(path: str, size: int, piece: int) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        yield _head(path, size)
        for _ in range(size // piece):
            yield b" " * piece

    return pieces


def _endless(start: bytes, piece: bytes, pieces_max: int) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        yield start
        for _ in range(pieces_max):
            yield piece

    return pieces


_OPEN_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
_TRAILER = b"POST /decide HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX-A: "
_MEGABYTE = b"x" * 2**20
_EXPORT = f"GET /admin/campaigns/c/export HTTP/1.1\r\nHost: x\r\n{KEY}\r\n".encode()

# By name: the number of connections and what each of them sends.
ATTACKS: dict[str, tuple[int, Callable[[], Iterator[bytes]]]] = {
    "plotly.min.js asked for on 400 connections and not read": (400, _once(SCRIPT)),
    "/openapi.json asked for on 400 connections and not read": (400, _once(b"GET /openapi.json HTTP/1.1\r\n\r\n" * 4)),
    "an export asked for on 100 connections and not read": (100, _once(_EXPORT)),
    "100 batch bodies of 8 MB with a wrong key, in pieces": (100, _body("/decide/batch", 2**23, 2**14)),
    "one header of 400 MB": (1, _endless(_OPEN_HEAD + b"X-A: ", _MEGABYTE, 400)),
    "one trailer of 400 MB": (1, _endless(_TRAILER, _MEGABYTE, 400)),
    "1,000 heads of 60 KB without an end": (1000, _once(_OPEN_HEAD + b"X-A: " + b"x" * 60_000)),
    "400 heads of 12,000 short headers without an end": (400, _once(_OPEN_HEAD + b"a:\r\n" * 12_000)),
    "300 KB of body behind an answer that is not read, 400 connections": (
        400,
        _once(SCRIPT + _head("/decide/batch", 2**23) + b" " * 300_000),
    ),
    "2,000 requests sent at once and no answer read, 200 connections": (200, _once(SCRIPT + SCRIPT * 2_000)),
}


@contextmanager
def _server(source: str) -> Iterator[tuple[int, int]]:
    """Start the service of a folder; yields its port and its process id."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CBWK_")}
    environment |= {"CBWK_ADMIN_KEY": ADMIN_KEY, "CBWK_REQUEST_DEADLINE_MS": "20000", "PYTHONPATH": source}
    command = [sys.executable, "-m", "service", "serve", "--port", str(port)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(600):
                try:
                    if httpx.get(f"{url}/readyz", trust_env=False).is_success:
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            client = httpx.Client(base_url=url, trust_env=False, timeout=30, headers={"X-API-Key": ADMIN_KEY})
            client.post("/campaigns", json=config()).raise_for_status()
            items = {"campaign_id": "c", "items": [{"context": [0.5, 0.5]}] * 1000}
            for _ in range(EXPORTED_DECISIONS // 1000):
                client.post("/decide/batch", json=items).raise_for_status()
            client.close()
            yield port, process.pid
        finally:
            process.kill()


def _memory_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _calm(port: int, pid: int, seconds: float) -> tuple[float, float, int]:
    """Decide again and again: the median and the largest time in milliseconds, and the largest memory of the server."""
    body = json.dumps({"campaign_id": "c", "context": [0.5, 0.5]}).encode()
    request = _head("/decide", len(body), KEY) + body
    took, memory, until = [], 0, time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.monotonic() < until:
            started = time.perf_counter()
            client.sendall(request)
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
            took.append(1000 * (time.perf_counter() - started))
            memory = max(memory, _memory_bytes(pid))
            time.sleep(PAUSE_SECONDS)
    return statistics.median(took), max(took), memory


def measured(source: str, name: str) -> str:
    """One row: the median of a calm client's decisions before and during the attack, and the growth of memory."""
    connections, stream = ATTACKS[name]
    with ExitStack() as stack:
        port, pid = stack.enter_context(_server(source))
        _calm(port, pid, 1)
        calm, _, before = _calm(port, pid, CALM_SECONDS)
        attacker = multiprocessing.Process(target=_streams, args=(port, connections, stream), daemon=True)
        attacker.start()
        stack.callback(attacker.kill)
        during, longest, memory = _calm(port, pid, ATTACK_SECONDS)
    grown = (memory - before) / 1e6
    return f"| {name} | {calm:.1f} → {during:.1f} ms, longest {longest:.0f} ms, {grown:+.0f} MB |"


def main() -> None:
    """Measure the attacks whose names contain one of the given words, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default=str(Path(__file__).parents[2]), help="folder of the version to measure")
    parser.add_argument("words", nargs="*")
    chosen = parser.parse_args()
    for name in ATTACKS:
        if not chosen.words or any(word in name for word in chosen.words):
            print(measured(chosen.source, name), flush=True)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
