"""A primary whose commits wait for a synchronous standby, reached by a URL that names both hosts."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.store.migrate import migrate
from tests.service.http_calls import calls, campaign, create, decide_body
from tests.service.server_process import running_server
from tests.service.standby import new_synchronous_pair

WAIT_SECONDS_MAX = 20.0
WAITING = "FROM pg_stat_activity WHERE application_name = 'cbwk' AND wait_event = 'SyncRep'"


@pytest.fixture
def pair():
    with new_synchronous_pair() as made:
        migrate(made.hosts_url())
        yield made


def wait_for_a_commit_that_waits(pair):
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not pair.execute(pair.primary, f"SELECT pid {WAITING}"):
        assert time.monotonic() < deadline, "no commit waits for the standby"
        time.sleep(0.02)


def test_a_commit_whose_standby_was_not_waited_for_is_not_acknowledged(pair):
    """Without the standby the commit waits; an operator who cancels the wait makes PostgreSQL answer COMMIT."""
    settings = {"database_url": pair.hosts_url(), "request_deadline_ms": 60_000}
    with running_server(**settings) as server, calls(server) as client, ThreadPoolExecutor(1) as pool:
        create(client, campaign())
        pair.stop(pair.standby)
        asked = pool.submit(client.post, "/decide", json=decide_body("doubtful"))
        wait_for_a_commit_that_waits(pair)
        pair.execute(pair.primary, f"SELECT pg_cancel_backend(pid) {WAITING}")
        refused = asked.result(WAIT_SECONDS_MAX)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:cbwk:problem:database-away")
        assert "the commit is in doubt" in refused.json()["detail"]
        pair.start(pair.standby)
        again = client.post("/decide", json=decide_body("doubtful"))
        assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
