"""Windows in the interface: declared, shown, changed, refused."""

from __future__ import annotations

import pytest

from service.times import moment_microseconds
from tests.service.http_calls import campaign, decide_body, good


def resource(*windows, **changes):
    declared = [{"period": period, "limit": limit} for period, limit in windows]
    return {"id": "usd", "budget": 1000, "max_cost": 1, "windows": declared} | changes


def test_windows_are_declared_used_shown_and_changed(call):
    terms = campaign(resources=[resource(("day", 2), ("month", 30))], timezone="Europe/Berlin")
    made = good(call("POST", "/campaigns", json=terms), 201)
    assert made["config"]["resources"] == terms["resources"]
    assert made["config"]["timezone"] == "Europe/Berlin"
    reasons = [good(call("POST", "/decide", json=decide_body(name)))["reason"] for name in ("x", "y", "z")]
    assert reasons == ["policy", "policy", "window_exhausted"]
    (shown,) = good(call("GET", "/admin/campaigns/c/budget"))["resources"]
    day, month = shown["windows"]
    assert {name: day[name] for name in ("period", "limit", "held", "spent", "free")} == {
        "period": "day",
        "limit": 2,
        "held": 2,
        "spent": 0,
        "free": 0,
    }
    hours = (moment_microseconds(day["ends_at"]) - moment_microseconds(day["starts_at"])) / 3.6e9
    assert hours in (23, 24, 25)
    assert (month["held"], month["free"]) == (2, 28)
    (every,) = good(call("GET", "/admin/budgets"))["items"]
    assert every["resources"][0]["windows"] == shown["windows"]
    low = call("PATCH", "/campaigns/c", json={"resources": [{"id": "usd", "windows": [{"period": "day", "limit": 1}]}]})
    assert (low.status_code, low.json()["type"]) == (409, "urn:cbwk:problem:window-below-spent")
    good(call("PATCH", "/campaigns/c", json={"resources": [{"id": "usd", "windows": [{"period": "day", "limit": 3}]}]}))
    assert good(call("POST", "/decide", json=decide_body("w")))["reason"] == "policy"
    assert good(call("GET", "/admin/campaigns/c/verify"))["ok"]


def test_a_window_without_decisions_shows_zeros_and_its_present_period(call):
    good(call("POST", "/campaigns", json=campaign(resources=[resource(("hour", 5))])), 201)
    (shown,) = good(call("GET", "/campaigns/c"))["accounts"]
    (hour,) = shown["windows"]
    assert (hour["held"], hour["spent"], hour["free"]) == (0, 0, 5)
    assert moment_microseconds(hour["ends_at"]) - moment_microseconds(hour["starts_at"]) == 3_600_000_000


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"timezone": "../etc/passwd"}, "timezone"),
        ({"resources": [resource(("day", 1), ("day", 2))]}, "resources.0.windows"),
        ({"resources": [resource(("day", 0))]}, "resources.0.windows.0.limit"),
        ({"resources": [resource(("year", 5))]}, "resources.0.windows.0.period"),
        ({"resources": [resource(("day", 0.5))]}, "resources.0.windows"),
    ],
)
def test_a_window_that_cannot_be_is_refused(call, changes, field):
    answer = call("POST", "/campaigns", json=campaign(**changes))
    assert answer.status_code == 422, answer.text
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_change_without_budget_and_windows_is_refused(call):
    good(call("POST", "/campaigns", json=campaign()), 201)
    assert call("PATCH", "/campaigns/c", json={"resources": [{"id": "usd"}]}).status_code == 422
