"""One key cannot take the service from the others: the bound of a request's work, large requests, rates of keys."""

import asyncio
import time

import httpx
import pytest

from cbwk_client import Ask, Client, Terms, TooManyRequestsError
from service.auth import KeyRing, Principal
from service.engine.admission import LargeCampaign, work_of
from service.engine.commands import CreateCampaign, Decide
from service.problems import Invalid, TooManyRequests
from tests.service.engine.campaigns import config, running
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import running_server

ARMS, FEATURES = 1_000, 139
ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}
CAMPAIGN = {
    "id": "c",
    "arms": [{"id": "a"}, {"id": "b"}],
    "resources": [{"id": "usd", "budget": 1000, "max_cost": 1}],
    "horizon": 100_000,
    "context": {"dimension": 2},
}
LARGE = CAMPAIGN | {
    "id": "large",
    "arms": [{"id": f"a{number}"} for number in range(ARMS)],
    "context": {"dimension": FEATURES},
}
ASKED = {"campaign_id": "c", "context": [0.1, 0.2]}


@pytest.fixture(scope="module")
def server():
    with running_server() as server, httpx.Client(base_url=server.url, headers=ADMIN, trust_env=False) as client:
        for body in (CAMPAIGN, LARGE):
            assert client.post("/campaigns", json=body).status_code == 201
        yield client


def key(server, **fields):
    made = server.post("/admin/keys", json={"name": "n", "role": "decider", **fields})
    assert made.status_code == 201, made.text
    return made.json()["key"]


class Clock:
    seconds = 100.0

    def __call__(self):
        return self.seconds


@pytest.mark.parametrize(("rate", "at_once"), [(5.0, 5), (1.0, 1), (0.25, 1)])
def test_a_key_makes_the_requests_of_one_second_at_once_and_then_one_at_a_time(database, rate, at_once):
    clock = Clock()
    ring, holder = KeyRing(database, None, clock=clock), Principal("k", "n", "decider", None, rate)
    for _ in range(at_once):
        ring.count_request(holder)
    for _ in range(3):
        with pytest.raises(TooManyRequests) as refused:
            ring.count_request(holder)
        assert refused.value.retry_after_seconds == max(1, round(1 / rate))
        clock.seconds += 1 / rate
        ring.count_request(holder)
    ring.count_request(Principal("other", "n", "decider", None, rate))
    ring.count_request(Principal("k", "n", "decider", None))


def test_a_key_past_its_rate_is_answered_429_on_every_way_and_others_are_not(server):
    limited, free = key(server, requests_per_second=2), key(server)
    bearer = {"Authorization": f"Bearer {limited}"}
    answers = [server.post("/decide", json=ASKED, headers=bearer) for _ in range(6)]  # the first asks the database
    refused = [answer for answer in answers if answer.status_code == 429]
    assert [answer.status_code for answer in answers[:2]] == [200, 200]
    assert len(refused) >= 2
    # A body without a declared length takes the long way; so does another endpoint.
    long = server.post("/decide", content=iter([b"{}"]), headers=bearer)
    other = server.get("/admin/key", headers={"X-API-Key": limited, "Authorization": ""})
    for answer in (*refused, long, other):
        assert answer.status_code == 429
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"] == "urn:cbwk:problem:too-many-requests"
        assert "2 requests a second" in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) == 1
    assert server.post("/decide", json=ASKED, headers={"Authorization": f"Bearer {free}"}).status_code == 200


def test_the_rate_of_a_key_is_shown_and_checked(server):
    key(server, name="shown", requests_per_second=0.5)
    listed = {one["name"]: one["requests_per_second"] for one in server.get("/admin/keys").json()["items"]}
    assert listed["shown"] == 0.5
    for wrong in (0, -1, 1e9, "many"):
        body = {"name": "n", "role": "decider", "requests_per_second": wrong}
        assert server.post("/admin/keys", json=body).status_code == 422


def test_the_client_waits_for_its_turn_and_then_says_what_is_wrong(server):
    text = key(server, requests_per_second=1)
    with Client(str(server.base_url), text, terms=Terms(batch_seconds=10)) as client:
        started = time.monotonic()
        client.decide_batch("c", [Ask([0.1, 0.2])])
        client.decide_batch("c", [Ask([0.1, 0.2])])
        assert time.monotonic() - started > 0.5
    slow = key(server, requests_per_second=0.01)
    with Client(str(server.base_url), slow, terms=Terms(batch_seconds=2)) as client:
        client.decide_batch("c", [Ask([0.1, 0.2])])
        with pytest.raises(TooManyRequestsError, match=r"0\.01 requests a second") as refused:
            client.decide_batch("c", [Ask([0.1, 0.2])])
    assert not refused.value.may_have_been_done


def test_a_batch_of_too_much_work_is_refused_whole_with_its_numbers(server):
    item = {"context": [0.0] * FEATURES}
    refused = server.post("/decide/batch", json={"campaign_id": "large", "items": [item] * 1_000})
    assert refused.status_code == 422
    problem = refused.json()
    assert problem["type"] == "urn:cbwk:problem:too-much-work"
    for number in ("1000 decisions", "1000000 arms", "139 features", str(10**6 * 139**2), "at most 50000000"):
        assert number in problem["detail"]
    assert "CBWK_DECIDE_WORK_MAX" in problem["detail"]
    taken = server.post("/decide/batch", json={"campaign_id": "large", "items": [item] * 2})
    assert [decision["round"] for decision in taken.json()["decisions"]] == [0, 1]


def test_one_decision_is_always_made_and_a_stored_one_needs_no_work(database):
    arms = [{"id": f"a{number}"} for number in range(10)]
    batch = [Decide("c", f"d{number}", [0.1, 0.2]) for number in range(5)]

    async def play(work_max, commands):
        async with running(database, work_max=work_max) as engine:
            return await engine.submit_together(commands)

    async def created():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(arms=arms)))

    asyncio.run(created())
    made = asyncio.run(play(10**8, batch))
    refused = asyncio.run(play(2_560, [*batch, Decide("c", "d5", [0.1, 0.2]), Decide("c", "d6", [0.1, 0.2])]))
    assert [answer.replayed for answer in refused[:5]] == [True] * 5
    assert [answer.body for answer in refused[:5]] == [answer.body for answer in made]
    assert {answer.kind for answer in refused[5:] if isinstance(answer, Invalid)} == {"too-much-work"}
    (alone,) = asyncio.run(play(1_000, [Decide("c", "d7", [0.1, 0.2])]))
    assert alone.body["round"] == 5


def test_requests_of_a_shared_campaign_that_bring_few_actions_wait_with_all_others():
    few, many = ([{"id": f"a{number}", "features": [0.1]} for number in range(count)] for count in (5, 500))
    large = {"shared": LargeCampaign(arm_work=256, arms=0)}
    works = [work_of([Decide("shared", None, [0.1], (), actions)] * 1000, large, 50_000_000) for actions in (few, many)]
    assert works == [0, 256 * 500 * 1000]
