"""SIGTERM at any moment of a start ends the process, also as process 1 of a container, which has no default action."""

import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import CBWK, START_SECONDS_MAX

# The next process is process 1 of a namespace of its own.
FIRST = """
import ctypes, subprocess, sys
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
unshare = ctypes.CDLL(None).unshare
if unshare(CLONE_NEWPID) and unshare(CLONE_NEWUSER | CLONE_NEWPID):
    sys.exit(77)
sys.exit(subprocess.call(sys.argv[1:]))
"""
STOP_SECONDS_MAX = 10  # what Docker waits before it kills
SIGTERM_BIT = 1 << (signal.SIGTERM - 1)
EXIT_CODE = 128 + signal.SIGTERM  # before it serves; 0 afterwards


def no_namespaces():
    return subprocess.run([sys.executable, "-c", FIRST, "true"], check=False).returncode != 0


@contextmanager
def starting(folder):
    """Start `cbwk serve` as process 1 and wait until it has a handler for SIGTERM; give it and its id out here."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CBWK_")}
    parent = subprocess.Popen(
        [sys.executable, "-c", FIRST, str(CBWK), "serve", "--port", "0"],
        cwd=folder,
        env=environment | {"CBWK_ADMIN_KEY": ADMIN_KEY, "CBWK_LOG_LEVEL": "warning"},
        stderr=subprocess.PIPE,
    )
    server = None
    try:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        wait_until(children.read_text)
        server = int(children.read_text())
        wait_until(lambda: catches_sigterm(server))
        yield parent, server
    finally:
        if server is not None and parent.poll() is None:
            os.kill(server, signal.SIGKILL)
        parent.kill()
        parent.communicate()


def wait_until(holds):
    deadline = time.monotonic() + START_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def catches_sigterm(process):
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) & SIGTERM_BIT)


def wait_for_start(parent):
    """Wait until the process says that it serves."""
    with selectors.DefaultSelector() as ready:
        ready.register(parent.stderr, selectors.EVENT_READ)
        assert ready.select(START_SECONDS_MAX)
    assert b"cbwk serves on" in parent.stderr.readline()


pytestmark = pytest.mark.skipif(no_namespaces(), reason="this system permits no namespace of process ids")


def test_process_1_obeys_sigterm_from_its_first_moments(tmp_path):
    began = time.monotonic()
    with starting(tmp_path) as (parent, server):
        handler_seconds = time.monotonic() - began
        wait_for_start(parent)
        assert handler_seconds < (time.monotonic() - began) / 2
    with starting(tmp_path) as (parent, server):
        os.kill(server, signal.SIGTERM)
        assert parent.wait(STOP_SECONDS_MAX) == EXIT_CODE


@pytest.mark.slow
def test_process_1_obeys_sigterm_at_every_moment_of_its_start(tmp_path):
    with starting(tmp_path) as (parent, _):
        began = time.monotonic()
        wait_for_start(parent)
        start_seconds = time.monotonic() - began
    for share in (0.2, 0.4, 0.6, 0.8, 0.9):
        with starting(tmp_path) as (parent, server):
            time.sleep(share * start_seconds)
            os.kill(server, signal.SIGTERM)
            assert parent.wait(STOP_SECONDS_MAX) in (0, EXIT_CODE), share
    for seconds in (0.0, 0.02, 0.05, 0.1, 0.2):
        with starting(tmp_path) as (parent, server):
            wait_for_start(parent)
            time.sleep(seconds)  # its engine starts
            os.kill(server, signal.SIGTERM)
            assert parent.wait(STOP_SECONDS_MAX) in (0, EXIT_CODE), seconds
            assert parent.stderr.read() == b""
