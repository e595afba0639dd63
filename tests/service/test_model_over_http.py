"""`GET` and `PUT …/model` of real servers: one campaign goes on from what another has learnt."""

from __future__ import annotations

import pytest

from tests.service.http_calls import account, calls, campaign, create, decide_body, failed_checks
from tests.service.server_process import running_server

pytestmark = pytest.mark.slow

CONTEXTS = ((0.1, 0.9), (0.5, 0.5), (0.8, 0.2))
MODEL = "/admin/campaigns/{}/model"


def play(client, name, count, *, share):
    for i in range(count):
        answer = client.post("/decide", json=decide_body(f"{name}{i}", name, (i / count, 0.5))).json()
        if answer["arm"] is not None:
            report = {"campaign_id": name, "decision_id": f"{name}{i}", "reward": share * (i % 2)}
            assert client.post("/feedback", json=report | {"costs": {"usd": share * (i % 3) / 2}}).json()["learned"]


def predictions(client, name, tag):
    """What `explain` says of every arm in a few contexts."""
    found = []
    for index, context in enumerate(CONTEXTS):
        body = decide_body(f"{tag}-{index}", name, context) | {"explain": True}
        answer = client.post("/decide", json=body)
        assert answer.status_code == 200, answer.text
        found.append([(arm["id"], arm["reward"], arm["cost"]) for arm in answer.json()["arms"]])
    return found


def put(client, name, data):
    return client.put(MODEL.format(name), content=data)


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_a_model_goes_from_one_campaign_to_another_and_survives_kill_9(migrated_url):
    with running_server(database_url=migrated_url) as server, calls(server) as client:
        create(client, campaign("a"))
        create(client, campaign("b", budget=500, horizon=4000))
        play(client, "a", 30, share=1.0)
        play(client, "b", 10, share=0.3)
        before, spent = client.get("/campaigns/b").json(), account(client, "b")
        assert predictions(client, "b", "own") != predictions(client, "a", "source")
        model = client.get(MODEL.format("a"))
        assert model.headers["content-type"] == "application/octet-stream"
        assert model.headers["content-disposition"] == 'attachment; filename="a.model"'
        assert model.headers["etag"].strip('"') == model.content[-16:].hex()
        assert (model.headers["model-version"], model.headers["policy-version"]) == ("1", "30")
        answer = put(client, "b", model.content)
        assert answer.json() == {
            "campaign_id": "b",
            "model_version": 2,
            "policy_version": 30,
            "bytes": len(model.content),
        }
        after = client.get("/campaigns/b").json()
        assert after["policy_version"] == 30
        assert after["prices"] == before["prices"] or after["round"] > before["round"]
        assert account(client, "b")["spent"] == spent["spent"]
        source = predictions(client, "a", "again")
        assert predictions(client, "b", "after") == source
        server.process.kill()
    with running_server(database_url=migrated_url) as server, calls(server) as client:
        assert predictions(client, "b", "reborn") == source
        back = client.get(MODEL.format("b"))
        assert (back.content, back.headers["model-version"]) == (model.content, "2")
        assert failed_checks(client, "b") == []


def refused(client, name, data, status, kind):
    answer = put(client, name, data)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:cbwk:problem:{kind}"), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.json()


def check_damage(client, model):
    for place in range(0, len(model), 37):
        flipped = model[:place] + bytes([model[place] ^ 0x10]) + model[place + 1 :]
        assert put(client, "a", flipped).status_code == 400
        assert put(client, "a", model[:place]).status_code == 400


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_bytes_that_are_no_fitting_model_are_refused_and_change_nothing(migrated_url):
    with running_server(database_url=migrated_url, model_body_bytes_max=100_000) as server, calls(server) as client:
        create(client, campaign("a"))
        create(client, campaign("wide", context={"dimension": 3}))
        create(client, campaign("paper", policy={"preset": "paper", "oracle": {"kind": "gradient"}}))
        play(client, "a", 10, share=0.5)
        model = client.get(MODEL.format("a")).content
        refused(client, "a", b"", 400, "not-a-model")
        refused(client, "a", b"\x80garbage" * 100, 400, "not-a-model")
        refused(client, "a", b"{}", 400, "not-a-model")
        refused(client, "a", b"CBWK" + bytes(100), 400, "not-a-model")
        refused(client, "a", bytes(100_001), 413, "too-large")
        wide = refused(client, "wide", model, 409, "model-differs")
        assert wide["errors"] == [{"field": "dimension", "message": "must be 3"}]
        paper = refused(client, "paper", model, 409, "model-differs")
        assert "oracle" in [error["field"] for error in paper["errors"]]
        refused(client, "nowhere", model, 404, "campaign-not-found")
        check_damage(client, model)
        assert client.get(MODEL.format("a")).content == model
        assert client.get(MODEL.format("a")).headers["model-version"] == "1"
        assert client.get("/campaigns/a").json()["round"] == 10
