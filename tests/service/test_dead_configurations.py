"""Configurations in which no arm could ever be paid: refused when they arise, and never in the way of a repair."""

from __future__ import annotations

import json

from sqlalchemy import update

from service.store import tables
from tests.service.http_calls import campaign, decide_body, good

# One arm is too dear for the day's limit of usd, the other for the budget of eur.
CROSSED = {
    "arms": [{"id": "a", "max_cost": {"eur": 0.1}}, {"id": "b", "max_cost": {"usd": 0.1}}],
    "resources": [
        {"id": "usd", "budget": 5, "max_cost": 1, "windows": [{"period": "day", "limit": 0.5}]},
        {"id": "eur", "budget": 0.5, "max_cost": 1},
    ],
}


def create(call, **changes):
    return good(call("POST", "/campaigns", json=campaign(**changes)), 201)


def patch(call, **changes):
    return good(call("PATCH", "/campaigns/c", json=changes))


def refused(answer):
    """Returns the fields that a refusal names."""
    assert answer.status_code == 422, answer.text
    return [error["field"] for error in answer.json()["errors"]]


def store(database, **changes):
    """Gives the campaign a configuration that version 0.1 accepted."""
    with database.write() as connection:
        config = json.loads(connection.execute(tables.config.select()).one().body) | changes
        connection.execute(update(tables.config).values(body=json.dumps(config)))
        for index, resource in enumerate(config["resources"]):
            granted = round(resource["budget"] * 1_000_000)
            connection.execute(update(tables.account).where(tables.account.c.resource == index).values(granted=granted))


def test_some_arm_must_be_payable_under_every_budget_and_every_window_at_once(call):
    assert refused(call("POST", "/campaigns", json=campaign(**CROSSED))) == [
        "resources.0.windows",
        "resources.1.max_cost",
    ]
    create(call, **CROSSED | {"arms": [*CROSSED["arms"], {"id": "n", "max_cost": {"usd": 0.5, "eur": 0.5}}]})
    assert good(call("POST", "/decide", json=decide_body("d")))["arm"] == "n"
    assert refused(call("PATCH", "/campaigns/c", json={"arms": [{"id": "n", "max_cost": {"usd": 0.5}}]})) == ["arms"]


def test_the_portfolio_and_the_campaign_must_be_able_to_pay_the_same_arm(call):
    shared = {"id": "acme", "resources": [{"id": "usd", "budget": 0.5}]}
    good(call("POST", "/portfolios", json=shared), 201)
    crossed = campaign(
        portfolio="acme",
        arms=CROSSED["arms"],
        resources=[{"id": name, "budget": budget, "max_cost": 1} for name, budget in (("usd", 5), ("eur", 0.5))],
    )
    assert refused(call("POST", "/campaigns", json=crossed)) == ["portfolio"]
    assert good(call("PATCH", "/portfolios/acme", json={"resources": [{"id": "usd", "budget": 1}]}))
    good(call("POST", "/campaigns", json=crossed), 201)


def test_a_dead_campaign_is_repaired_in_any_number_of_steps(call, database):
    resources = [{"id": name, "budget": 5, "max_cost": 1} for name in ("usd", "eur")]
    create(call, resources=resources)
    store(database, resources=[each | {"budget": 0.5} for each in resources])
    assert good(call("POST", "/decide", json=decide_body("d1")))["reason"] == "budget_exhausted"
    patch(call, resources=[{"id": "usd", "budget": 2}])
    patch(call, add_arms=[{"id": "n", "max_cost": {"usd": 0.1}}])
    patch(call, arms=[{"id": "n", "max_cost": {"usd": 0.1, "eur": 0.6}}])
    patch(call, resources=[{"id": "eur", "budget": 0.8}])
    assert good(call("POST", "/decide", json=decide_body("d2")))["arm"] == "n"
    good(call("POST", "/feedback", json={"campaign_id": "c", "decision_id": "d2", "void": True}))
    assert refused(call("PATCH", "/campaigns/c", json={"resources": [{"id": "eur", "budget": 0.5}]})) == ["resources"]
    patch(call, resources=[{"id": "eur", "budget": 2}])
    assert good(call("GET", "/admin/campaigns/c/budget"))["exhausted"] is False
