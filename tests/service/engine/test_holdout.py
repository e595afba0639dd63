"""Hold-out and shadow mode: a baseline decides; the ledger and the oracle continue."""

from __future__ import annotations

import asyncio
import json
import time

import numpy as np
import pytest
from sqlalchemy import select

from cbwk_core.evaluation import FixedArm, evaluate
from service.commands.console import campaign_ids
from service.domain.stage_one import rounds_of
from service.engine import prune, replay
from service.engine.cache import load_campaign
from service.evaluation.campaign_log import read_log
from service.store import tables
from tests.service.evaluation.logs import COSTS, REWARDS, campaign
from tests.service.http_client import served

UPLIFT = "/admin/campaigns/c/uplift"


@pytest.fixture
def client(database):
    with served(database) as client:
        client.database = database
        yield client


def make(client, **changes):
    answer = client("POST", "/campaigns", json=campaign(**changes))
    assert answer.status_code == 201, answer.text


def decide(client, index, **more):
    body = {"campaign_id": "c", "decision_id": f"d{index}", "context": [index % 10 / 10]} | more
    return client("POST", "/decide", json=body)


def play(client, count, **more):
    """Decides in batches and reports every outcome. Returns (answer, reward, cost) of each decision."""
    rng, plays = np.random.default_rng(2), []
    for start in range(0, count, 25):
        items = [{"decision_id": f"d{i}", "context": [i % 10 / 10]} | more for i in range(start, start + 25)]
        body = {"campaign_id": "c", "items": items}
        for answer in client("POST", "/decide/batch", json=body).json()["decisions"]:
            luck, arm = rng.random(2), {"a": 0, "b": 1}.get(answer["arm"], -1)
            if arm < 0:
                plays.append((answer, 0.0, 0.0))
                continue
            reward, cost = float(luck[0] < REWARDS[arm]), float(luck[1] < COSTS[arm])
            report = {
                "campaign_id": "c",
                "decision_id": answer["decision_id"],
                "reward": reward,
                "costs": {"usd": cost},
            }
            assert client("POST", "/feedback", json=report).json()["learned"]
            plays.append((answer, reward, cost))
    return plays


def is_sound(client):
    """Checks that the accounts and every decision follow from the log. Returns the number of decisions."""
    answer = client("GET", "/admin/campaigns/c/verify").json()
    assert answer["ok"], answer
    (number,) = campaign_ids(client.database, "c")
    found = replay.replay(client.database, number, advanced=lambda done, todo: None)
    assert found.difference is None, found.difference
    return found.decisions


def test_a_hold_out_takes_its_share_at_exact_probabilities_and_is_in_the_ledger(client):
    make(client, holdout={"fraction": 0.3, "arm": "a"})
    plays = play(client, 300)
    held_out = [answer for answer, _, _ in plays if answer["reason"] == "holdout"]
    assert 60 < len(held_out) < 120
    assert {answer["arm"] for answer in held_out} == {"a"}
    for answer in held_out:
        assert answer["hold"] == {"usd": 1}
        assert 0.3 <= answer["probability"] <= 1
    for answer, _, _ in plays:
        if answer["arm"] == "b":
            assert answer["probability"] <= 0.7
    spent = client("GET", "/admin/campaigns/c/budget").json()["resources"][0]["spent"]
    assert spent == sum(cost for _, _, cost in plays)
    assert is_sound(client) == 300
    log = read_log(client.database, "c", rounds_max=1000, advanced=lambda done, todo: None).log
    assert log.rounds == 300
    assert log.probabilities.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert log.probabilities[:, 0].min() >= 0.3 - 1e-6


def reward_per_cost(plays, seed=None):
    """The reward of the decisions per unit of their cost; with a seed, of as many drawn with replacement."""
    rows = np.array([row[1:] for row in plays])
    if seed is not None:
        rows = rows[np.random.default_rng(seed).integers(len(rows), size=len(rows))]
    reward, cost = rows.sum(axis=0)
    return reward / cost


def test_the_report_of_a_hold_out_is_the_difference_of_means_with_welchs_interval(client):
    make(client, holdout={"fraction": 0.3, "arm": "a"}, reward={"min": -1, "max": 2})
    plays = play(client, 200)
    assert decide(client, 999).status_code == 200  # it has no outcome, so the report ignores it
    report = client("GET", UPLIFT).json()["holdout"]
    assert (report["arm"], report["fraction"]) == ("a", 0.3)
    from scipy.stats import ttest_ind  # noqa: PLC0415

    groups = {name: [one for one in plays if one[0]["reason"] == name] for name in ("holdout", "policy")}
    for quantity, found in ((1, report["uplift"]["reward"]), (2, report["uplift"]["costs"]["usd"])):
        one, other = ([row[quantity] for row in groups[name]] for name in ("policy", "holdout"))
        expected = ttest_ind(one, other, equal_var=False)
        low, high = expected.confidence_interval(0.95)
        assert found["value"] == pytest.approx(np.mean(one) - np.mean(other))
        assert (found["lower"], found["upper"]) == (pytest.approx(low), pytest.approx(high))
    ratio = report["uplift"]["reward_per_cost"]["usd"]
    drawn = np.array([[reward_per_cost(groups[name], seed) for name in ("policy", "holdout")] for seed in range(2000)])
    found, low, high = ratio["value"], ratio["lower"], ratio["upper"]
    assert found == pytest.approx(reward_per_cost(groups["policy"]) - reward_per_cost(groups["holdout"]))
    # The resampled differences spread as the interval says; both are approximations.
    assert high - low == pytest.approx(2 * 1.98 * np.diff(drawn, axis=1).std(), rel=0.25)
    mean = report["groups"]["holdout"]["mean_reward"]
    assert mean == pytest.approx(np.mean([row[1] for row in groups["holdout"]]))
    assert report["uplift"]["relative"] == pytest.approx(report["uplift"]["reward"]["value"] / mean)
    assert sum(group["open"] for group in report["groups"].values()) == 1
    assert sum(group["decisions"] for group in report["groups"].values()) == 201


def test_a_baseline_that_cannot_be_played_plays_nothing(client):
    make(client, holdout={"fraction": 0.5, "arm": "a"})
    answers = [decide(client, index, exclude=["a"]).json() for index in range(40)]
    held_out = [answer for answer in answers if answer["reason"] == "holdout"]
    assert held_out
    for answer in held_out:
        assert (answer["arm"], answer["hold"], answer["probability"]) == (None, {}, 0.5)
    for answer in answers:
        if answer["reason"] == "policy":
            assert (answer["arm"], answer["probability"]) == ("b", 0.5)
    assert is_sound(client) == 40


def test_a_hold_out_never_holds_more_than_there_is(client):
    arms = [{"id": "a", "max_cost": {"usd": 1}}, {"id": "b", "max_cost": {"usd": 0.1}}]
    make(
        client, arms=arms, holdout={"fraction": 0.5, "arm": "a"}, resources=[{"id": "usd", "budget": 3, "max_cost": 1}]
    )
    items = [{"decision_id": f"d{i}", "context": [0.5]} for i in range(60)]
    decisions = client("POST", "/decide/batch", json={"campaign_id": "c", "items": items}).json()["decisions"]
    assert sum(one["hold"].get("usd", 0) for one in decisions) <= 3 + 1e-9
    assert any(one["reason"] == "budget_exhausted" for one in decisions)
    assert is_sound(client) == 60


def test_in_shadow_mode_the_callers_arm_is_answered_held_learnt_from_and_compared(client):
    make(client, mode="shadow")
    plays = play(client, 100, baseline_arm="a")
    for answer, _, _ in plays:
        assert (answer["arm"], answer["reason"], answer["probability"]) == ("a", "shadow", 1.0)
        assert answer["hold"] == {"usd": 1}
        assert answer["would_have"]["arm"] in ("a", "b", None)
    assert client("GET", "/campaigns/c").json()["policy_version"] == 100
    again = decide(client, 3, baseline_arm="a")
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == plays[3][0]
    assert decide(client, 3, baseline_arm="b").status_code == 409, "another arm is another request"
    null = decide(client, 500, baseline_arm=None).json()
    assert (null["arm"], null["reason"], null["hold"]) == (None, "shadow", {})
    report = client("GET", UPLIFT).json()["shadow"]
    assert report["decisions"] == 101
    arms = {arm["id"]: arm for arm in report["arms"]}
    assert (arms["a"]["did"], arms["b"]["did"], arms[None]["did"]) == (100, 0, 1)
    own = [answer["would_have"]["arm"] for answer, _, _ in plays] + [null["would_have"]["arm"]]
    assert {arm: arms[arm]["would_have"] for arm in arms} == {arm: own.count(arm) for arm in arms}
    assert report["agreement"] == sum(arm == "a" for arm in own[:100]) / 101 + (own[100] is None) / 101
    shown = client("GET", "/admin/campaigns/c/decisions/d3").json()
    assert shown["would_have"] == plays[3][0]["would_have"]
    assert is_sound(client) == 101
    log = read_log(client.database, "c", rounds_max=1000, advanced=lambda done, todo: None).log
    assert log.probabilities.tolist() == [[1.0, 0.0]] * 100 + [[0.0, 0.0]]
    assert log.eligible.all(), "either arm could have been played"
    found = evaluate(log, FixedArm(1), rng=np.random.default_rng(1), max_cost=1e6)
    assert "unsupported" in {caution.code for caution in found.cautions}
    for line in client("GET", "/admin/campaigns/c/export?format=dsjson").text.splitlines():
        assert json.loads(line)["p"] == [1.0, 0.0]


@pytest.mark.parametrize("changes", [{"holdout": {"fraction": 0.5, "arm": "a"}}, {"mode": "shadow"}])
def test_the_ticket_of_a_baseline_has_the_value_of_its_own_arm(client, changes):
    make(client, **changes)
    play(client, 100, **({"baseline_arm": "a"} if "mode" in changes else {}))
    stored, replaced = tables.decision, 0
    with client.database.read() as connection:
        rows = connection.execute(select(stored.c.reason, stored.c.numbers)).all()
    for reason, numbers in rows:
        reward, value = np.frombuffer(numbers, dtype="<f8")[:2]
        assert value == max(reward, 0.0)
        replaced += reason in ("holdout", "shadow")
    assert replaced > 30
    assert is_sound(client) == 100


def test_a_shadowed_arm_that_cannot_be_paid_is_null(client):
    arms = [{"id": "a", "max_cost": {"usd": 1}}, {"id": "b", "max_cost": {"usd": 0.1}}]
    make(client, mode="shadow", arms=arms, resources=[{"id": "usd", "budget": 1.5, "max_cost": 1}])
    answers = [decide(client, index, baseline_arm="a").json() for index in range(3)]
    assert [answer["arm"] for answer in answers] == ["a", None, None]
    assert [answer["reason"] for answer in answers] == ["shadow", "budget_exhausted", "budget_exhausted"]
    assert is_sound(client) == 3


def test_a_request_says_its_baseline_in_shadow_mode_and_only_there(client):
    make(client)
    assert decide(client, 1, baseline_arm="a").json()["type"].endswith("invalid-baseline")
    make(client, id="s", mode="shadow")
    for body in ({}, {"baseline_arm": "z"}, {"baseline_arm": "a", "exclude": ["a"]}):
        answer = client("POST", "/decide", json={"campaign_id": "s", "context": [0.5]} | body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == "baseline_arm"
    answer = client("GET", UPLIFT).json()
    assert (answer["holdout"], answer["shadow"]) == (None, None)


@pytest.mark.parametrize("changes", [{"holdout": {"fraction": 0.4, "arm": "a"}}, {"mode": "shadow"}])
def test_requests_with_arms_of_their_own_are_replaced_by_the_baseline_too(client, changes):
    shared = {"model": "shared", "arm_features": {"dimension": 1}}
    make(client, arms=[{"id": "a", "features": [0.2]}, {"id": "b", "features": [0.8]}], **shared, **changes)
    actions = [{"id": "z", "features": [0.5], "max_cost": {"usd": 0.25}}, {"id": "a", "features": [0.3]}]
    more = {"baseline_arm": "z"} if "mode" in changes else {}
    answers = [decide(client, index, actions=actions, **more).json() for index in range(20)]
    replaced = [answer for answer in answers if answer["reason"] in ("holdout", "shadow")]
    assert replaced
    wanted = ("z", {"usd": 0.25}) if more else ("a", {"usd": 1})
    assert {(answer["arm"], json.dumps(answer["hold"])) for answer in replaced} == {(wanted[0], json.dumps(wanted[1]))}
    own_arms = [decide(client, 100 + index, **({"baseline_arm": "b"} if more else {})).json() for index in range(10)]
    assert all(answer["arm"] is not None for answer in own_arms)
    assert is_sound(client) == 30


@pytest.mark.parametrize("changes", [{"holdout": {"fraction": 0.4, "arm": "a"}}, {"mode": "shadow"}])
def test_a_pruned_log_still_leads_to_its_decisions(client, changes):
    make(client, feedback={"late_window_seconds": 0}, **changes)
    play(client, 50, **({"baseline_arm": "a"} if "mode" in changes else {}))
    (number,) = campaign_ids(client.database, "c")
    found = prune.prunable(client.database, number, 2**62)
    prune.prune(client.database, found, actor="test", advanced=lambda step, done, todo: None)
    assert found.decisions == 49
    for index in range(900, 910):
        assert decide(client, index, **({"baseline_arm": "b"} if "mode" in changes else {})).status_code == 200
    assert is_sound(client) == 10


def test_a_hold_out_begins_when_stage_one_is_over(client):
    make(
        client,
        horizon=400,
        policy={"preset": "authors", "two_stage": "measured"},
        holdout={"fraction": 0.5, "arm": "a"},
    )
    plays = play(client, 75)
    until = time.monotonic() + 60
    while client("GET", "/admin/campaigns/c/model").headers["model-version"] == "1":
        assert time.monotonic() < until, "stage one did not end"
        client.runner.run(asyncio.sleep(0.2))
    rounds = rounds_of(load(client))
    assert 0 < rounds < 75
    assert all(answer["reason"] == "policy" for answer, _, _ in plays[:rounds])
    assert any(answer["reason"] == "holdout" for answer, _, _ in plays[rounds:])
    # None, unless stage one ended before all of the 75 were made.
    before = client("GET", UPLIFT).json()["holdout"]["groups"]
    later = [decide(client, index).json()["reason"] for index in range(100, 120)]
    after = client("GET", UPLIFT).json()["holdout"]["groups"]
    for group in ("holdout", "policy"):
        assert before[group]["decisions"] <= 75 - rounds
        assert after[group]["decisions"] - before[group]["decisions"] == later.count(group) > 0
    assert is_sound(client) == 95


def load(client):
    """Returns the campaign as the engine loads it."""
    (number,) = campaign_ids(client.database, "c")
    with client.database.read() as connection:
        return load_campaign(connection, number, 1)
