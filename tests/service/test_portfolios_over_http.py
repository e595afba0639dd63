"""Portfolios over HTTP: declared, shown, changed, refused; with two processes, and after kill -9."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from urllib.parse import urljoin

import pytest

from cbwk_client import Client, Portfolio
from tests.service.http_calls import at_once, calls, campaign, connected, create, decide_body, failed_checks, good
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import running_server

PATIENCE = {"request_deadline_ms": 60_000, "lock_timeout_ms": 30_000}
ROOM, MEMBERS = 60, ("c", "d", "e")


def refused(answer, status, kind):
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:cbwk:problem:{kind}"), answer.text
    return answer.json()


def test_a_portfolio_is_declared_shown_changed_and_refused(call):
    made = good(call("POST", "/portfolios", json={"id": "acme", "resources": [{"id": "usd", "budget": 3}]}), 201)
    assert made["config"] == {"id": "acme", "resources": [{"id": "usd", "budget": 3, "windows": []}], "timezone": "UTC"}
    refused(call("POST", "/portfolios", json=made["config"]), 409, "portfolio-exists")
    for name in ("c", "d"):
        shown = good(call("POST", "/campaigns", json=campaign(name, portfolio="acme")), 201)
        assert shown["config"]["portfolio"] == "acme"
    asked = [good(call("POST", "/decide", json=decide_body(f"x{n}", "cd"[n % 2])))["reason"] for n in range(4)]
    assert asked == ["policy"] * 3 + ["window_exhausted"]
    detail = good(call("GET", "/portfolios/acme"))
    assert (detail["version"], detail["campaigns"]) == (1, ["c", "d"])
    assert good(call("GET", "/portfolios"))["items"] == [detail]
    assert [item["id"] for item in good(call("GET", "/campaigns"))["items"]] == ["c", "d"]
    assert [item["campaign_id"] for item in good(call("GET", "/admin/budgets"))["items"]] == ["c", "d"]
    budget = good(call("GET", "/admin/portfolios/acme/budget"))
    (usd,) = budget["resources"]
    assert (usd["granted"], usd["held"], usd["free"], budget["rounds"]) == (3, 3, 0, 4)
    assert [(part["campaign_id"], part["held"]) for part in budget["campaigns"]] == [
        ("c", {"usd": 2}),
        ("d", {"usd": 1}),
    ]
    body = {"resources": [{"id": "usd", "budget": 2}]}
    refused(call("PATCH", "/portfolios/acme", json=body), 409, "budget-below-spent")
    body = {
        "resources": [{"id": "usd", "budget": 9, "windows": [{"period": "day", "limit": 4}]}],
        "expected_version": 1,
    }
    assert good(call("PATCH", "/portfolios/acme", json=body))["version"] == 2
    refused(call("PATCH", "/portfolios/acme", json=body), 409, "version-differs")
    assert good(call("POST", "/decide", json=decide_body("y", "d")))["reason"] == "policy"
    assert good(call("POST", "/decide", json=decide_body("z", "d")))["reason"] == "window_exhausted"
    ledger = good(call("GET", "/admin/portfolios/acme/ledger?limit=2"))
    assert [item["kind"] for item in ledger["items"]] == ["hold", "budget"]
    assert good(call("GET", "/admin/portfolios/acme/verify"))["ok"]
    assert call("GET", "/metrics").status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"id": "p", "resources": []}, "resources"),
        ({"id": "p/q", "resources": [{"id": "usd", "budget": 1}]}, "id"),
        ({"id": "p", "resources": [{"id": "usd", "budget": 0}]}, "resources.0.budget"),
        ({"id": "p", "resources": [{"id": "usd", "budget": 1}] * 2}, "resources"),
        ({"id": "p", "resources": [{"id": "usd", "budget": 1}], "timezone": "Mars/Olympus"}, "timezone"),
        ({"id": "p", "resources": [{"id": "usd", "budget": 1, "max_cost": 1}]}, "resources.0.max_cost"),
    ],
)
def test_a_portfolio_that_cannot_be_is_refused(call, body, field):
    answer = refused(call("POST", "/portfolios", json=body), 422, "invalid")
    assert field in [error["field"] for error in answer["errors"]]


def test_what_does_not_exist_is_not_found(call):
    for path in ("/portfolios/p", *(f"/admin/portfolios/p/{view}" for view in ("budget", "ledger", "verify"))):
        refused(call("GET", path), 404, "portfolio-not-found")
    body = {"resources": [{"id": "usd", "budget": 1}]}
    refused(call("PATCH", "/portfolios/p", json=body), 404, "portfolio-not-found")
    refused(call("POST", "/campaigns", json=campaign(portfolio="p")), 422, "invalid-campaign")
    named_like_a_campaign = call("POST", "/portfolios", json={"id": "c", **body})
    good(named_like_a_campaign, 201)
    assert urljoin("http://h/portfolios", named_like_a_campaign.headers["location"]) == "http://h/portfolios/c"
    refused(call("GET", "/campaigns/c"), 404, "campaign-not-found")
    refused(call("POST", "/decide", json=decide_body("x")), 404, "campaign-not-found")
    assert call("GET", "/campaigns/portfolio%2Fc").status_code == 404


def with_members(client, budget=ROOM):
    good(client.post("/portfolios", json={"id": "acme", "resources": [{"id": "usd", "budget": budget}]}), 201)
    for name in MEMBERS:
        create(client, campaign(name, budget=2 * ROOM, horizon=100_000, portfolio="acme"))
    create(client, campaign("alone", budget=ROOM, horizon=100_000))


def check_accounts(client):
    assert good(client.get("/admin/portfolios/acme/verify"))["ok"]
    assert [failed_checks(client, name) for name in (*MEMBERS, "alone")] == [[], [], [], []]
    return good(client.get("/admin/portfolios/acme/budget"))["resources"][0]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_two_processes_together_hold_exactly_what_the_portfolio_has(migrated_url):
    """Each process decides for all campaigns at once, in any order: no deadlock, no overspend."""
    with ExitStack() as stack:
        servers = [stack.enter_context(running_server(database_url=migrated_url, **PATIENCE)) for _ in range(2)]
        first, second = (stack.enter_context(calls(server)) for server in servers)
        with_members(first)
        names = (*MEMBERS, "alone")
        bodies = [decide_body(f"x{number}", names[number * 7 % 4]) for number in range(400)]
        replies = asyncio.run(at_once(servers, "/decide", bodies))
        assert {reply.status for reply in replies} == {200}
        held = [reply.json["campaign_id"] for reply in replies if reply.json["arm"] is not None]
        assert held.count("alone") == ROOM
        assert len(held) == 2 * ROOM
        usd = check_accounts(second)
        assert (usd["held"], usd["free"]) == (ROOM, 0)
        more = {"resources": [{"id": "usd", "budget": ROOM + 1}]}
        assert good(second.patch("/portfolios/acme", json=more))["version"] == 2
        reasons = [good(first.post("/decide", json=decide_body(f"y{n}", "c")))["reason"] for n in range(2)]
        assert reasons == ["policy", "window_exhausted"]


@pytest.mark.slow
def test_kill_9_loses_nothing_and_spends_nothing_twice(migrated_url):
    async def load(server, answered, number):
        async with connected(server, 4) as connections:

            async def work(connection, name):
                for at in range(10_000):
                    key = f"{number}-{name}-{at}"
                    decided = (await connection.post("/decide", decide_body(key, name))).json
                    answered[key] = decided
                    if decided["arm"] is not None:
                        report = {"campaign_id": name, "decision_id": key, "reward": 1, "costs": {"usd": 0.01}}
                        await connection.post("/feedback", report)

            names = (*MEMBERS, "alone")
            workers = [asyncio.create_task(work(*pair)) for pair in zip(connections, names, strict=True)]
            await asyncio.sleep(0.5)
            server.process.kill()
            await asyncio.gather(*workers, return_exceptions=True)

    answered = {}
    for number in range(3):
        with running_server(database_url=migrated_url) as server:
            if not number:
                with calls(server) as client:
                    with_members(client)
            asyncio.run(load(server, answered, number))
    with running_server(database_url=migrated_url) as server, calls(server) as client:
        usd = check_accounts(client)
        assert usd["spent"] + usd["held"] <= ROOM
        for key, body in [*answered.items()][-20:]:
            again = client.post("/decide", json=decide_body(key, body["campaign_id"]))
            assert again.json() == body


def test_the_client_creates_shows_and_changes_portfolios(served_url):
    with Client(served_url, ADMIN_KEY) as client:
        made = client.create_portfolio({"id": "shop", "resources": [{"id": "usd", "budget": 5}]})
        assert isinstance(made, Portfolio)
        client.create_campaign(campaign("of-shop", portfolio="shop"))
        changed = client.change_portfolio("shop", {"resources": [{"id": "usd", "budget": 6}]})
        assert (changed.version, client.portfolio("shop").campaigns) == (2, ("of-shop",))
        budget = client.portfolio_budget("shop")
        assert (budget["usd"].granted, budget.campaigns[0]["campaign_id"]) == (6, "of-shop")
