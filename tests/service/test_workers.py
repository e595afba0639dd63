"""`cbwk serve --workers N`: real processes on consecutive ports."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import contextmanager

import httpx
import psutil
import pytest

from cbwk_client import Client
from service.cli import main
from service.commands.haproxy import configuration
from tests.service.http_calls import campaign
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import CBWK, free_port

SECONDS_MAX = 180  # two processes start, each as slowly as the machine is busy
POSTGRESQL = "postgresql://cbwk@127.0.0.1:9/cbwk"


def wait_until(holds):
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def free_ports(number):
    """The first of some consecutive ports that are free."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + number):
                socket.create_server(("127.0.0.1", port)).close()
        except (OSError, OverflowError):
            continue
        return first


def is_ready(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def serving(database_url, workers, folder):
    """The supervisor, its first port, and the file with what it says."""
    port, said = free_ports(workers), folder / "said"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CBWK_")}
    environment |= {"CBWK_DATABASE_URL": database_url, "CBWK_ADMIN_KEY": ADMIN_KEY}
    command = [CBWK, "serve", "--port", str(port), "--workers", str(workers)]
    with (
        said.open("w") as file,
        subprocess.Popen(command, env=environment, cwd=folder, stderr=file) as process,
    ):
        team = psutil.Process(process.pid)
        try:
            wait_until(lambda: process.poll() is not None or all(map(is_ready, range(port, port + workers))))
            assert process.poll() is None, said.read_text()
            yield process, port, said
        finally:
            for worker in [*team.children(), team] if process.poll() is None else ():
                worker.kill()


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_workers_serve_one_database_are_restarted_one_by_one_and_stopped_together(migrated_url, tmp_path):
    with serving(migrated_url, 2, tmp_path) as (process, port, said):
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 2
        (line,) = re.findall(r"^clients: Client\((\[.+\]), key\)$", said.read_text(), re.MULTILINE)
        assert line == f'["http://127.0.0.1:{port}", "http://127.0.0.1:{port + 1}"]'
        with Client([f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"], ADMIN_KEY) as client:
            client.create_campaign(campaign())
            (killed,) = (one for one in workers if str(port) == one.environ()["CBWK_PORT"])
            killed.kill()
            assert client.decide("c", [0.3, 0.6], seconds=30).round == 0
            wait_until(lambda: is_ready(port))
            (ended,) = (line for line in said.read_text().splitlines() if '"a worker ended"' in line)
            assert f'"port":{port},"worker":{killed.pid},"code":-9,' in ended
            assert client.decide("c", [0.3, 0.6], seconds=30).round == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0
        assert not any(is_ready(each) for each in (port, port + 1))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_no_worker_outlives_a_supervisor_that_is_killed(migrated_url, tmp_path):
    with serving(migrated_url, 2, tmp_path) as (process, _, _):
        workers = psutil.Process(process.pid).children()
        process.kill()
        _, alive = psutil.wait_procs(workers, timeout=SECONDS_MAX)
        assert alive == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--database-url", "sqlite:///x.db"], "several workers need PostgreSQL: SQLite is for one process"),
        (["--database-url", POSTGRESQL, "--port", "0"], "several workers need a port, and as many after it"),
        (["--database-url", POSTGRESQL, "--port", "65534"], "several workers need a port, and as many after it"),
    ],
)
def test_what_several_workers_cannot_do_is_refused_with_one_line(arguments, said, capsys):
    assert main(["serve", "--workers", "3", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused_before_any_worker_starts(capsys):
    port = free_ports(3)
    with socket.create_server(("127.0.0.1", port + 2)):
        assert main(["serve", "--workers", "3", "--database-url", POSTGRESQL, "--port", str(port)]) == 1
    assert f"cannot listen on 127.0.0.1:{port + 2}: " in capsys.readouterr().err


def test_the_configuration_of_haproxy_that_is_printed_has_the_ports_of_the_workers(capsys):
    arguments = ["serve", "--workers", "3", "--database-url", POSTGRESQL, "--port", "8100", "--host", "0.0.0.0"]
    assert main([*arguments, "--print-haproxy"]) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^    server (\S+ \S+)$", printed, re.MULTILINE) == [
        "replica-1 127.0.0.1:8100",
        "replica-2 127.0.0.1:8101",
        "replica-3 127.0.0.1:8102",
    ]
    assert printed == configuration({"cbwk": ["127.0.0.1:8100", "127.0.0.1:8101", "127.0.0.1:8102"]})
