"""Two stages in a real server that is killed in the middle of stage one."""

from __future__ import annotations

import time

import pytest

from tests.service.engine.staged import (
    ARMS,
    LAST,
    ONE,
    assert_equal_play,
    context_of,
    library_play,
    reward_of,
    staged,
    usd_of,
)
from tests.service.http_calls import calls, create, decide_body, failed_checks
from tests.service.server_process import running_server

pytestmark = pytest.mark.slow

KILLED_AT, END = 30, LAST + 15
STAGE_SECONDS_MAX = 10.0


def play(client, start, stop):
    bodies = []
    for i in range(start, stop):
        body = client.post("/decide", json=decide_body(f"d{i}", context=context_of(i))).json()
        bodies.append(body)
        if body["arm"] is not None:
            arm = ARMS[body["arm"]]
            costs = {"usd": usd_of(i, arm) / ONE, "impressions": 1}
            report = {"campaign_id": "c", "decision_id": f"d{i}", "reward": reward_of(i, arm), "costs": costs}
            assert client.post("/feedback", json=report).json()["learned"]
    return bodies


def wait_for_stage_two(client):
    """A model begins with it."""
    deadline = time.monotonic() + STAGE_SECONDS_MAX
    while client.get("/admin/campaigns/c/model").headers["model-version"] != "2":
        assert time.monotonic() < deadline, "stage one was not concluded from"
        time.sleep(0.1)


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)  # the engine's tests have both
def test_a_server_killed_in_stage_one_goes_on_with_it_and_ends_it_by_itself(migrated_url):
    with running_server(database_url=migrated_url) as server, calls(server) as client:
        create(client, staged(two=True) | {"context": {"dimension": 2}})
        bodies = play(client, 0, KILLED_AT)
        server.process.kill()
    with running_server(database_url=migrated_url) as server, calls(server) as client:
        bodies += play(client, KILLED_AT, LAST)
        wait_for_stage_two(client)
        bodies += play(client, LAST, END)
        assert failed_checks(client) == []
    _, made = library_play("authors", END)
    assert_equal_play(bodies, made)
