"""A standby that lacks the last decisions is promoted under a running service, which then follows the new log."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack

import pytest

from service.store.migrate import migrate
from tests.service.http_calls import calls, campaign, create, decide_body, failed_checks
from tests.service.server_process import CBWK, running_server
from tests.service.standby import new_pair

BACK_SECONDS_MAX = 30.0


@pytest.fixture
def pair():
    with new_pair() as made:
        migrate(made.url())
        yield made


def played(client, name, label, rounds):
    """Decide and report; returns the decided ids."""
    ids = [f"{label}{number}" for number in range(rounds)]
    for at, decision_id in enumerate(ids):
        answer = client.post("/decide", json=decide_body(decision_id, name, [at % 7 / 7, at % 5 / 5]))
        assert answer.status_code == 200, answer.text
        report = {"campaign_id": name, "decision_id": decision_id, "reward": at % 2, "costs": {"usd": 0.5}}
        if answer.json()["arm"] is not None:
            assert client.post("/feedback", json=report).status_code == 200
    return ids


def wait_until_it_decides(client, name):
    deadline = time.monotonic() + BACK_SECONDS_MAX
    while client.post("/decide", json=decide_body(f"back-{time.monotonic()}", name)).status_code != 200:
        assert time.monotonic() < deadline, "the service does not come back"
        time.sleep(0.05)


def replayed(url):
    done = subprocess.run(
        [CBWK, "replay", "--json", "--database-url", url], capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout)


def test_a_promoted_standby_that_lacks_decisions_is_followed_by_every_running_process(pair):
    """One process goes on first, past the numbers that the other one remembers; then the other one goes on."""
    with ExitStack() as stack:
        servers = [stack.enter_context(running_server(database_url=pair.url())) for _ in range(2)]
        here, there = [stack.enter_context(calls(server)) for server in servers]
        create(here, campaign())
        played(here, "c", "kept", 30)
        pair.cut()
        played(there, "c", "lost", 30)
        timeline = there.get("/admin/campaigns/c/timeline").json()
        assert sum(point["decisions"] for point in timeline["items"]) == 60
        create(there, campaign("gone"))
        played(there, "gone", "g", 3)
        pair.fail_over()
        for client in (here, there):
            wait_until_it_decides(client, "c")
        played(here, "c", "new", 45)
        played(there, "c", "other", 30)
        assert there.post("/decide", json=decide_body("g", "gone")).status_code == 404
        assert there.post("/campaigns/gone/pause").status_code == 404
        assert (
            there.post("/feedback", json={"campaign_id": "c", "decision_id": "lost1", "reward": 1}).status_code == 404
        )
        assert failed_checks(there) == []
        found = [client.get("/admin/campaigns/c/timeline").json()["items"] for client in (here, there)]
        assert found[0] == found[1]
        assert sum(point["decisions"] for point in found[1]) == there.get("/campaigns/c").json()["round"]
        create(there, campaign("gone"))
        played(here, "gone", "again", 3)
        for server in servers:  # both save what they have learnt
            server.process.terminate()
            assert server.process.wait(20) == 0
        code, replays = replayed(pair.url())
        assert (code, [one["ok"] for one in replays]) == (0, [True, True]), replays
    with running_server(database_url=pair.url()) as server, calls(server) as client:
        played(client, "c", "restarted", 5)
    assert replayed(pair.url())[0] == 0


def test_a_standby_that_is_not_yet_promoted_is_503_and_then_served(pair):
    with running_server(database_url=pair.url()) as server, calls(server) as client:
        create(client, campaign())
        played(client, "c", "kept", 3)
        pair.cut()
        pair.lead_to("standby")
        pair.stop("primary")
        answers = [client.post("/decide", json=decide_body(f"early{number}")) for number in range(3)]
        assert {(answer.status_code, answer.json()["type"]) for answer in answers} == {
            (503, "urn:cbwk:problem:database-away")
        }
        pair.execute("standby", "SELECT pg_promote()")
        wait_until_it_decides(client, "c")
        played(client, "c", "new", 3)
        assert failed_checks(client) == []
