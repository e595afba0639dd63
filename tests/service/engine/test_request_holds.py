"""Requests that bring max costs of their own: the hold of a decision is what its caller knows it can cost."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from cbwk_core import NULL_ARM, RULES_VERSION
from service.commands.console import campaign_ids
from service.domain.campaign import Campaign
from service.domain.request_holds import request_holds
from service.engine import prune, replay
from service.engine.commands import Decide, Feedback
from service.money import micros
from service.problems import Invalid
from service.store import tables
from tests.service.engine.campaigns import accounts, config, rows, with_campaign
from tests.service.http_client import served

ONE = 1_000_000
# The second arm may cost a tenth of the first.
ARMS = [{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.1}}]
ACTIONS = [{"id": "x", "features": [0.2]}, {"id": "y", "features": [0.9], "max_cost": {"usd": 0.5}}]
SHARED = {"model": "shared", "arm_features": {"dimension": 1}, "arms": []}


@pytest.fixture
def client(database):
    with served(database) as client:
        client.database = database
        yield client


def make(client, budget=10, **changes):
    resources = [{"id": "usd", "budget": budget, "max_cost": 1}, {"id": "impressions", "budget": 1000, "max_cost": 1}]
    body = {"id": "c", "arms": ARMS, "resources": resources, "horizon": 1000, "context": {"dimension": 1}, "seed": 7}
    answer = client("POST", "/campaigns", json=body | changes)
    assert answer.status_code == 201, answer.text


def decide(client, name, **more):
    body = {"campaign_id": "c", "decision_id": name, "context": [0.5]} | more
    return client("POST", "/decide", json=body)


def decided(client, name, **more):
    answer = decide(client, name, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def is_sound(client):
    """Checks that the accounts and every decision follow from the log. Returns the number of decisions."""
    answer = client("GET", "/admin/campaigns/c/verify").json()
    assert answer["ok"], answer
    (number,) = campaign_ids(client.database, "c")
    found = replay.replay(client.database, number, advanced=lambda done, todo: None)
    assert found.difference is None, found.difference
    return found.decisions


def test_the_hold_is_what_the_request_says_and_that_of_an_arm_wins(client):
    make(client)
    own = {"max_cost": {"usd": 0.05, "impressions": 0}, "max_costs": {"a": {"usd": 0.3}}}
    first = decided(client, "d1", exclude=["b"], **own)
    assert (first["arm"], first["hold"]) == ("a", {"usd": 0.3, "impressions": 0})
    second = decided(client, "d2", exclude=["a"], **own)
    assert (second["arm"], second["hold"]) == ("b", {"usd": 0.05, "impressions": 0})
    third = decided(client, "d3", exclude=["a"], max_costs={"a": {"usd": 0.3}})
    assert third["hold"] == {"usd": 0.1, "impressions": 1}, "what the request does not name is as declared"
    assert accounts(client.database)[1] == 450_000
    report = {"campaign_id": "c", "decision_id": "d1", "reward": 1, "costs": {"usd": 0.4, "impressions": 0}}
    assert client("POST", "/feedback", json=report).json()["warnings"] == ["cost_above_hold"]
    assert accounts(client.database)[1:3] == (150_000, 400_000)
    assert is_sound(client) == 3


@pytest.mark.parametrize(
    ("own", "field", "words"),
    [
        ({"max_cost": {"usd": 0.2}}, "max_cost.usd", "must be at most 0.1, the max cost declared for arm b"),
        ({"max_costs": {"a": {"usd": 1.000001}}}, "max_costs.a.usd", "at most 1, the max cost declared for arm a"),
        ({"max_cost": {"usd": 0.2}, "max_costs": {"b": {"usd": 0.11}}}, "max_costs.b.usd", "for arm b"),
        ({"max_cost": {"eur": 0}}, "max_cost.eur", "is none of the resources"),
        ({"max_costs": {"b": {"eur": 0}}}, "max_costs.b.eur", "is none of the resources"),
        ({"max_costs": {"z": {}}}, "max_costs.z", "is none of the arms"),
    ],
)
def test_what_is_above_the_declared_or_unknown_is_refused_with_its_field_and_takes_no_round(client, own, field, words):
    make(client)
    answer = decide(client, "d", **own)
    (error,) = answer.json()["errors"]
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:cbwk:problem:invalid-max-cost")
    assert error["field"] == field
    assert words in error["message"]
    assert rows(client.database, tables.decision) == []
    items = [{"context": [0.5], "decision_id": f"d{at}"} | (own if at == 1 else {}) for at in range(3)]
    results = client("POST", "/decide/batch", json={"campaign_id": "c", "items": items}).json()["decisions"]
    assert [("error" in one) for one in results] == [False, True, False]
    assert is_sound(client) == 2


def test_a_lower_max_cost_of_an_arm_keeps_a_common_one_from_being_too_high_for_it(client):
    make(client)
    own = {"max_cost": {"usd": 0.2}, "max_costs": {"b": {"usd": 0.1}}}
    assert decided(client, "d", exclude=["a"], **own)["hold"]["usd"] == 0.1


def test_a_retired_arm_does_not_bound_the_max_cost_of_all_arms(client):
    make(client)
    assert client("PATCH", "/campaigns/c", json={"retire_arms": ["b"]}).status_code == 200
    assert decided(client, "d", max_cost={"usd": 0.7})["hold"]["usd"] == 0.7
    assert decide(client, "e", max_costs={"b": {"usd": 0.7}}).status_code == 422
    assert is_sound(client) == 1


def test_an_arm_that_is_too_dear_as_declared_is_played_if_the_request_needs_less(client):
    make(client, budget=1)
    spent = {"resource": "usd", "amount": 0.95, "reason": "spent elsewhere"}
    assert client("POST", "/admin/campaigns/c/adjust", json=spent).status_code == 200
    assert decided(client, "d1")["reason"] == "budget_exhausted"
    explained = decided(client, "d2", max_costs={"a": {"usd": 0.05}}, explain=True)
    assert (explained["arm"], explained["hold"]["usd"], explained["probability"]) == ("a", 0.05, 1.0)
    assert [arm["why_not"] for arm in explained["arms"]] == [None, "not_affordable"]
    assert decided(client, "d3", max_cost={"usd": 0.000001})["reason"] == "budget_exhausted"
    free = decided(client, "d4", max_cost={"usd": 0})
    assert (free["reason"], free["hold"]) == ("policy", {"usd": 0, "impressions": 1})
    assert is_sound(client) == 4


def test_requests_of_a_batch_hold_their_own_amounts_to_the_last_millionth(client):
    make(client, budget=1, arms=[{"id": "a"}, {"id": "b"}])
    own = [{"max_cost": {"usd": 0.300001}}, {}, {"max_costs": {"a": {"usd": 0.2}, "b": {"usd": 0.2}}}]
    items = [{"context": [0.5], "decision_id": f"d{at}"} | own[at % 3] for at in range(12)]
    results = client("POST", "/decide/batch", json={"campaign_id": "c", "items": items}).json()["decisions"]
    free, expected = ONE, []
    for at in range(12):
        needed = (300_001, ONE, 200_000)[at % 3]
        expected.append(needed if needed <= free else None)
        free -= expected[-1] or 0
    assert [micros(one["hold"]["usd"]) if one["arm"] else None for one in results] == expected
    assert sum(one is not None for one in expected) > 2
    assert accounts(client.database)[:2] == (ONE, ONE - free)
    again = client("POST", "/decide/batch", json={"campaign_id": "c", "items": items})
    assert (again.json()["decisions"], again.headers["idempotent-replayed"]) == (results, "true")
    assert is_sound(client) == 12


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ('"max_cost":{"usd":0,"impressions":1}', '"max_cost":{"impressions":1.0,"usd":-0.0},"max_costs":null'),
        ('"max_costs":{"a":{"usd":1e-1},"b":{}}', '"max_costs":{"b":{},"a":{"usd":0.1}},"max_cost":{}'),
        ('"exclude":[]', '"max_cost":{},"max_costs":{}'),
    ],
)
def test_the_same_max_costs_in_another_form_are_the_same_request(client, first, again):
    make(client)
    answers = []
    for own in (first, again):
        body = f'{{"campaign_id":"c","decision_id":"d","context":[0.5],{own}}}'
        answers.append(client("POST", "/decide", content=body, headers={"Content-Type": "application/json"}))
    assert answers[0].status_code == 200
    assert answers[1].headers["idempotent-replayed"] == "true"
    assert answers[1].json() == answers[0].json()
    assert is_sound(client) == 1


@pytest.mark.parametrize(
    "other", [{}, {"max_cost": {"usd": 0.1}}, {"max_costs": {"a": {"usd": 0.05}}}, {"max_cost": {"impressions": 0.05}}]
)
def test_other_max_costs_under_the_same_id_are_refused(client, other):
    make(client)
    decided(client, "d", max_cost={"usd": 0.05})
    answer = decide(client, "d", **other)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:cbwk:problem:decision-id-reused")


def test_decisions_and_exports_show_the_max_costs_of_their_requests(client):
    make(client)
    own = {"max_cost": {"usd": 0.05}, "max_costs": {"b": {"usd": 0.01, "impressions": 0}}}
    decided(client, "d1", **own)
    decided(client, "d2")
    nothing = {"max_cost": None, "max_costs": None}
    for name, shown in (("d1", own), ("d2", nothing)):
        found = client("GET", f"/admin/campaigns/c/decisions/{name}").json()
        assert {key: found[key] for key in nothing} == shown
        assert [arm["id"] for arm in found["explanation"]["arms"]] == ["a", "b"]
    lines = [json.loads(line) for line in client("GET", "/admin/campaigns/c/export").text.splitlines()]
    assert [{key: line[key] for key in nothing} for line in lines] == [own, nothing]
    table = client("GET", "/admin/campaigns/c/export?format=csv").text.splitlines()
    assert "actions,max_cost,max_costs,hold.usd" in table[0]
    stored = [row["max_costs"] for row in rows(client.database, tables.decision)]
    assert stored == ['{"max_cost":{"usd":0.05},"max_costs":{"b":{"impressions":0,"usd":0.01}}}', None]


def test_actions_hold_what_the_request_says_and_never_more_than_their_own_max_cost(client):
    make(client, **SHARED)
    same = {"actions": ACTIONS, "exclude": ["x"]}
    assert decided(client, "d1", **same, max_cost={"usd": 0.25})["hold"] == {"usd": 0.25, "impressions": 1}
    own = {"max_cost": {"usd": 0.9}, "max_costs": {"y": {"usd": 0.5}, "other": {"usd": 0.1}}}
    assert decided(client, "d2", **same, **own)["hold"]["usd"] == 0.5
    for bad, field in (
        ({"max_cost": {"usd": 0.6}}, "max_cost.usd"),
        ({"max_costs": {"y": {"usd": 0.6}}}, "max_costs.y.usd"),
    ):
        answer = decide(client, "d3", **same, **bad)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
        assert "at most 0.5" in answer.json()["detail"]
    needed = decide(client, "d4", max_cost={"usd": 0.5})
    assert needed.json()["type"].endswith("actions-needed")
    assert is_sound(client) == 2


@pytest.mark.parametrize("changes", [{"holdout": {"fraction": 0.5, "arm": "a"}}, {"mode": "shadow"}])
def test_a_baseline_holds_what_the_request_says(client, changes):
    make(client, budget=0.5, **changes)
    more = {"baseline_arm": "a"} if "mode" in changes else {}
    reason = "shadow" if more else "holdout"
    unpayable = [decided(client, f"u{at}", **more) for at in range(5)]
    assert {answer["arm"] for answer in unpayable} <= {None, "b"}, "the baseline cannot be paid as declared"
    answers = [decided(client, f"d{at}", max_costs={"a": {"usd": 0.000003}}, **more) for at in range(20)]
    replaced = [answer for answer in answers if answer["reason"] == reason]
    assert replaced
    for answer in replaced:
        assert (answer["arm"], answer["hold"]["usd"]) == ("a", 0.000003)
    assert is_sound(client) == 25


def test_a_log_in_which_requests_brought_max_costs_is_replayed_pruned_and_replayed_again(client):
    make(client, feedback={"late_window_seconds": 0})
    for at in range(40):
        own = [{}, {"max_cost": {"usd": 0.05}}, {"max_costs": {"a": {"usd": at / 100}}}][at % 3]
        answer = decided(client, f"d{at}", context=[at / 40], **own)
        if answer["arm"] is not None:
            report = {"campaign_id": "c", "decision_id": f"d{at}", "reward": at % 2, "costs": answer["hold"]}
            assert client("POST", "/feedback", json=report).json()["learned"]
    assert is_sound(client) == 40
    (number,) = campaign_ids(client.database, "c")
    found = prune.prunable(client.database, number, 2**62)
    prune.prune(client.database, found, actor="test", advanced=lambda step, done, todo: None)
    decided(client, "last", max_cost={"usd": 0.01})
    assert is_sound(client) == 1


def test_a_changed_max_cost_in_the_log_is_found_by_a_replay(client):
    make(client)
    decided(client, "d", max_cost={"usd": 0.05})
    with client.database.write() as connection:
        connection.execute(update(tables.decision).values(max_costs='{"max_cost":{"usd":0.04}}'))
    found = replay.replay(client.database, 1, advanced=lambda done, todo: None)
    assert found.difference.what == "request"


def test_arms_and_probabilities_are_those_of_the_library_with_the_same_holds(database):
    arms = [{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.1}}]
    campaign = Campaign(1, "c", 1, {**config(arms=arms, budget=20), "rules": RULES_VERSION})
    own = [{"max_cost": {"usd": at % 5 / 50}, "max_costs": {"a": {"usd": at / 50}}} for at in range(40)]

    async def play(engine):
        bodies = []
        for at in range(40):
            bodies.append((await engine.submit(Decide("c", f"d{at}", [at / 40, 0.5], **own[at]))).body)
            if bodies[-1]["arm"] is not None:
                await engine.submit(Feedback("c", f"d{at}", reward=at % 2, costs=bodies[-1]["hold"]))
        return bodies

    bodies = with_campaign(database, play, arms=arms, budget=20)
    policy, left = campaign.policy, np.array([20 * ONE, 100_000 * ONE])
    state = policy.init()
    for at, body in enumerate(bodies):
        holds = np.array([[[at * ONE // 50, ONE], [at % 5 * ONE // 50, ONE]]])
        choice = policy.decide(state, np.array([[at / 40, 0.5]]), campaign.uniforms(at, 1), free=left, holds=holds)
        state = policy.commit(state, choice.ticket)
        arm = int(choice.arm[0])
        assert {"a": 0, "b": 1, None: NULL_ARM}[body["arm"]] == arm
        assert body["probability"] == pytest.approx(float(choice.probability[0]), abs=1e-9)
        if arm != NULL_ARM:
            assert [micros(each) for each in body["hold"].values()] == holds[0, arm].tolist()
            state = policy.settle(state, choice.ticket, [float(at % 2)], choice.ticket.hold)
            left = left - holds[0, arm]
    stored = np.frombuffer(rows(database, tables.campaign_state)[0]["books"], dtype="<f8")
    np.testing.assert_allclose(stored, state.books[0], rtol=1e-9, atol=1e-9)


AMOUNTS = st.integers(0, 4).map(lambda quarters: quarters / 4)
COSTS = st.dictionaries(st.sampled_from(["usd", "impressions"]), AMOUNTS)


@settings(max_examples=200)
@given(
    st.lists(COSTS, min_size=1, max_size=4),
    st.sets(st.integers(0, 3)),
    COSTS,
    st.dictionaries(st.sampled_from(["0", "1", "2", "3"]), COSTS),
)
def test_holds_are_those_of_a_loop_over_arms_and_resources(declared, retired, max_cost, max_costs):
    arms = [{"id": str(at), "max_cost": costs, "retired": at in retired} for at, costs in enumerate(declared)]
    campaign = Campaign(1, "c", 1, config(arms=arms))
    limits = np.array(campaign.holds, dtype=np.float64)
    expected, fits = [], set(max_costs) <= {arm["id"] for arm in arms}
    for at, arm in enumerate(arms):
        for place, name in enumerate(("usd", "impressions")):
            limit = micros(arm["max_cost"].get(name, 1))
            if name in max_costs.get(arm["id"], {}):
                asked = micros(max_costs[arm["id"]][name])
            else:
                asked = micros(max_cost.get(name, limit / ONE))
                asked = min(asked, limit) if at in retired else asked
            fits = fits and asked <= limit
            expected.append(asked)
            assert limits[at, place] == limit
    if not fits:
        with pytest.raises(Invalid):
            request_holds(campaign, campaign.arms, limits, max_cost, max_costs)
        return
    assert request_holds(campaign, campaign.arms, limits, max_cost, max_costs).ravel().tolist() == expected
