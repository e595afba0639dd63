"""Must play in the interface: every request gets an arm as long as one can be paid, and the floor arm stays."""

from __future__ import annotations

import httpx
import pytest

from service.commands.console import campaign_ids
from service.engine.replay import replay
from service.store.database import Database
from tests.service.engine.histories import state_of
from tests.service.http_calls import campaign, decide_body, good
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import running_server

ARMS = [{"id": "small", "max_cost": {"usd": 0.04}}, {"id": "large", "max_cost": {"usd": 1}}, {"id": "huge"}]
SHARED = {"model": "shared", "arm_features": {"dimension": 1}}
SHARED_ARMS = [arm | {"features": [float(at)]} for at, arm in enumerate(ARMS)]


def must_play(**changes):
    resources = [{"id": "usd", "budget": 2, "max_cost": 3}]
    terms = {"arms": ARMS, "resources": resources, "horizon": 60, "null_arm": "last_resort", "floor_arm": "small"}
    return campaign(**(terms | changes))


def create(call, **changes):
    return good(call("POST", "/campaigns", json=must_play(**changes)), 201)


def decide(call, name, **more):
    return good(call("POST", "/decide", json=decide_body(name) | more))


def report(call, name, cost, reward=0.5):
    return good(
        call(
            "POST",
            "/feedback",
            json={"campaign_id": "c", "decision_id": name, "reward": reward, "costs": {"usd": cost}},
        )
    )


def fields(answer):
    return [error["field"] for error in answer.json().get("errors", ())]


def is_sound(call, database):
    assert good(call("GET", "/admin/campaigns/c/verify"))["ok"]
    (number,) = campaign_ids(database, "c")
    found = replay(database, number, advanced=lambda done, todo: None)
    assert found.difference is None, found.difference
    return True


def test_every_request_gets_an_arm_although_the_budget_is_below_the_floors_max_costs(call, database):
    made = create(call)
    assert (made["config"]["null_arm"], made["config"]["floor_arm"]) == ("last_resort", "small")
    (warning,) = made["warnings"]
    assert "2.4 of usd" in warning
    assert "budget is 2" in warning
    arms = []
    for number in range(60):
        decided = decide(call, f"d{number}")
        arms.append(decided["arm"])
        report(call, f"d{number}", 0.01 if decided["arm"] == "small" else 0.3)
    assert None not in arms
    assert arms.count("large") >= 1
    after = decide(call, "over")
    assert (after["arm"], after["reason"]) == (None, "ended")
    assert good(call("GET", "/campaigns/c"))["config"] == made["config"]
    assert is_sound(call, database)


def test_arms_in_excess_of_the_reserve_are_reserved_and_excluding_the_floor_gives_the_cheapest(call, database):
    create(call)
    why = decide(call, "x", explain=True)
    assert (why["arm"], why["probability"]) == ("small", 1)
    assert [arm["why_not"] for arm in why["arms"]] == [None, "reserved", "reserved"]
    assert decide(call, "x", explain=True) == why
    instead = decide(call, "y", exclude=["small"])
    assert (instead["arm"], instead["probability"]) == ("large", 1)
    assert (decide(call, "z", exclude=["small"])["reason"], decide(call, "w")["arm"]) == ("budget_exhausted", "small")
    known = decide(call, "v", max_costs={"large": {"usd": 0.001}}, exclude=["small"])
    assert (known["arm"], known["hold"]) == ("large", {"usd": 0.001})
    assert is_sound(call, database)


def test_one_batch_gives_every_item_an_arm_until_nothing_can_be_paid(call, database):
    create(call, resources=[{"id": "usd", "budget": 3, "max_cost": 3}], horizon=90)
    items = [{"decision_id": f"d{number}", "context": [0.1, 0.2]} for number in range(80)]
    answers = good(call("POST", "/decide/batch", json={"campaign_id": "c", "items": items}))["decisions"]
    arms = [answer["arm"] for answer in answers]
    assert arms == ["small"] * 75 + [None] * 5
    assert answers[-1]["reason"] == "budget_exhausted"
    assert is_sound(call, database)


def test_a_day_that_the_floor_could_exhaust_keeps_a_reserve_of_its_own(call, database):
    day = [{"id": "usd", "budget": 1000, "max_cost": 3, "windows": [{"period": "day", "limit": 1.05}]}]
    create(call, resources=day, horizon=100_000)
    arms = [decide(call, f"d{number}")["arm"] for number in range(30)]
    assert arms.count("small") >= 24
    assert {arms[at] for at in range(20, 26)} == {"small"}
    assert decide(call, "last", exclude=["large", "huge"])["reason"] == "window_exhausted"
    assert is_sound(call, database)


def test_actions_have_the_floor_if_one_of_them_has_its_id(call, database):
    create(call, arms=SHARED_ARMS, **SHARED)
    action = {"id": "guest", "features": [0.5], "max_cost": {"usd": 0.5}}
    floor = {"id": "small", "features": [0.0], "max_cost": {"usd": 0.04}}
    with_floor = decide(call, "x", actions=[action, floor], explain=True)
    assert (with_floor["arm"], with_floor["probability"]) == ("small", 1)
    assert [arm["why_not"] for arm in with_floor["arms"]] == ["reserved", None]
    assert decide(call, "y", actions=[action])["arm"] == "guest"
    report(call, "y", 0.5)
    report(call, "x", 0.01)
    assert decide(call, "z")["arm"] == "small"
    assert is_sound(call, database)
    (number,) = campaign_ids(database, "c")
    assert state_of(database, number).floor[0, 0] == 1


def test_the_floor_can_be_neither_retired_nor_paused_and_others_can(call, database):
    create(call)
    for change in ({"retire_arms": ["small"]}, {"arms": [{"id": "small", "status": "paused"}]}):
        refused = call("PATCH", "/campaigns/c", json=change)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:cbwk:problem:floor-arm")
    changed = {"arms": [{"id": "small", "max_cost": {"usd": 0.02}}, {"id": "huge", "status": "paused"}]}
    good(call("PATCH", "/campaigns/c", json=changed | {"retire_arms": ["large"], "add_arms": [{"id": "new"}]}))
    assert decide(call, "x")["hold"] == {"usd": 0.02}
    assert fields(call("PATCH", "/campaigns/c", json={"holdout": {"fraction": 0.5, "arm": None}})) == ["holdout.arm"]
    assert fields(call("PATCH", "/campaigns/c", json={"floor_arm": "new"})) == ["floor_arm"]
    assert is_sound(call, database)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"floor_arm": None}, "floor_arm"),
        ({"floor_arm": "none"}, "floor_arm"),
        ({"null_arm": "allowed"}, "floor_arm"),
        ({"null_arm": "never"}, "null_arm"),
        ({"policy": {"preset": "paper"}}, "null_arm"),
        ({"policy": {"preset": "authors"}}, "null_arm"),
        ({"policy": {"two_stage": "paper"}}, "policy.two_stage"),
        ({"holdout": {"fraction": 0.5, "arm": None}}, "holdout.arm"),
        ({"arms": [], **SHARED}, "floor_arm"),
    ],
)
def test_a_floor_that_cannot_be_is_refused(call, changes, field):
    refused = call("POST", "/campaigns", json=must_play(**changes))
    assert refused.status_code == 422
    assert fields(refused) == [field]


def test_a_budget_that_pays_the_floor_in_every_round_is_no_reason_for_a_warning(call):
    assert create(call, horizon=50)["warnings"] == []
    assert good(call("POST", "/campaigns", json=campaign("plain")), 201)["warnings"] == []


def test_a_portfolio_that_cannot_pay_the_floor_in_every_round_is_warned_of(call):
    for name, budget in (("ample", 3), ("short", 2.25)):
        shared = {"id": name, "resources": [{"id": "usd", "budget": budget}]}
        good(call("POST", "/portfolios", json=shared), 201)
    assert len(create(call, portfolio="ample")["warnings"]) == 1
    body = must_play(portfolio="short") | {"id": "d"}
    made = good(call("PUT", "/campaigns/d", json=body), 201)
    assert "the portfolio has 2.25 and keeps no reserve" in made["warnings"][1]
    assert good(call("PUT", "/campaigns/d", json=body))["warnings"] == made["warnings"]


def test_a_holdout_plays_its_arm_where_the_reserve_leaves_it_and_else_the_policy_decides(call, database):
    create(call, holdout={"fraction": 0.5, "arm": "large"})
    assert {decide(call, f"d{number}")["arm"] for number in range(12)} == {"small"}
    good(call("PATCH", "/campaigns/c", json={"resources": [{"id": "usd", "budget": 500}]}))
    later = [decide(call, f"e{number}") for number in range(12)]
    assert None not in [answer["arm"] for answer in later]
    assert "holdout" in [answer["reason"] for answer in later]
    assert is_sound(call, database)


def test_a_shadow_campaign_says_what_it_would_have_played_and_goes_live(call, database):
    create(call, mode="shadow")
    watched = decide(call, "x", baseline_arm=None)
    assert (watched["arm"], watched["would_have"]["arm"]) == (None, "small")
    assert decide(call, "y", baseline_arm="large")["arm"] == "large"
    report(call, "y", 0.2)
    good(call("PATCH", "/campaigns/c", json={"mode": "live"}))
    assert decide(call, "z")["arm"] == "small"
    assert is_sound(call, database)


def test_a_server_that_is_killed_goes_on_with_the_same_reserve(migrated_url):
    def ask(client, first, count):
        for number in range(first, first + count):
            yield client.post("/decide", json=decide_body(f"d{number}")).raise_for_status().json()
            costs = {"campaign_id": "c", "decision_id": f"d{number}", "reward": 0.5, "costs": {"usd": 0.01}}
            client.post("/feedback", json=costs).raise_for_status()

    arms, headers = [], {"Authorization": f"Bearer {ADMIN_KEY}"}
    for first in (0, 20):
        with running_server(database_url=migrated_url) as server:
            with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60) as client:
                if not first:
                    client.post("/campaigns", json=must_play()).raise_for_status()
                arms += [answer["arm"] for answer in ask(client, first, 20)]
            server.process.kill()
    assert None not in arms
    database = Database.open(migrated_url)
    try:
        (number,) = campaign_ids(database, "c")
        found = replay(database, number, advanced=lambda done, todo: None)
        assert (found.decisions, found.difference) == (40, None)
    finally:
        database.close()
