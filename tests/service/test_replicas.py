"""Several processes on one PostgreSQL: any of them serves any campaign, and none trusts what it remembers."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from tests.service.http_calls import account, at_once, calls, campaign, create, decide_body, failed_checks
from tests.service.server_process import running_server


@pytest.fixture
def replicas(postgresql_server):
    """Two servers on one database, and a client of each."""
    with ExitStack() as stack:
        url = stack.enter_context(postgresql_server.database(template="with_tables"))
        servers = [stack.enter_context(running_server(database_url=url, request_deadline_ms=20_000)) for _ in range(2)]
        yield servers, [stack.enter_context(calls(server)) for server in servers]


def decided(client, decision_id, **more):
    answer = client.post("/decide", json=decide_body(decision_id, **more))
    assert answer.status_code == 200, answer.text
    return answer


def reported(client, decision_id, **halves):
    answer = client.post("/feedback", json={"campaign_id": "c", "decision_id": decision_id, **halves})
    assert answer.status_code == 200, answer.text
    return answer.json()


def check_changes_are_seen_at_the_next_batch(here, there):
    """Both replicas have the campaign in memory when it changes."""
    create(here, campaign("changing"))
    for turn, client in enumerate((here, there, here, there)):
        assert decided(client, f"warm{turn}", name="changing").json()["arm"] in ("a", "b")
    assert here.post("/campaigns/changing/pause").status_code == 200
    assert decided(there, "p", name="changing").json()["reason"] == "paused"
    assert there.post("/campaigns/changing/resume").status_code == 200
    changes = {"add_arms": [{"id": "n"}], "retire_arms": ["a", "b"], "resources": [{"id": "usd", "budget": 6}]}
    assert here.patch("/campaigns/changing", json=changes).json()["version"] == 2
    after = [decided(client, f"after{turn}", name="changing").json() for turn, client in enumerate((there, here))]
    assert [(answer["arm"], answer["round"]) for answer in after] == [("n", 4), ("n", 5)]
    assert decided(there, "full", name="changing").json()["reason"] == "budget_exhausted"
    assert failed_checks(there, "changing") == []


def check_a_paused_arm_is_played_by_no_replica_until_it_returns(here, there):
    create(here, campaign("pausing"))
    for status, arms in (("active", {"a", "b"}), ("paused", {"b"}), ("active", {"a", "b"})):
        change = {"arms": [{"id": "a", "status": status}]}
        version = here.patch("/campaigns/pausing", json=change).json()["version"]
        asked = [((there, here)[turn % 2], f"{version}-{turn}") for turn in range(24)]
        assert {decided(client, one, name="pausing").json()["arm"] for client, one in asked} == arms
    assert failed_checks(there, "pausing") == []


def check_one_decision_id_is_one_decision(servers, here, there):
    create(here, campaign())
    first, again = decided(here, "d"), decided(there, "d")
    assert again.content == first.content
    assert (first.headers.get("Idempotent-Replayed"), again.headers.get("Idempotent-Replayed")) == (None, "true")
    assert there.post("/decide", json=decide_body("d", context=[0.1, 0.1])).status_code == 409
    twins = [decide_body(f"twin{i // 2}") for i in range(40)]  # one of each to either server
    replies = asyncio.run(at_once(servers, "/decide", twins))
    for one, other in zip(replies[::2], replies[1::2], strict=True):
        assert one.body == other.body
        assert {one.headers.get("idempotent-replayed"), other.headers.get("idempotent-replayed")} == {None, "true"}
    assert account(here)["held"] == 21
    assert failed_checks(here) == []


def test_changes_are_seen_by_other_replicas_and_a_decision_id_is_one_decision_on_all_of_them(replicas):
    servers, (here, there) = replicas
    check_changes_are_seen_at_the_next_batch(here, there)
    check_a_paused_arm_is_played_by_no_replica_until_it_returns(here, there)
    check_one_decision_id_is_one_decision(servers, here, there)
    for turn in range(20):  # each learns from what the other was told
        reported((here, there)[turn % 2], f"twin{turn}", reward=turn % 2, costs={"usd": 0.5})
    known = [decided(client, f"k{turn}").json()["policy_version"] for turn, client in enumerate((here, there))]
    assert known == [20, 20]
    found = here.get("/campaigns/c").json()
    assert found == there.get("/campaigns/c").json()
    assert found["accounts"][0]["spent"] == 10


def test_a_retired_arm_is_never_chosen_and_its_late_feedback_settles(migrated_url):
    with running_server(database_url=migrated_url, request_deadline_ms=20_000) as server, calls(server) as client:
        create(client, campaign())
        before = [decided(client, f"d{i}").json() for i in range(20)]
        by_a = [answer["decision_id"] for answer in before if answer["arm"] == "a"]
        assert by_a
        assert client.patch("/campaigns/c", json={"retire_arms": ["a"]}).status_code == 200
        replies = asyncio.run(at_once([server], "/decide", [decide_body(f"e{i}") for i in range(60)]))
        assert {reply.json["arm"] for reply in replies} == {"b"}
        for learnt, decision_id in enumerate(by_a, start=1):
            answer = reported(client, decision_id, reward=1.0, costs={"usd": 0.5})
            assert (answer["status"], answer["learned"], answer["policy_version"]) == ("settled", True, learnt)
        assert account(client)["spent"] == len(by_a) / 2
        replayed = [client.post("/decide", json=decide_body(f"d{i}")).json() for i in range(20)]
        assert replayed == before
        assert failed_checks(client) == []
