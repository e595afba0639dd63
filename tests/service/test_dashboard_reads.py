"""What the dashboard shows and nothing else asks for: each figure computed again from the log's own items."""

# ruff: noqa: F811 - fixtures are found by their names

import json
from datetime import datetime

import numpy as np
import pytest
from sqlalchemy import select

from cbwk_core.oracles.newton_state import CHANGES
from service.engine import prune
from service.reads import earned, feedback_health, statistics
from service.reads.shared import stored_campaign
from service.store import tables
from tests.service.http_calls import good
from tests.service.http_client import key_for
from tests.service.test_reads import CONFIG, pages, story  # noqa: F401

DECISIONS = "/admin/campaigns/summer/decisions"


def test_a_budget_says_how_the_campaign_stands(story):
    (listed,) = good(story("GET", "/admin/budgets"))["items"]
    assert listed == good(story("GET", "/admin/campaigns/summer/budget"))
    assert (listed["status"], listed["round"], listed["exhausted"]) == ("active", 11, False)
    assert listed["flight"] == pytest.approx(11 / CONFIG["horizon"])
    good(story("POST", "/campaigns/summer/pause"))
    assert good(story("GET", "/admin/budgets"))["items"][0]["status"] == "paused"


def test_a_campaign_is_exhausted_as_soon_as_no_arm_can_be_paid(call):
    body = CONFIG | {"resources": [{"id": "usd", "budget": 0.06, "max_cost": 0.05}], "arms": CONFIG["arms"]}
    good(call("POST", "/campaigns", json=body), 201)

    def decided_and_exhausted(**excluded):
        request = {"campaign_id": "summer", "context": {"hour": 1}, **excluded}
        reason = good(call("POST", "/decide", json=request))["reason"]
        return reason, good(call("GET", "/admin/campaigns/summer/budget"))["exhausted"]

    assert decided_and_exhausted(exclude=["b"])[1] is True  # 0.01 is left, and `b` costs up to 0.02
    assert decided_and_exhausted() == ("budget_exhausted", True)
    good(call("PATCH", "/campaigns/summer", json={"resources": [{"id": "usd", "budget": 0.07}]}))
    assert good(call("GET", "/admin/campaigns/summer/budget"))["exhausted"] is False
    good(call("PATCH", "/campaigns/summer", json={"retire_arms": ["b"]}))
    assert good(call("GET", "/admin/campaigns/summer/budget"))["exhausted"] is True


def test_a_budget_says_whether_a_baseline_decides(call):
    body = CONFIG | {"holdout": {"fraction": 0.1, "arm": "a"}}
    good(call("POST", "/campaigns", json=body), 201)
    good(call("POST", "/campaigns", json=CONFIG | {"id": "shadowing", "mode": "shadow"}), 201)
    listed = good(call("GET", "/admin/budgets"))["items"]
    assert [(one["mode"], one["holdout"]) for one in listed] == [("live", 0.1), ("shadow", None)]


@pytest.mark.parametrize("points", [2, 5, 1000])
def test_the_rewards_of_the_timelines_arms_are_those_that_were_learnt(story, points):
    line = good(story("GET", f"/admin/campaigns/summer/timeline?points={points}"))["items"]
    decided = pages(story, DECISIONS, limit=100)
    for name in ("a", "b"):
        rewards = sum(one["reward"] for one in decided if one["arm"] == name and one["status"] == "settled")
        assert sum(point["arm_rewards"].get(name, 0.0) for point in line) == pytest.approx(rewards)


@pytest.mark.parametrize("points", [2, 5, 1000])
def test_the_arms_of_the_timeline_are_those_that_were_played(story, points):
    line = good(story("GET", f"/admin/campaigns/summer/timeline?points={points}"))["items"]
    decided = pages(story, DECISIONS, limit=100)
    for name in ("a", "b"):
        assert sum(point["arms"].get(name, 0) for point in line) == sum(one["arm"] == name for one in decided)
    assert all(sum(point["arms"].values()) == point["plays"] for point in line)


def test_the_timeline_names_only_the_arms_that_were_played_most(story, monkeypatch):
    monkeypatch.setattr(statistics, "TIMELINE_ARMS_MAX", 1)
    decided = [one["arm"] for one in pages(story, DECISIONS, limit=100)]
    most = max(("a", "b"), key=decided.count)
    line = good(story("GET", "/admin/campaigns/summer/timeline"))["items"]
    assert {arm for point in line for arm in point["arms"]} == {most}
    assert sum(point["plays"] for point in line) == 10


def test_open_holds_are_counted_with_the_oldest_of_them(story):
    open_ones = ("held", "rewarded", "charged")  # the last has paid, and its reward is still awaited
    awaited = [one for one in pages(story, DECISIONS, limit=100) if one["status"] in open_ones]
    holds = good(story("GET", "/admin/campaigns/summer/feedback"))["open_holds"]
    assert holds["count"] == len(awaited) == 4
    assert holds["oldest_at"] == min(one["decided_at"] for one in awaited)
    # Answers have it in whole seconds.
    assert holds["next_expiry_at"][:19] == min(one["expires_at"] for one in awaited)[:19]


def test_delays_are_those_of_reported_costs_and_fates_are_counted(story):
    shown = good(story("GET", "/admin/campaigns/summer/feedback"))
    assert shown["recent"] == {"outcomes": 8, "reported": 7, "void": 1, "expired": 0, "late": 0}
    details = [good(story("GET", f"{DECISIONS}/d{index}")) for index in range(6)]
    took = [
        (datetime.fromisoformat(one["outcomes"][0]["at"]) - datetime.fromisoformat(one["decided_at"])).total_seconds()
        for one in details
    ]
    assert shown["delay_seconds"]["count"] == 6
    assert shown["delay_seconds"]["median"] == pytest.approx(float(np.median(took)), abs=2e-3)


def test_a_loss_is_the_mean_squared_error_of_what_was_foretold(story, database):
    """By the explanations, which are of the chosen arm among others, in units of the arms' largest holds."""
    losses = good(story("GET", "/admin/campaigns/summer/feedback"))["losses"]
    assert sum(one["outcomes"] for one in losses) == 5
    details = {f"d{index}": good(story("GET", f"{DECISIONS}/d{index}")) for index in range(5)}
    expected = {"reward": 0.0, "usd": 0.0}
    for one in details.values():
        (foretold,) = [arm for arm in one["explanation"]["arms"] if arm["id"] == one["arm"]]
        expected["reward"] += ((one["reward"] + 1) / 4 - foretold["reward"]) ** 2
        expected["usd"] += ((one["costs"]["usd"] - foretold["cost"]["usd"]) / 0.05) ** 2
    assert sum(one["reward_loss"] * one["outcomes"] for one in losses) == pytest.approx(expected["reward"], rel=1e-4)
    assert sum(one["cost_loss"]["usd"] * one["outcomes"] for one in losses) == pytest.approx(expected["usd"], rel=1e-4)
    with database.read() as connection:
        rows = connection.execute(select(tables.outcome.c.taught)).scalars()
        taught = [json.loads(text)[0] for text in rows if text]
    # Costs whose reward came later have taught before it.
    assert sorted(reward for reward in taught if reward is not None) == [0.25, 0.25, 0.25, 0.5, 0.5]


def test_what_is_read_of_a_long_log_is_bounded(story, monkeypatch):
    monkeypatch.setattr(feedback_health, "RECENT_OUTCOMES_MAX", 3)
    monkeypatch.setattr(feedback_health, "LOSS_POINTS_MAX", 2)
    monkeypatch.setattr(feedback_health, "LOSS_OUTCOMES_MAX", 2)
    shown = good(story("GET", "/admin/campaigns/summer/feedback"))
    assert shown["recent"]["outcomes"] == 3
    assert len(shown["losses"]) <= 2
    assert all(one["outcomes"] <= 2 for one in shown["losses"])


def test_a_campaign_without_a_decision_has_no_delay_and_no_loss(call):
    good(call("POST", "/campaigns", json=CONFIG), 201)
    shown = good(call("GET", "/admin/campaigns/summer/feedback"))
    assert shown["open_holds"] == {"count": 0, "oldest_at": None, "next_expiry_at": None}
    assert shown["delay_seconds"] == {"count": 0, "median": None, "p90": None, "p99": None}
    assert shown["losses"] == []


def test_changes_and_dismissed_alarms_are_those_of_the_newest_snapshot(story, database):
    assert good(story("GET", "/admin/campaigns/summer/feedback"))["changes"] is None
    with database.read() as connection:
        stored = stored_campaign(connection, "summer")
    policy = stored.campaign.policy
    state = policy.init()
    noticed = state.oracle.noticed.copy()
    noticed[:, CHANGES] = 2
    seen = state._replace(oracle=state.oracle._replace(noticed=noticed, dismissed=np.array([3.0])))
    with database.writer.begin(None) as connection:
        for sequence, each in ((1, state), (2, seen)):
            values = {"campaign": stored.campaign.number, "sequence": sequence, "at": 0}
            values |= {"config_version": stored.campaign.version, "model_version": 1, "data": policy.encode(each)}
            connection.execute(tables.snapshot.insert().values(values))
    shown = good(story("GET", "/admin/campaigns/summer/feedback"))["changes"]
    assert shown == {"as_of": "1970-01-01T00:00:00Z", "noticed": 2, "dismissed": 3}


def test_prices_are_per_unit_also_where_every_arm_costs_less_than_its_resource_may(call):
    """What one unit is worth cannot depend on a limit that no arm comes near."""
    shown = []
    for name, most in (("near", 0.02), ("far", 5)):
        body = CONFIG | {"id": name, "arms": [{"id": arm, "max_cost": {"usd": 0.02}} for arm in ("a", "b")]}
        body["resources"] = [{"id": "usd", "budget": 0.2, "max_cost": most}]
        good(call("POST", "/campaigns", json=body), 201)
        for index in range(30):
            one = {"campaign_id": name, "decision_id": f"d{index}"}
            arm = good(call("POST", "/decide", json={**one, "context": {"hour": index % 24}}))["arm"]
            if arm is not None:
                good(call("POST", "/feedback", json={**one, "reward": 3, "costs": {"usd": 0.02}}))
        shown.append(good(call("GET", f"/campaigns/{name}"))["prices"]["usd"])
    assert shown[0] > 0
    assert shown[1] == pytest.approx(shown[0])


def test_a_key_is_told_what_it_may_do(call, database):
    reader = key_for(database, "reader", ("summer",))
    own = good(call("GET", "/admin/key", key=reader))
    assert (own["role"], own["campaigns"]) == ("reader", ["summer"])
    assert good(call("GET", "/admin/key"))["role"] == "admin"


def test_a_damaged_configuration_hides_no_other_campaign(story, database):
    for name in ("winter", "spring"):
        good(story("POST", "/campaigns", json=CONFIG | {"id": name}), 201)
    before = {one["campaign_id"]: one for one in good(story("GET", "/admin/budgets"))["items"]}
    for body in ("{", "{}", "null"):
        with database.write() as connection:
            connection.execute(tables.config.update().where(tables.config.c.campaign == 2).values(body=body))
        found = {one["campaign_id"]: one for one in good(story("GET", "/admin/budgets"))["items"]}
        assert {name: one for name, one in found.items() if name != "winter"} == {
            name: one for name, one in before.items() if name != "winter"
        }
        assert (found["winter"]["damaged"], found["winter"]["resources"]) == (True, [])
        assert found["winter"]["status"] == "active"
        metrics = story("GET", "/metrics").text
        assert "cbwk_database_up 1.0" in metrics
        assert 'cbwk_open_holds{campaign="summer"}' in metrics
        checks = good(story("GET", "/admin/campaigns/winter/verify"))
        assert [check["name"] for check in checks["checks"] if not check["ok"]] == ["configuration"]


def test_a_budget_has_the_rewards_of_the_log_and_what_one_of_them_costs(story, database):
    def views():
        budget = good(story("GET", "/admin/campaigns/summer/budget"))
        assert good(story("GET", "/admin/budgets"))["items"] == [budget]
        reward = good(story("GET", "/admin/campaigns/summer/timeline"))["items"][-1]["reward"]
        assert budget["reward"] == pytest.approx(reward)
        costs = {one["id"]: pytest.approx(one["spent"] / reward) for one in budget["resources"]}
        assert budget["cost_per_reward"] == costs
        return budget["reward"]

    decided = pages(story, DECISIONS, limit=100)
    rewards = [one["reward"] for one in decided if one["status"] == "settled"]
    assert views() == pytest.approx(sum(rewards)) != 0.0
    more = good(story("POST", "/decide", json={"campaign_id": "summer", "context": {"hour": 1}}))
    report = {name: more[name] for name in ("campaign_id", "decision_id")} | {"reward": 0.5, "costs": {}}
    good(story("POST", "/feedback", json=report))
    assert views() == pytest.approx(sum(rewards) + 0.5)
    wanted = prune.prunable(database, 1, 2**60)
    assert prune.prune(database, wanted, actor="test", advanced=lambda step, done, of: None)[0] > 0
    assert views() == pytest.approx(sum(rewards) + 0.5)
    earned._known.clear()  # as in a process that starts
    assert views() == pytest.approx(sum(rewards) + 0.5)


def test_a_list_of_budgets_counts_a_part_of_a_long_log_at_a_time(story, monkeypatch):
    monkeypatch.setattr(earned, "LIST_NUMBERS_MAX", 8)
    monkeypatch.setattr(earned, "NUMBERS_PER_STATEMENT", 8)
    found = [good(story("GET", "/admin/budgets"))["items"][0] for _ in range(6)]
    assert [found[0]["reward"], found[0]["cost_per_reward"]] == [None, None]
    assert found[-1] == good(story("GET", "/admin/campaigns/summer/budget"))
    assert found[-1]["reward"] is not None


def test_without_rewards_nothing_costs_anything_per_reward(call):
    good(call("POST", "/campaigns", json=CONFIG), 201)
    budget = good(call("GET", "/admin/campaigns/summer/budget"))
    assert (budget["reward"], budget["cost_per_reward"]) == (0.0, None)
