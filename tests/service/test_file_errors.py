"""The disk under SQLite: full, and it waits; broken, and the process ends."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from contextlib import contextmanager

import pytest

from tests.service.http_calls import account, calls, campaign, create, decide_body, failed_checks
from tests.service.server_process import running_server

pytestmark = pytest.mark.slow

END_SECONDS_MAX = 15
DISK_BYTES = 16 * 2**20


@contextmanager
def small_disk(folder):
    """A file system of its own with little room."""
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path):
    """Take all the room that is left."""
    with path.open("wb", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            while True:
                try:
                    if file.write(b"x" * size) < size:
                        break
                except OSError:
                    break


def asked(client, numbers, name="d"):
    """The status of each decision asked for."""
    return [client.post("/decide", json=decide_body(f"{name}{number}")).status_code for number in numbers]


def test_a_full_disk_is_503_until_there_is_room_again(tmp_path):
    with (
        small_disk(tmp_path),
        running_server(database_url=f"sqlite:///{tmp_path}/cbwk.db") as server,
        calls(server) as client,
    ):
        create(client, campaign())
        assert asked(client, range(3)) == [200] * 3
        fill(tmp_path / "filler")
        # What is left inside pages and blocks that are there already may take some more.
        full = asked(client, range(100, 220))
        assert set(full[-20:]) == {503}
        assert client.post("/decide", json=decide_body("x")).json()["type"].endswith("database-away")
        assert server.process.poll() is None
        (tmp_path / "filler").unlink()
        assert asked(client, range(100, 220)) == [200] * 120
        assert failed_checks(client) == []
        assert client.get("/campaigns/c").json()["round"] == 123


def test_an_error_of_the_file_ends_the_process_and_what_was_answered_is_there_afterwards(tmp_path):
    url = f"sqlite:///{tmp_path}/cbwk.db"
    with running_server(database_url=url) as server, calls(server) as client:
        create(client, campaign())
        assert asked(client, range(3)) == [200] * 3
        held = account(client)["held"]
        size = os.stat(tmp_path / "cbwk.db-wal").st_size
        # Writing beyond this fails in the operating system, as on a disk that breaks.
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, size))
        answer = client.post("/decide", json=decide_body("d3"))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        _, written = server.process.communicate(timeout=END_SECONDS_MAX)
        assert server.process.returncode == 1
        (line,) = [line for line in written.splitlines() if "the database's file failed; the process ends" in line]
        assert json.loads(line)["level"] == "critical"
    with running_server(database_url=url) as server, calls(server) as client:
        assert failed_checks(client) == []
        assert account(client)["held"] == held
        assert asked(client, range(4)) == [200] * 4
        assert client.get("/campaigns/c").json()["round"] == 4
