"""What a PATCH changes in a campaign that is live, and what it refuses because nothing could be played after it."""

from __future__ import annotations

import numpy as np
import pytest

from service.commands.console import campaign_ids
from service.engine.log_fold import advance, beginning, events
from service.engine.replay import replay
from tests.service.engine.histories import state_of
from tests.service.http_calls import campaign, decide_body, good
from tests.service.http_client import served

OWN = [{"id": "a", "max_cost": {"usd": 0.5}}, {"id": "b"}]


def create(call, **changes):
    return good(call("POST", "/campaigns", json=campaign(**changes)), 201)


def patch(call, **changes):
    return good(call("PATCH", "/campaigns/c", json=changes))


def refused(call, status=422, **changes):
    """Returns the fields that a refused PATCH names; the campaign stays as it is."""
    before = good(call("GET", "/campaigns/c"))
    answer = call("PATCH", "/campaigns/c", json=changes)
    assert answer.status_code == status, answer.text
    assert good(call("GET", "/campaigns/c")) == before
    return [error["field"] for error in answer.json().get("errors", ())]


def decide(call, name, **more):
    return good(call("POST", "/decide", json=decide_body(name) | more))


def batch(call, prefix, count, **more):
    items = [{"decision_id": f"{prefix}{i}", "context": [i % 7 / 7, i % 3 / 3]} | more for i in range(count)]
    return good(call("POST", "/decide/batch", json={"campaign_id": "c", "items": items}))["decisions"]


def report(call, name, reward=1, cost=0.1):
    body = {"campaign_id": "c", "decision_id": name, "reward": reward, "costs": {"usd": cost}}
    return good(call("POST", "/feedback", json=body))


def play(call, prefix, count, **more):
    """Decides one at a time and reports each outcome, whose cost depends on the arm."""
    for index, answer in enumerate(batch(call, prefix, count, **more)):
        if answer["arm"] is not None:
            cost = 0.05 * (index % 4 + 1) * (1 if answer["arm"] == "a" else 2)
            report(call, answer["decision_id"], index % 2, cost)


def is_sound(call, database):
    """Whether the accounts and every decision follow from the log."""
    assert good(call("GET", "/admin/campaigns/c/verify"))["ok"]
    (number,) = campaign_ids(database, "c")
    found = replay(database, number, advanced=lambda done, todo: None)
    assert found.difference is None, found.difference
    return True


def usd(call):
    return good(call("GET", "/admin/campaigns/c/budget"))["resources"][0]


@pytest.mark.parametrize("max_cost", [0.25, 3])
def test_a_new_max_cost_is_the_hold_of_the_next_decision_and_open_holds_stay(call, database, max_cost):
    create(call)
    first = decide(call, "first")
    assert first["hold"] == {"usd": 1}
    config = patch(call, resources=[{"id": "usd", "max_cost": max_cost}])["config"]
    assert config["resources"][0] == {"id": "usd", "budget": 1000, "max_cost": max_cost}
    assert decide(call, "second")["hold"] == {"usd": max_cost}
    assert usd(call)["held"] == 1 + max_cost
    assert report(call, "first", cost=0.9)["warnings"] == []
    assert report(call, "second", cost=1.5)["warnings"] == (["cost_above_hold"] if max_cost < 1.5 else [])
    assert (usd(call)["held"], usd(call)["spent"]) == (0, 2.4)
    assert decide(call, "first") == first
    assert is_sound(call, database)


def test_an_arms_max_cost_is_replaced_and_without_one_it_has_that_of_the_resource(call):
    create(call, arms=OWN)
    for number, (own, hold) in enumerate([({"usd": 0.2}, 0.2), ({}, 1), ({"usd": 1}, 1), (None, 1)]):
        patch(call, arms=[{"id": "a", "max_cost": own}])
        assert decide(call, f"d{number}", exclude=["b"])["hold"] == {"usd": hold}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"resources": [{"id": "usd", "max_cost": 0.4}]}, "resources.0.max_cost"),
        ({"arms": [{"id": "b", "max_cost": {"usd": 0.1}}, {"id": "a", "max_cost": {"usd": 1.1}}]}, "arms.1.max_cost"),
        ({"arms": [{"id": "a", "max_cost": {"eur": 1}}]}, "arms.0.max_cost"),
        ({"arms": [{"id": "a", "status": "retired"}]}, "arms.0.status"),
        ({"arms": [{"id": "a"}]}, "arms.0"),
        ({"resources": [{"id": "usd"}]}, "resources.0"),
        ({"resources": [{"id": "usd", "max_cost": 0}]}, "resources.0.max_cost"),
        ({"arms": [{"id": "a", "status": "paused"}, {"id": "a", "status": "active"}]}, "arms"),
        ({"arms": [{"id": "a", "status": "active"}], "retire_arms": ["a"]}, "arms"),
        ({"holdout": {"fraction": 0.1, "arm": "nobody"}}, "holdout.arm"),
        ({"mode": "shadow"}, "mode"),
        ({"mode": None}, "mode"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_with_its_field(call, changes, field):
    create(call, arms=OWN)
    assert refused(call, **changes) == [field]


def test_an_arm_that_the_campaign_does_not_have_cannot_be_paused(call):
    create(call)
    assert refused(call, 404, arms=[{"id": "nobody", "status": "paused"}]) == []


def test_a_max_cost_may_go_below_that_of_a_paused_arm_which_must_be_lowered_to_return(call):
    create(call, arms=OWN)
    patch(call, arms=[{"id": "a", "status": "paused"}])
    patch(call, resources=[{"id": "usd", "max_cost": 0.3}])
    assert refused(call, arms=[{"id": "a", "status": "active"}]) == ["arms.0.max_cost"]
    patch(call, arms=[{"id": "a", "status": "active", "max_cost": {"usd": 0.3}}])
    assert decide(call, "d", exclude=["b"])["hold"] == {"usd": 0.3}


@pytest.mark.parametrize("leave", [{"arms": [{"id": "a", "status": "paused"}]}, {"retire_arms": ["a"]}])
def test_an_arm_that_is_paused_or_retired_is_not_played_until_it_returns(call, database, leave):
    create(call)
    assert {answer["arm"] for answer in batch(call, "before", 40)} >= {"a", "b"}
    patch(call, **leave)
    assert {answer["arm"] for answer in batch(call, "without", 40)} == {"b"}
    assert decide(call, "only", exclude=["b"])["reason"] == "all_excluded"
    listed = {arm["id"]: arm for arm in good(call("GET", "/admin/campaigns/c/arms"))["items"]}
    assert (listed["a"]["paused"], listed["a"]["retired"]) == ("arms" in leave, "retire_arms" in leave)
    assert not listed["b"]["paused"]
    patch(call, arms=[{"id": "a", "status": "active"}])
    assert decide(call, "again", exclude=["b"])["arm"] == "a"
    assert good(call("GET", "/campaigns/c"))["config"]["arms"] == [{"id": "a"}, {"id": "b"}]
    assert is_sound(call, database)


def test_if_every_arm_is_paused_nothing_is_played(call):
    create(call)
    patch(call, arms=[{"id": "a", "status": "paused"}], retire_arms=["b"])
    assert decide(call, "d")["reason"] == "all_excluded"
    assert not good(call("GET", "/admin/campaigns/c/budget"))["exhausted"]


def test_an_explanation_is_that_of_the_time_of_the_decision(call):
    create(call, arms=[{"id": name} for name in "abc"])
    asked = decide_body("d") | {"explain": True, "exclude": ["c"]}
    patch(call, arms=[{"id": "a", "status": "paused"}], retire_arms=["b"])
    first = good(call("POST", "/decide", json=asked))
    assert [arm["why_not"] for arm in first["arms"]] == ["paused", "retired", "excluded"]
    for arms in ([{"id": "a", "status": "active"}, {"id": "c", "status": "paused"}], [{"id": "b", "status": "paused"}]):
        patch(call, arms=arms)
        assert good(call("POST", "/decide", json=asked)) == first
        shown = good(call("GET", "/admin/campaigns/c/decisions/d"))["explanation"]
        assert [arm["why_not"] for arm in shown["arms"]] == ["paused", "retired", "excluded"]


def test_what_was_learnt_keeps_its_scale_in_a_process_that_starts_later(database):
    """It folds the log in the newest configuration, while the others changed from one version to the next."""
    with served(database) as call:
        create(call, arms=OWN, resources=[{"id": "usd", "budget": 60, "max_cost": 1}])
        play(call, "first", 40)
        patch(call, resources=[{"id": "usd", "max_cost": 2}], arms=[{"id": "a", "max_cost": {"usd": 0.2}}])
        play(call, "second", 40)
        patch(call, add_arms=[{"id": "n", "max_cost": {"usd": 1.5}}])
        play(call, "third", 20)
        patch(call, arms=[{"id": "n", "max_cost": {"usd": 0.1}}, {"id": "b", "status": "paused"}])
        play(call, "fourth", 20)
        patch(call, arms=[{"id": "b", "status": "active"}])
        assert is_sound(call, database)
        stepwise = beginning(database, 1)
        for event in events(database, 1, stepwise.sequence, 10_000):
            advance(database, stepwise, event)
        at_once = state_of(database)
    np.testing.assert_allclose(at_once.residuals, stepwise.state.residuals, rtol=1e-9)
    assert stepwise.campaign.policy.ranges is not None  # so that the scale of an arm matters
    assert at_once.learnt == stepwise.state.learnt > 60


def test_a_hold_out_begins_and_ends_and_its_report_counts_from_its_present_terms(call, database):
    create(call)
    play(call, "before", 20)
    patch(call, holdout={"fraction": 0.5, "arm": "a"})
    play(call, "half", 30)
    assert {one["reason"] for one in batch(call, "seen", 20)} == {"holdout", "policy"}
    patch(call, horizon=2000)
    groups = good(call("GET", "/admin/campaigns/c/uplift"))["holdout"]["groups"]
    assert sum(group["decisions"] for group in groups.values()) == 50
    patch(call, holdout={"fraction": 0.25, "arm": None})
    batch(call, "other", 40)
    groups = good(call("GET", "/admin/campaigns/c/uplift"))["holdout"]["groups"]
    assert sum(group["decisions"] for group in groups.values()) == 40
    assert groups["holdout"]["plays"] == 0 < groups["holdout"]["decisions"]
    patch(call, holdout=None)
    assert {one["reason"] for one in batch(call, "after", 20)} == {"policy"}
    assert good(call("GET", "/admin/campaigns/c/uplift"))["holdout"] is None
    assert is_sound(call, database)


def test_a_shadow_campaign_goes_live_with_what_it_has_learnt(call, database):
    create(call, mode="shadow")
    play(call, "shadow", 20, baseline_arm="a")
    assert refused(call, holdout={"fraction": 0.5, "arm": "a"}) == ["holdout"]
    before = decide(call, "last", baseline_arm="a", explain=True)
    assert patch(call, mode="live", holdout={"fraction": 0.01, "arm": "b"})["config"]["mode"] == "live"
    after = decide(call, "live", explain=True)
    assert (after["reason"], after["policy_version"], after["round"]) == ("policy", 20, 21)
    assert [arm["reward"] for arm in after["arms"]] == [arm["reward"] for arm in before["arms"]]
    assert "would_have" not in after
    assert good(call("POST", "/decide", json=decide_body("last") | {"baseline_arm": "a", "explain": True})) == before
    assert call("POST", "/decide", json=decide_body("late") | {"baseline_arm": "a"}).status_code == 422
    assert sum(group["decisions"] for group in uplift_groups(call)) == 1
    play(call, "after", 20)
    assert is_sound(call, database)


def uplift_groups(call):
    return good(call("GET", "/admin/campaigns/c/uplift"))["holdout"]["groups"].values()


DEAR = [{"id": "a", "max_cost": {"usd": 0.6}}, {"id": "b"}]


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"resources": [{"id": "usd", "budget": 0.5, "max_cost": 1}]}, ["resources.0.max_cost"]),
        ({"resources": [{"id": "usd", "budget": 0.5, "max_cost": 1}], "arms": DEAR}, ["resources.0.max_cost"]),
        (
            {
                "resources": [{"id": name, "budget": 0.5, "max_cost": 1} for name in ("usd", "eur")],
                "arms": [{"id": "a", "max_cost": {"usd": 0.1}}, {"id": "b", "max_cost": {"eur": 0.1}}],
            },
            ["resources.0.max_cost", "resources.1.max_cost"],
        ),
    ],
)
def test_a_campaign_whose_budget_could_pay_no_arm_is_not_created(call, changes, fields):
    answer = call("POST", "/campaigns", json=campaign(**changes))
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == fields


def test_one_arm_that_the_budget_can_pay_is_enough(call):
    create(call, budget=0.5, arms=OWN)
    assert decide(call, "d")["arm"] == "a"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"resources": [{"id": "usd", "budget": 0.4}]}, "resources"),
        ({"resources": [{"id": "usd", "max_cost": 70}], "arms": [{"id": "a", "max_cost": {}}]}, "resources"),
        ({"arms": [{"id": "a", "max_cost": {}}], "resources": [{"id": "usd", "budget": 0.9}]}, "resources"),
    ],
)
def test_a_change_after_which_the_budget_could_pay_no_arm_is_refused(call, changes, field):
    create(call, arms=OWN, budget=60)
    assert refused(call, **changes) == [field]


def test_arms_can_be_paused_and_retired_even_if_the_budget_can_pay_none_of_the_others(call):
    create(call, arms=OWN, budget=0.5)
    patch(call, arms=[{"id": "a", "status": "paused"}])
    patch(call, retire_arms=["a"])
    patch(call, arms=[{"id": "b", "status": "paused"}])
    patch(call, arms=[{"id": "a", "display_name": "A"}], resources=[{"id": "usd", "unit": "USD"}])
    patch(call, add_arms=[{"id": "n", "max_cost": {"usd": 0.1}}])


def test_a_horizon_that_is_already_reached_is_refused(call):
    create(call, horizon=10)
    batch(call, "d", 5)
    for horizon in (1, 5):
        assert refused(call, horizon=horizon) == ["horizon"]
    assert patch(call, horizon=6)["status"] == "active"


def test_a_key_is_only_made_for_campaigns_that_exist(call):
    create(call)
    body = {"name": "n", "role": "decider", "campaigns": ["c", "nowhere"]}
    answer = call("POST", "/admin/keys", json=body)
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:cbwk:problem:campaign-not-found")
    assert good(call("GET", "/admin/keys"))["items"] == []
    good(call("POST", "/admin/keys", json=body | {"campaigns": ["c"]}), 201)


def test_an_arm_can_be_paused_and_retired_though_a_window_pays_for_no_other(call):
    resources = [{"id": "usd", "budget": 10, "max_cost": 1, "windows": [{"period": "day", "limit": 0.75}]}]
    create(call, arms=[{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.5}}], resources=resources)
    patch(call, arms=[{"id": "b", "status": "paused"}])
    assert decide(call, "d1")["reason"] == "window_exhausted"
    patch(call, retire_arms=["b"])
    assert decide(call, "d2")["reason"] == "window_exhausted"


def shared_arms(*costs):
    arms = [{"id": f"arm{at}", "features": [0.1], "max_cost": {"usd": cost}} for at, cost in enumerate(costs)]
    return {"model": "shared", "arm_features": {"dimension": 1}, "arms": arms}


ACTIONS = [{"id": "x", "features": [0.2]}, {"id": "y", "features": [0.3]}]


def test_a_paused_arm_excludes_no_action_at_its_place(call, database):
    create(call, **shared_arms(1, 1))
    patch(call, arms=[{"id": "arm0", "status": "paused"}])
    assert decide(call, "d1", actions=ACTIONS, exclude=["y"])["arm"] == "x"
    assert is_sound(call, database)


def test_an_action_without_a_max_cost_holds_that_of_the_dearest_arm(call):
    create(call, **shared_arms(0.25, 0.5))
    assert decide(call, "d1", actions=ACTIONS)["hold"] == {"usd": 0.5}
    dear = [ACTIONS[0] | {"max_cost": {"usd": 0.75}}]
    answer = call("POST", "/decide", json=decide_body("d2") | {"actions": dear})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:cbwk:problem:invalid-actions")


def test_a_paused_arm_that_costs_more_than_its_resource_does_not_raise_the_max_cost_of_actions(call):
    create(call, **shared_arms(0.25, 0.9))
    patch(call, arms=[{"id": "arm1", "status": "paused"}], resources=[{"id": "usd", "max_cost": 0.5}])
    dear = [ACTIONS[0] | {"max_cost": {"usd": 0.75}}]
    assert call("POST", "/decide", json=decide_body("d1") | {"actions": dear}).status_code == 422
    assert decide(call, "d2", actions=ACTIONS)["hold"] == {"usd": 0.5}
