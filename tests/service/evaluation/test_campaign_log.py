"""The log of a campaign as the arrays of the library."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cbwk_core.evaluation import Uniform, evaluate
from service.commands.console import campaign_ids
from service.engine.prune import prunable, prune
from service.evaluation.campaign_log import EmptyLog, read_log
from service.store import tables
from tests.service.evaluation.logs import make, play
from tests.service.http_client import served


def read(database, name="c", rounds_max=10_000):
    return read_log(database, name, rounds_max=rounds_max, advanced=lambda done, todo: None)


def exported(client, name="c"):
    """Returns the decisions of the export."""
    lines = client("GET", f"/admin/campaigns/{name}/export").text.splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def client(database):
    with served(database) as client:
        yield client


def test_the_log_is_what_the_export_says_in_order_without_what_is_not_known_yet(client, database):
    make(client, reward={"min": -1, "max": 3}, resources=[{"id": "usd", "budget": 30, "max_cost": 1}])
    play(client, 150)
    found = read(database)
    decisions = exported(client)
    kept = [decision for decision in decisions if decision["arm"] is None or decision["learned"]]
    unsettled = len(decisions) - len(kept)
    assert found.left_out == {"unsettled": unsettled, "untaught": 0, "actions": 0, "older": 0, "pruned": 0}
    assert any(decision["arm"] is None for decision in kept), "the budget runs out, so the log has null rounds"
    log = found.in_callers_rewards
    arms = {"a": 0, "b": 1, None: -1}
    assert log.arm.tolist() == [arms[decision["arm"]] for decision in kept]
    assert log.propensity.tolist() == [decision["probability"] for decision in kept]
    assert log.features[:, 0].tolist() == [decision["context"][0] for decision in kept]
    assert log.reward == pytest.approx([decision["reward"] or 0.0 for decision in kept])
    assert (log.costs[:, 0] / 1e6).tolist() == [(decision["costs"] or {"usd": 0})["usd"] for decision in kept]
    assert found.log.reward.min() >= 0
    assert found.log.reward.max() <= 1


def test_an_arm_that_could_not_be_played_is_not_eligible(client, database):
    make(client, arms=[{"id": "a"}, {"id": "b"}, {"id": "c"}])
    play(client, 50)
    play_excluding = {"exclude": ["b"]}
    rng = np.random.default_rng(2)
    for index in range(20):
        body = {"campaign_id": "c", "decision_id": f"e{index}", "context": [float(rng.random())]} | play_excluding
        arm = client("POST", "/decide", json=body).json()["arm"]
        assert arm != "b"
        report = {"campaign_id": "c", "decision_id": f"e{index}", "reward": 1, "costs": {}}
        assert client("POST", "/feedback", json=report).json()["learned"]
    change = {"retire_arms": ["c"], "add_arms": [{"id": "d"}]}
    assert client("PATCH", "/campaigns/c", json=change).status_code == 200
    body = {"campaign_id": "c", "decision_id": "last", "context": [0.5]}
    assert client("POST", "/decide", json=body).json()["arm"] != "c"
    client("POST", "/feedback", json={"campaign_id": "c", "decision_id": "last", "reward": 1, "costs": {}})
    log = read(database).log
    assert log.eligible[:45].tolist() == [[True, True, True, False]] * 45
    assert log.eligible[-21:-1].tolist() == [[True, False, True, False]] * 20
    assert log.eligible[-1].tolist() == [True, True, False, True]
    assert (log.offered == log.eligible).all()


def test_with_more_arms_than_are_explained_eligible_is_what_could_be_paid(client, database):
    arms = [{"id": f"a{i}", "max_cost": {"usd": 0.1 if i < 20 else 1}} for i in range(40)]
    make(client, arms=arms, resources=[{"id": "usd", "budget": 2, "max_cost": 1}])
    for index in range(6):
        own = {"max_costs": {"a7": {"usd": 0.05}, "a30": {"usd": 0}}} if index % 2 else {}
        body = {"campaign_id": "c", "decision_id": f"d{index}", "context": [0.5]} | own
        answer = client("POST", "/decide", json=body).json()
        report = {"campaign_id": "c", "decision_id": f"d{index}", "reward": 1, "costs": answer["hold"]}
        assert client("POST", "/feedback", json=report).status_code == 200
    found = read(database)
    left, expected = 2.0, []
    for decision in exported(client):
        own = {arm: costs["usd"] for arm, costs in (decision["max_costs"] or {}).items()}
        expected.append([left + 1e-9 >= own.get(f"a{i}", 0.1 if i < 20 else 1) for i in range(40)])
        left -= decision["costs"]["usd"] if decision["costs"] else 0.0
    assert found.log.eligible.tolist() == expected
    assert found.log.probabilities is None
    evaluate(found.log, Uniform(), rng=np.random.default_rng(1), max_cost=1e6)


MANY = [{"id": f"a{i}", "max_cost": {"usd": 0.1 if i < 20 else 1}} for i in range(40)]


def eligible_as_played(client, database, name="c", rounds=12):
    """Plays a campaign with MANY arms; returns how many were eligible in each round, in the log and as explained."""
    explained = []
    for index in range(rounds):
        body = {"campaign_id": name, "decision_id": f"d{index}", "context": [0.5], "explain": True}
        answer = client("POST", "/decide", json=body).json()
        explained.append(sum(arm["eligible"] for arm in answer["arms"]))
        if index % 3 < 2 and answer["arm"] is not None:
            report = {"campaign_id": name, "decision_id": f"d{index}", "reward": 1, "costs": {"usd": 0.07}}
            assert client("POST", "/feedback", json=report).status_code == 200
    log = read(database, name).log
    settled = [index for index in range(rounds) if index % 3 < 2 or not explained[index]]
    return log.eligible.sum(axis=1).tolist(), [explained[index] for index in settled]


def test_with_more_arms_than_are_explained_what_a_window_cannot_pay_is_not_eligible(client, database):
    windows = [{"period": "month", "limit": 1.5}]
    make(client, arms=MANY, resources=[{"id": "usd", "budget": 100, "max_cost": 1, "windows": windows}])
    found, explained = eligible_as_played(client, database)
    assert found == explained
    assert {20, 40} <= {*found}


def test_with_more_arms_than_are_explained_what_a_portfolio_cannot_pay_is_not_eligible(client, database):
    portfolio = {"id": "acme", "resources": [{"id": "usd", "budget": 1.6, "windows": [{"period": "day", "limit": 5}]}]}
    assert client("POST", "/portfolios", json=portfolio).status_code == 201
    make(client, arms=MANY, portfolio="acme")
    found, explained = eligible_as_played(client, database)
    assert found == explained
    assert {20, 40} <= {*found}


def test_rounds_from_before_a_gap_in_the_log_are_left_out_if_eligible_follows_from_it(client, database):
    make(client, arms=MANY, feedback={"late_window_seconds": 0})
    play(client, 50)
    whole = read(database)
    with database.write() as connection:
        assert connection.execute(tables.hold.select()).first() is not None  # such a decision stays
    (number,) = campaign_ids(database, "c")
    assert prune(database, prunable(database, number, 2**62), actor="test", advanced=lambda *done: None)[0] > 0
    play_again = {"campaign_id": "c", "decision_id": "after", "context": [0.5]}
    arm = client("POST", "/decide", json=play_again).json()["arm"]
    assert client("POST", "/feedback", json={"campaign_id": "c", "decision_id": "after", "reward": 1, "costs": {}})
    found = read(database)
    assert (found.log.rounds, found.log.arm.tolist()) == (1, [MANY.index(next(a for a in MANY if a["id"] == arm))])
    assert found.left_out["pruned"] + found.left_out["older"] + found.left_out["unsettled"] == 50
    assert whole.log.rounds + whole.left_out["unsettled"] == 50


def test_the_newest_rounds_are_taken_and_a_campaign_without_any_says_so(client, database):
    make(client)
    with pytest.raises(EmptyLog, match="nothing was decided"):
        read(database)
    play(client, 100)
    whole, newest = read(database), read(database, rounds_max=30)
    assert newest.left_out["older"] == 70
    assert newest.log.rounds + newest.left_out["unsettled"] == 30
    assert newest.log.propensity.tolist() == whole.log.propensity[-newest.log.rounds :].tolist()


def test_requests_with_arms_of_their_own_are_left_out(client, database):
    shared = {"model": "shared", "arm_features": {"dimension": 1}}
    make(client, **shared, arms=[{"id": "a", "features": [0.1]}, {"id": "b", "features": [0.9]}])
    play(client, 50)
    own = {"campaign_id": "c", "context": [0.5], "actions": [{"id": "z", "features": [0.3]}]}
    assert client("POST", "/decide", json=own).json()["arm"] == "z"
    found = read(database)
    assert found.left_out["actions"] == 1
    assert found.log.model == "shared"
    assert found.log.features.shape == (45, 2, found.campaign.dimension)
