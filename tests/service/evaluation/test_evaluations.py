"""`…/evaluations`: requested over the interface, computed in a separate process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

import orjson
import pytest
from sqlalchemy import insert, select

from service.evaluation.campaign_log import read_log
from service.evaluation.runner import Evaluations, end_interrupted
from service.problems import Unavailable
from service.store import tables
from service.store.database import Database
from tests.service.evaluation.logs import campaign, finished, play
from tests.service.http_client import served

PATH = "/admin/campaigns/c/evaluations"
UNIFORM = {"candidates": [{"type": "uniform"}], "seed": 1}
REQUEST = {"candidates": [], "budgets": {}, "what_if": True, "level": 0.95, "rounds_max": 1000, "seed": 1}


@pytest.fixture(scope="module")
def client(sqlite_template, tmp_path_factory):
    file = tmp_path_factory.mktemp("evaluations") / "cbwk.db"
    shutil.copyfile(sqlite_template, file)
    with Database.open(f"sqlite:///{file}") as database, served(database) as client:
        client.database = database
        assert client("POST", "/campaigns", json=campaign()).status_code == 201
        play(client, 300)
        yield client
        client.app.state.evaluations.stop()


@pytest.fixture(scope="module")
def result(client):
    """One evaluation of every kind of candidate."""
    other = {"type": "policy", "policy": {"oracle": {"kind": "gradient"}}}
    body = {"candidates": [{"type": "fixed", "arm": "b"}, {"type": "uniform"}, other], "budgets": {"usd": 60}}
    answer = client("POST", PATH, json=body | {"what_if": True, "seed": 1})
    assert answer.status_code == 202, answer.text
    found = finished(client, answer.json()["id"])
    assert (found["status"], found["progress"], found["error"]) == ("done", 1.0, None), found["error"]
    return found["result"]


def test_the_inverse_propensity_score_is_that_of_the_exported_log(client, result):
    lines = [json.loads(line) for line in client("GET", "/admin/campaigns/c/export").text.splitlines()]
    kept = [decision for decision in lines if decision["arm"] is None or decision["learned"]]
    assert result["rounds"] == len(kept)
    fixed = result["candidates"][0]["estimates"]["ips"]
    weights = [(decision["arm"] == "b") / decision["probability"] for decision in kept]
    weighted = list(zip(weights, kept, strict=True))
    reward = sum(w * (decision["reward"] or 0) for w, decision in weighted) / len(kept)
    cost = sum(w * (decision["costs"] or {"usd": 0})["usd"] for w, decision in weighted) / len(kept)
    assert fixed["reward"]["value"] == pytest.approx(reward, abs=1e-9)
    assert fixed["costs"]["usd"]["value"] == pytest.approx(cost, abs=1e-9)
    log = read_log(client.database, "c", rounds_max=1000, advanced=lambda done, todo: None).log
    squares = sum(1.0 / p for p in log.probabilities[:, 1].tolist() if p > 0)
    assert result["candidates"][0]["effective_sample_size"] == pytest.approx(len(kept) ** 2 / squares)


def test_the_result_says_when_budgets_run_out_how_sure_it_is_and_what_it_is_restricted_to(result):
    fixed, uniform, other = result["candidates"]
    assert fixed["summary"].startswith("Under these budgets this policy would have run out of usd at ")
    assert fixed["run_out"]["resource"] == "usd"
    # 60 of 1000 · 0.6 last for a tenth of the flight.
    assert 0.05 < fixed["run_out"]["share"]["value"] < 0.2
    assert "restricted to the arms that were eligible" in result["restriction"]
    assert "effective_sample_size" in {warning["code"] for warning in uniform["warnings"]}
    for estimate in fixed["estimates"].values():
        for mean in (estimate["reward"], estimate["costs"]["usd"]):
            assert mean["bootstrap"][0] <= mean["value"] <= mean["bootstrap"][1]
            assert mean["bernstein"][0] <= mean["value"] <= mean["bernstein"][1]
            assert mean["bootstrap"][0] <= mean["sequence"][0] <= mean["sequence"][1] <= mean["bootstrap"][1]
    assert "IPS and DR stay unbiased" in fixed["validity"]
    assert other["candidate"]["policy"]["oracle"]["kind"] == "gradient"
    # It paces its spend: 60 for 1,000 rounds.
    assert other["estimates"]["dr"]["costs"]["usd"]["value"] < fixed["estimates"]["dr"]["costs"]["usd"]["value"] / 2


def test_a_what_if_has_curves_of_reward_spend_and_what_one_more_unit_is_worth(result):
    found = result["what_if"]
    size = len(found["rounds"])
    assert found["rounds"][-1] == result["rounds"]
    for flights in (found["changed"], found["control"]):
        assert len(flights["reward"]) == len(flights["spent"]["usd"]) == len(flights["marginal_value"]["usd"]) == size
    assert found["changed"]["reward"][-1] < found["control"]["reward"][-1]
    assert found["changed"]["marginal_value"]["usd"][-1] > found["control"]["marginal_value"]["usd"][-1]
    assert found["control"]["reward"][-1] == pytest.approx(found["actual"]["reward"][-1], rel=0.15)


def test_evaluations_are_listed_newest_first_page_by_page_without_results_and_are_in_the_audit(client, result):
    ids = [client("POST", PATH, json=UNIFORM).json()["id"] for _ in range(2)]
    first_run, second_run = (finished(client, name) for name in ids)
    assert first_run["status"] == second_run["status"] == "done"
    assert first_run["result"] == second_run["result"], "the same seed on the same log"
    first = client("GET", PATH, params={"limit": 1}).json()
    second = client("GET", PATH, params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert [first["items"][0]["id"], second["items"][0]["id"]] == sorted(ids, reverse=True)
    assert "result" not in first["items"][0]
    audit = client("GET", "/admin/audit").json()["items"]
    assert [entry["body"]["id"] for entry in audit if entry["action"] == "campaign.evaluate"][:2] == ids[::-1]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"candidates": [{"type": "fixed", "arm": "z"}]}, "candidates.0.arm"),
        ({"candidates": [{"type": "uniform"}], "budgets": {"eur": 1}}, "budgets.eur"),
        ({"candidates": [{"type": "policy", "policy": {"two_stage": "paper"}}]}, "candidates.0.policy.two_stage"),
        ({"candidates": [{"type": "greedy"}]}, "candidates.0"),
        ({}, "body"),
    ],
)
def test_what_the_campaign_does_not_have_is_422_with_the_field(client, body, field):
    answer = client("POST", PATH, json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_campaign_without_outcomes_fails_with_the_reason(client):
    assert client("POST", "/campaigns", json=campaign("new")).status_code == 201
    started = client("POST", "/admin/campaigns/new/evaluations", json=UNIFORM).json()
    found = finished(client, started["id"], "new")
    assert (found["status"], found["error"]["code"]) == ("failed", "nothing-logged")
    assert found["result"] is None
    answer = client("GET", f"{PATH}/{started['id']}")
    assert answer.status_code == 404, "it is another campaign's"
    assert answer.json()["type"].endswith("evaluation-not-found")


def test_running_and_waiting_evaluations_are_limited(client, monkeypatch):
    monkeypatch.setattr("service.evaluation.runner.WAITING_MAX", 2)
    evaluations = Evaluations(at_once=1, seconds_max=60)
    ids = [evaluations.submit(client.database, "c", REQUEST, "test")["id"]]
    while client("GET", f"{PATH}/{ids[0]}").json()["status"] == "queued":
        time.sleep(0.01)
    ids += [evaluations.submit(client.database, "c", REQUEST, "test")["id"] for _ in range(2)]
    with pytest.raises(Unavailable, match="too many"):
        evaluations.submit(client.database, "c", REQUEST, "test")
    statuses = [item["status"] for item in client("GET", PATH).json()["items"] if item["id"] in ids]
    assert statuses.count("running") <= 1
    evaluations.stop()
    for evaluation_id in ids:
        found = finished(client, evaluation_id)
        assert (found["status"], found["error"]["code"]) == ("failed", "interrupted")


def test_an_evaluation_that_takes_too_long_is_ended(client):
    evaluations = Evaluations(at_once=1, seconds_max=0.01)
    found = finished(client, evaluations.submit(client.database, "c", REQUEST, "test")["id"])
    assert (found["status"], found["error"]["code"]) == ("failed", "took-too-long")


def lost(database, name, *, age_seconds):
    """Inserts a running evaluation of a server whose last beat is `age_seconds` old."""
    with database.write() as connection:
        number = connection.execute(select(tables.campaign.c.number)).scalars().first()
        beat = database.now_micros(connection) - age_seconds * 1_000_000
        row = {"campaign": number, "id": name, "status": "running", "request": "{}", "progress": 0.5}
        connection.execute(insert(tables.evaluation).values(**row, created_at=beat, started_at=beat, beat_at=beat))


def test_a_restart_leaves_evaluations_failed_as_interrupted(database):
    with served(database) as client:
        assert client("POST", "/campaigns", json=campaign()).status_code == 201
        lost(database, "old", age_seconds=40)
        lost(database, "young", age_seconds=1)
        shown = {item["id"]: (item["status"], item["error"]) for item in client("GET", PATH).json()["items"]}
        assert shown["old"][0] == "failed"
        assert shown["old"][1]["code"] == "interrupted"
        assert shown["young"] == ("running", None)
        # Another replica may run the young one; SQLite has only one process.
        assert end_interrupted(database) == (2 if database.dialect == "sqlite" else 1)
        young = client("GET", f"{PATH}/young").json()["status"]
        assert young == ("failed" if database.dialect == "sqlite" else "running")


def test_an_evaluation_reads_postgresql_too(postgresql_server):
    with (
        postgresql_server.database(template="with_tables") as url,
        Database.open(url) as database,
        served(database) as client,
    ):
        assert client("POST", "/campaigns", json=campaign()).status_code == 201
        play(client, 50)
        found = finished(client, client("POST", PATH, json=UNIFORM).json()["id"])
        assert found["status"] == "done", found["error"]
        client.app.state.evaluations.stop()


def test_a_process_ends_when_its_server_is_gone(client):
    command = [sys.executable, "-m", "service.evaluation.process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        task = {"database_url": client.database.private_url, "campaign_id": "c", "request": REQUEST}
        process.stdin.write(orjson.dumps(task) + b"\n")
        process.stdin.close()
        until = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert process.returncode == 1
        assert b"result" not in process.stdout.read()
