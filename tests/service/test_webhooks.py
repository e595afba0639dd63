"""Messages about budgets, models and ends: what is announced, once, to whom, signed, and where it may go."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter

import httpx
import numpy as np
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from service.domain.notices import Webhook as Hook
from service.engine.batch import BatchRunner
from service.engine.commands import Adjust, Answer, CreateCampaign, CreateWebhook, DeleteWebhook, Item
from service.engine.notices import known_webhooks
from service.store import tables, webhooks
from service.times import moment_text
from service.webhooks.ends import Ends
from service.webhooks.sender import Sender
from tests.service.engine.campaigns import config, rows
from tests.service.engine.test_changing import ROUNDS, play
from tests.service.http_calls import calls, campaign, create, decide_body, good
from tests.service.listener import listener
from tests.service.server_process import running_server

EVERY = [
    "budget.threshold",
    "budget.exhausted",
    "budget.overrun",
    "window.threshold",
    "window.exhausted",
    "drift.noticed",
    "evaluation.done",
    "campaign.ended",
]
AWAY = "https://1.1.1.1/cbwk"  # nothing is sent in tests without a sender


def watch(call, *events, **more):
    return good(call("POST", "/admin/webhooks", json={"url": AWAY, "events": list(events), **more}), 201)["id"]


def spend(call, name, cost, of="c"):
    good(call("POST", "/decide", json=decide_body(name, of)))
    report = {"campaign_id": of, "decision_id": name, "reward": 0, "costs": {"usd": cost}}
    good(call("POST", "/feedback", json=report))


def announced(database):
    """The events that were announced, with what distinguishes them."""
    found = []
    for row in sorted(rows(database, tables.delivery), key=itemgetter("number")):
        data = json.loads(row["body"])["data"]
        found.append((row["event"], row["campaign_id"], data.get("threshold", data.get("resource"))))
    return found


def test_a_threshold_is_announced_once_while_the_budget_has_the_same_size(call, database):
    good(call("POST", "/campaigns", json=campaign(budget=10)), 201)
    watch(call, "budget.threshold")
    for i in range(4):
        spend(call, f"a{i}", 1)
    assert announced(database) == []
    spend(call, "b", 1)
    assert announced(database) == [("budget.threshold", "c", 50)]
    adjust = {"resource": "usd", "reason": "to and fro"}
    for amount in (-1, 1, 4):
        good(call("POST", "/admin/campaigns/c/adjust", json=adjust | {"amount": amount}))
    fifty, eighty = ("budget.threshold", "c", 50), ("budget.threshold", "c", 80)
    assert announced(database) == [fifty, eighty]
    good(call("PATCH", "/campaigns/c", json={"resources": [{"id": "usd", "budget": 20}]}))
    assert announced(database) == [fifty, eighty]
    good(call("POST", "/admin/campaigns/c/adjust", json=adjust | {"amount": 1.5}))
    assert announced(database) == [fifty, eighty, fifty]
    good(call("PATCH", "/campaigns/c", json={"resources": [{"id": "usd", "budget": 11}]}))
    assert announced(database)[3:] == [eighty, ("budget.threshold", "c", 95)]
    body = json.loads(rows(database, tables.delivery)[0]["body"])
    amounts = {"granted": 10, "spent": 5, "held": 0}
    names = {"campaign_id": "c", "display_name": None, "resource": "usd", "unit": None}
    assert body["type"] == "budget.threshold"
    assert body["data"] == names | amounts | {"threshold": 50}


def test_exhaustion_overrun_and_the_end_are_announced_by_the_transaction_that_brings_them_about(call, database):
    good(call("POST", "/campaigns", json=campaign(budget=3, horizon=4)), 201)
    watch(call, "budget.exhausted", "budget.overrun", "campaign.ended")
    made = [good(call("POST", "/decide", json=decide_body(f"d{i}"))) for i in range(4)]
    assert [each["reason"] for each in made].count("budget_exhausted") == 1
    assert announced(database) == [("budget.exhausted", "c", None), ("campaign.ended", "c", None)]
    good(call("POST", "/feedback", json={"campaign_id": "c", "decision_id": "d0", "void": True}))
    report = {"campaign_id": "c", "decision_id": "d1", "reward": 1, "costs": {"usd": 2.5}}
    good(call("POST", "/feedback", json=report))  # d1 and d2 were held: 2.5 + 1 of 3
    assert announced(database)[2:] == [("budget.overrun", "c", "usd")]


def test_windows_are_announced_once_in_a_period(call, database):
    window = [{"period": "week", "limit": 4}]
    resources = [{"id": "usd", "budget": 100, "max_cost": 1, "windows": window, "unit": "USD"}]
    good(call("POST", "/campaigns", json=campaign(resources=resources)), 201)
    watch(call, "window.threshold", "window.exhausted", thresholds=[50, 100])
    for i in range(4):
        spend(call, f"d{i}", 1)
    good(call("POST", "/decide", json=decide_body("late")))
    found = announced(database)
    assert sorted(found) == [
        ("window.exhausted", "c", "usd"),
        ("window.threshold", "c", 50),
        ("window.threshold", "c", 100),
    ]
    data = json.loads(rows(database, tables.delivery)[0]["body"])["data"]
    assert (data["period"], data["limit"], data["unit"]) == ("week", 4, "USD")
    assert data["starts_at"] < data["ends_at"]


def test_a_webhook_gets_its_events_its_thresholds_and_its_campaigns_from_its_creation_on(call, database):
    for name in ("c", "other"):
        good(call("POST", "/campaigns", json=campaign(name, budget=10)), 201)
    spend(call, "before", 0.5)
    good(call("POST", "/admin/campaigns/c/adjust", json={"resource": "usd", "amount": 5, "reason": "before"}))
    ids = {
        watch(call, "budget.threshold", thresholds=[60], campaigns=["c"]): [("c", 60)],
        watch(call, "budget.threshold", thresholds=[60, 70]): [("c", 60), ("c", 70), ("other", 60)],
        watch(call, "budget.overrun", "drift.noticed"): [],
    }
    for name, amount in (("c", 2), ("other", 6)):
        good(
            call("POST", f"/admin/campaigns/{name}/adjust", json={"resource": "usd", "amount": amount, "reason": "now"})
        )
    for webhook, expected in ids.items():
        items = good(call("GET", f"/admin/webhooks/{webhook}/deliveries"))["items"]
        found = [(item["campaign_id"], item["body"]["data"]["threshold"]) for item in reversed(items)]
        assert found == expected
        assert all(item["status"] == "waiting" for item in items)
    shown = good(call("GET", "/admin/webhooks"))["items"]
    assert [item["id"] for item in shown] == list(ids)
    assert not any("secret" in item for item in shown)
    for webhook in ids:
        assert good(call("DELETE", f"/admin/webhooks/{webhook}")) == {"id": webhook, "deleted": True}
        assert call("DELETE", f"/admin/webhooks/{webhook}").status_code == 404
    assert rows(database, tables.delivery) == []
    good(call("POST", "/admin/campaigns/c/adjust", json={"resource": "usd", "amount": 1, "reason": "after"}))
    assert rows(database, tables.delivery) == []
    assert "whsec_" not in call("GET", "/admin/audit").text


def test_a_webhook_that_another_process_has_deleted_stops_no_transaction(database):
    here, there = (BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000) for _ in range(2))

    def run(runner, command):
        item = Item(command, 0.0)
        runner.run([item])
        assert isinstance(item.answer, Answer), item.answer
        return item.answer.body

    run(here, CreateCampaign(config(budget=10)))
    made = [run(here, CreateWebhook(AWAY, ("budget.threshold",), (50,)))["id"] for _ in range(2)]
    run(here, Adjust("c", "usd", 1, "the webhooks are known"))
    run(there, DeleteWebhook(made[0]))
    run(here, Adjust("c", "usd", 5, "past the threshold"))
    assert [row["webhook"] for row in rows(database, tables.delivery)] == made[1:]


def test_a_message_waits_for_the_deletion_of_its_webhook(database):
    with_message(database, AWAY)
    row = webhooks.delivery_row("w", "other", "budget.threshold", "msg_2", 5, campaign_id="c", body="{}")

    def add():
        with database.write() as connection:
            webhooks.add_deliveries(connection, [row])

    with ThreadPoolExecutor(1) as pool:
        with database.write() as connection:
            webhooks.remove(connection, "w")
            added = pool.submit(add)
            with pytest.raises(TimeoutError):
                added.result(timeout=0.3)
        added.result()
    assert rows(database, tables.delivery) == []


def test_a_change_of_the_world_is_announced_when_the_model_restarts(database):
    rng = np.random.default_rng(1)
    processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000)
    processor.run([Item(CreateCampaign(config(budget=10_000, horizon=10_000)), 0.0)])
    processor.run([Item(CreateWebhook(AWAY, ("drift.noticed",), ()), 0.0)])
    play(processor, rng, 0, {"a": 0.8, "b": 0.1})
    assert announced(database) == []
    play(processor, rng, ROUNDS, {"a": 0.1, "b": 0.8})
    assert announced(database) == [("drift.noticed", "c", None)]


def test_a_campaign_that_ends_at_its_time_is_announced_once(call, database):
    good(call("POST", "/campaigns", json=campaign()), 201)
    now = time.time_ns() // 1000
    ends = {"ends_at": moment_text(now + 3_600_000_000), "horizon": None}
    good(call("POST", "/campaigns", json=campaign("dated") | ends), 201)
    watch(call, "campaign.ended")
    looked = Ends()
    for at, expected in ((now, []), (now + 3_700_000_000, ["dated"]), (now + 3_800_000_000, [])):
        with database.read() as connection:
            found = looked.messages(connection, known_webhooks(connection), at)
        assert [row["campaign_id"] for row in found] == expected
        if found:
            with database.write() as connection:
                webhooks.add_deliveries(connection, found + found)
    assert announced(database) == [("campaign.ended", "dated", None)]
    later = [Hook("w", frozenset(["campaign.ended"]), (), None, now + 3_650_000_000)]
    with database.read() as connection:
        assert looked.messages(connection, later, now + 3_700_000_000) == []


@pytest.mark.parametrize(
    "url",
    [
        "http://1.1.1.1/",
        "https://127.0.0.1/",
        "https://localhost/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://[::ffff:192.168.1.1]/",
        "https://[64:ff9b::a00:1]/",
        "https://2130706433/",
        "https://me:secret@1.1.1.1/",
        "https://no.such.name.invalid/",
        "https://1.1.1.1:port/",
        "ftp://1.1.1.1/",
        "nonsense",
    ],
)
def test_an_address_that_is_not_public_is_refused(call, url):
    answer = call("POST", "/admin/webhooks", json={"url": url, "events": ["budget.threshold"]})
    assert answer.status_code == 422
    assert answer.json()["type"].endswith("url-refused")
    assert [error["field"] for error in answer.json()["errors"]] == ["url"]


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def test_a_listener_receives_signed_messages_and_failed_ones_again():
    with listener(500) as (url, received), running_server(webhook_private="true") as server, calls(server) as client:
        made = good(
            client.post("/admin/webhooks", json={"url": f"{url}/hook", "events": EVERY, "thresholds": [50]}), 201
        )
        create(client, campaign(budget=2, display_name="Spring"))
        client.post("/decide", json=decide_body("d"))
        report = {"campaign_id": "c", "decision_id": "d", "reward": 1, "costs": {"usd": 1}}
        assert client.post("/feedback", json=report).status_code == 200
        wait_until(lambda: len(received) >= 2)
        where = f"/admin/webhooks/{made['id']}/deliveries"
        wait_until(lambda: client.get(where).json()["items"][0]["status"] == "delivered")
        (item,) = client.get(where).json()["items"]
    assert len(received) == 2
    for path, headers, body in received:
        assert path == "/hook"
        assert headers["host"] == url.split("/")[2]
        message = Webhook(made["secret"]).verify(body, headers)
        assert message["type"] == "budget.threshold"
        assert message["data"]["display_name"] == "Spring"
        with pytest.raises(WebhookVerificationError):
            Webhook(made["secret"]).verify(body + b" ", headers)
    assert len({headers["webhook-id"] for _, headers, _ in received}) == 1
    assert (item["id"], item["attempts"], item["response_status"]) == (received[0][1]["webhook-id"], 2, 204)


def sent_once(database, *, private):
    """Run one step of a sender; return the messages afterwards."""

    class Deaf:
        def forget_webhooks(self):
            """There is no engine that has read any."""

    async def step():
        async with httpx.AsyncClient(trust_env=False) as client:
            await Sender(database, Deaf(), private=private)._step(client)

    asyncio.run(step())
    return rows(database, tables.delivery)


def with_message(database, url, at=None):
    """Store a webhook, and a message for it that is due."""
    with database.write() as connection:
        now = database.now_micros(connection) if at is None else at
        hook = {"id": "w", "url": url, "events": "[]", "thresholds": "[]", "secret": "whsec_c2VjcmV0c2VjcmV0c2VjcmV0"}
        connection.execute(tables.webhook.insert().values(**hook, created_at=1))
        row = webhooks.delivery_row("w", "mark", "budget.threshold", "msg_1", now, campaign_id="c", body="{}")
        webhooks.add_deliveries(connection, [row])


def test_an_address_that_was_allowed_is_checked_again_when_a_message_is_sent(database):
    with listener() as (url, received):
        with_message(database, f"{url}/hook".replace("http:", "https:"))
        (row,) = sent_once(database, private=False)
        assert row["status"] == "waiting"
        assert "public address" in row["error"]
        assert received == []


def test_redirects_are_not_followed_and_a_gone_address_is_given_up(database):
    with listener(302, 410) as (url, received):
        with_message(database, f"{url}/hook")
        (row,) = sent_once(database, private=True)
        assert (row["status"], row["response_status"]) == ("waiting", 302)
        with database.write() as connection:
            connection.execute(tables.delivery.update().values(next_at=1))
        (row,) = sent_once(database, private=True)
        assert (row["status"], row["response_status"], row["next_at"]) == ("failed", 410, None)
        assert [path for path, *_ in received] == ["/hook", "/hook"]


def test_a_message_is_given_up_after_a_day(database):
    with listener(500, 500) as (url, _):
        with_message(database, url, at=time.time_ns() // 1000 - 86_399_000_000)
        (row,) = sent_once(database, private=True)
        assert (row["status"], row["attempts"]) == ("failed", 1)


def test_senders_of_several_replicas_do_not_claim_the_same_messages(database):
    with_message(database, AWAY)
    with database.write() as connection:
        new = [webhooks.delivery_row("w", f"m{i}", "e", f"msg_{i}", 5, body="{}", campaign_id=None) for i in range(39)]
        webhooks.add_deliveries(connection, new)

    def claim(_):
        with database.write() as connection:
            return [row["mark"] for row in webhooks.claim(connection, database.now_micros(connection), limit=10)]

    with ThreadPoolExecutor(4) as pool:
        claimed = [mark for marks in pool.map(claim, range(4)) for mark in marks]
    assert len(claimed) == len({*claimed}) == 40
    with database.write() as connection:
        assert webhooks.claim(connection, database.now_micros(connection), limit=10) == []


def test_old_messages_are_dropped_and_waiting_ones_are_kept(database, monkeypatch):
    monkeypatch.setattr(webhooks, "KEPT_MAX", 2)
    with_message(database, AWAY)
    with database.write() as connection:
        now = database.now_micros(connection)
        new = [webhooks.delivery_row("w", f"m{i}", "e", f"msg_{i}", now, body="{}", campaign_id=None) for i in range(5)]
        webhooks.add_deliveries(connection, new)
        done = tables.delivery.c.mark.in_(["m0", "m1", "m2", "m3"])
        connection.execute(tables.delivery.update().where(done).values(status="delivered", next_at=None))
        month_ago = now - 31 * 86_400 * 1_000_000
        connection.execute(tables.delivery.update().where(tables.delivery.c.mark == "m3").values(at=month_ago))
        webhooks.drop_old(connection, now)
    assert {row["mark"] for row in rows(database, tables.delivery)} == {"mark", "m1", "m2", "m4"}
