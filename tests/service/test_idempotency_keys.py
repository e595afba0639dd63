"""Requests with an Idempotency-Key: once, whatever is sent again, by whom and to which process."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from math import inf

import httpx
import pytest

from service.engine.batch import BatchRunner
from service.engine.commands import Adjust, CreateCampaign, Item, Once
from service.store import tables
from tests.service.engine.campaigns import config
from tests.service.http_calls import ANSWER_SECONDS_MAX, HEADERS, account, calls, campaign, create
from tests.service.http_client import key_for
from tests.service.server_process import running_server
from tests.service.test_same_again import audited

HOUR = 3_600_000_000


def keyed(key):
    return {"headers": {"Idempotency-Key": key}}


def is_replay(answer):
    return answer.headers.get("idempotent-replayed") == "true"


REQUESTS = {
    "campaign": ("/campaigns", campaign("new"), campaign("new", budget=2)),
    # Without an id and a seed, which the service then chooses.
    "campaign without id": ("/campaigns", {**campaign(), "id": None, "seed": None}, campaign("other")),
    "portfolio": (
        "/portfolios",
        {"id": "acme", "resources": [{"id": "usd", "budget": 3}]},
        {"id": "acme", "resources": [{"id": "usd", "budget": 4}]},
    ),
    "adjust": (
        "/admin/campaigns/c/adjust",
        {"resource": "usd", "amount": 2, "reason": "invoice"},
        {"resource": "usd", "amount": 3, "reason": "invoice"},
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_key_and_body_has_the_same_answer_and_another_body_is_a_conflict(call, name):
    path, body, other = REQUESTS[name]
    body = {field: value for field, value in body.items() if value is not None}
    assert call("POST", "/campaigns", json=campaign()).status_code == 201
    first = call("POST", path, json=body, **keyed("k"))
    assert first.is_success, first.text
    assert not is_replay(first)
    entries = audited(call)
    # 1 and 1.0 are the same, as in every request, and the order of fields has no meaning.
    same = {field: float(value) if field == "amount" else value for field, value in reversed(body.items())}
    for again in (body, same):
        second = call("POST", path, json=again, **keyed("k"))
        assert (second.status_code, second.json()) == (first.status_code, first.json())
        assert is_replay(second)
        assert second.headers.get("location") == first.headers.get("location")
    refused = call("POST", path, json=other, **keyed("k"))
    assert (refused.status_code, refused.json()["type"].split(":")[-1]) == (409, "idempotency-key-reused")
    assert audited(call) == entries


def test_a_key_belongs_to_one_path_and_to_one_api_key(call, database):
    for name in "cd":
        assert call("POST", "/campaigns", json=campaign(name)).status_code == 201
    body = {"resource": "usd", "amount": 2, "reason": "invoice"}
    assert call("POST", "/admin/campaigns/c/adjust", json=body, **keyed("k")).json()["spent"] == 2
    assert call("POST", "/admin/campaigns/d/adjust", json=body, **keyed("k")).status_code == 409
    other = key_for(database, "admin")
    assert call("POST", "/admin/campaigns/c/adjust", json=body, key=other, **keyed("k")).json()["spent"] == 4
    assert call("POST", "/admin/campaigns/c/adjust", json=body, **keyed("l")).json()["spent"] == 6
    assert call("POST", "/admin/campaigns/c/adjust", json=body).json()["spent"] == 8


def test_a_refused_request_does_not_use_the_key_up(call):
    assert call("POST", "/campaigns", json=campaign()).status_code == 201
    assert call("POST", "/campaigns", json=campaign(), **keyed("k")).json()["type"].endswith("campaign-exists")
    assert call("POST", "/campaigns", json={}, **keyed("k")).status_code == 422
    made = call("POST", "/campaigns", json=campaign("d"), **keyed("k"))
    assert (made.status_code, is_replay(made)) == (201, False)


@pytest.mark.parametrize(
    ("key", "message"), [("", "must have at least 1 character"), ("k" * 256, "must have at most 255 characters")]
)
def test_a_key_that_is_none_is_refused_by_the_name_of_the_header(call, key, message):
    refused = call("POST", "/campaigns", json=campaign(), **keyed(key))
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert (error["field"], error["message"]) == ("Idempotency-Key", message)


def test_an_answer_is_kept_for_a_day_and_deleted_afterwards(clocked_database):
    database = clocked_database
    runner = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=500)

    def run(command):
        item = Item(command, inf)
        runner.run([item])
        return item.answer

    def kept():
        with database.read() as connection:
            return [row.key for row in connection.execute(tables.idempotency.select())]

    run(CreateCampaign(config("c")))
    adjust = Once(Adjust("c", "usd", 2.0, "invoice", "me"), "k", b"digest")
    assert run(adjust).replayed is False
    database.clock.micros += 24 * HOUR - 1
    assert run(adjust).replayed is True
    database.clock.micros += 1
    assert (run(adjust).replayed, run(adjust).body["spent"]) == (False, 4)
    database.clock.micros += 24 * HOUR
    assert run(adjust._replace(key="l")).replayed is False
    assert kept() == ["l"]


def test_of_many_requests_with_one_key_at_two_processes_one_is_carried_out(dialect, database_url):
    body = {"resource": "usd", "amount": 2, "reason": "invoice"}
    with ExitStack() as stack:
        count = 2 if dialect == "postgresql" else 1
        servers = [stack.enter_context(running_server(database_url=database_url)) for _ in range(count)]

        async def all_at_once(path, posted):
            async with httpx.AsyncClient(headers=HEADERS, trust_env=False, timeout=ANSWER_SECONDS_MAX) as client:
                urls = [servers[n % count].url + path for n in range(40)]
                return await asyncio.gather(*(client.post(url, json=posted, **keyed("k")) for url in urls))

        with calls(servers[0]) as client:
            create(client, campaign())
            answers = asyncio.run(all_at_once("/admin/campaigns/c/adjust", body))
            assert {answer.status_code for answer in answers} <= {200, 503}
            done = [answer for answer in answers if answer.status_code == 200]
            assert sum(not is_replay(answer) for answer in done) == 1
            assert {answer.text for answer in done} == {done[0].text}
            assert account(client)["spent"] == 2
        others = asyncio.run(all_at_once("/campaigns", campaign("d")))
        assert {answer.status_code for answer in others} <= {409, 503}
