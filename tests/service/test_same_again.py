"""Requests of administrators that may be sent again: PUT of a campaign."""

from __future__ import annotations

from urllib.parse import urljoin

from tests.service.http_calls import campaign


def audited(call):
    return [(entry["action"], entry["campaign_id"]) for entry in call("GET", "/admin/audit").json()["items"]]


def test_put_creates_a_campaign_once_and_then_says_that_it_is_there(call):
    made = call("PUT", "/campaigns/a:b", json=campaign("a:b"))
    assert made.status_code == 201, made.text
    assert urljoin("http://h/campaigns/a:b", made.headers["location"]) == "http://h/campaigns/a:b"
    again = call("PUT", "/campaigns/a:b", json=campaign("a:b", budget=1000.0))
    assert (again.status_code, again.json()) == (200, made.json())
    assert "location" not in again.headers
    assert audited(call) == [("campaign.create", "a:b")]


def test_put_needs_neither_an_id_nor_a_seed_and_takes_what_a_campaign_shows(call):
    body = {name: value for name, value in campaign().items() if name not in ("id", "seed")}
    made = call("PUT", "/campaigns/c", json=body)
    assert (made.status_code, made.json()["id"]) == (201, "c")
    shown = call("GET", "/campaigns/c").json()["config"]
    for same in (body, shown, {**body, "seed": shown["seed"]}):
        assert call("PUT", "/campaigns/c", json=same).status_code == 200


def test_put_compares_with_the_present_configuration(call):
    assert call("PUT", "/campaigns/c", json=campaign()).status_code == 201
    for change in ({"budget": 999}, {"horizon": 10}, {"seed": 8}, {"display_name": "C"}):
        assert call("PUT", "/campaigns/c", json=campaign(**change)).status_code == 409
    assert call("PATCH", "/campaigns/c", json={"resources": [{"id": "usd", "budget": 2000}]}).status_code == 200
    refused = call("PUT", "/campaigns/c", json=campaign())
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:cbwk:problem:campaign-exists")
    assert refused.json()["detail"].endswith("differs in resources")
    same = call("PUT", "/campaigns/c", json=campaign(budget=2000))
    assert (same.status_code, same.json()["version"]) == (200, 2)


def test_put_knows_a_campaign_that_ends_at_a_time(call):
    body = campaign(horizon=None, ends_at="2030-01-01T00:00:00Z")
    assert call("PUT", "/campaigns/c", json=body).status_code == 201
    assert call("PUT", "/campaigns/c", json=body).status_code == 200


def test_put_refuses_another_id_than_that_of_the_path(call):
    refused = call("PUT", "/campaigns/d", json=campaign("c"))
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "id")
    assert call("PUT", "/campaigns/no%20id", json=campaign()).status_code == 404
    assert audited(call) == []
