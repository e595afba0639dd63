"""A database that version 0.1 wrote goes on under the current code: see version_0_1/README.md."""

from __future__ import annotations

import gzip
import json
import signal
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cbwk_core import RULES_VERSION
from service.cli import main
from service.engine.cache import load_campaign
from service.store import tables
from service.store.database import Database
from service.store.migrate import migrate
from tests.service.http_calls import calls, campaign, create
from tests.service.server_process import running_server

FOLDER = Path(__file__).parent / "version_0_1"
ANSWERS = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))
STOP_SECONDS_MAX = 20.0
LATER = "2100-01-01"


@pytest.fixture
def path(tmp_path):
    """A copy of the file."""
    copy = tmp_path / "cbwk.db"
    copy.write_bytes(gzip.decompress((FOLDER / "cbwk.db.gz").read_bytes()))
    return copy


@contextmanager
def serving(path):
    """A client of a real server on the file, which stops in good order afterwards and has read every snapshot."""
    with running_server(database_url=f"sqlite:///{path}") as server, calls(server) as client:
        yield client
        server.process.send_signal(signal.SIGTERM)
        out, err = server.process.communicate(timeout=STOP_SECONDS_MAX)
        assert server.process.returncode == 0
        assert "snapshot passed over" not in out + err


def run(path, capsys, *arguments):
    """What a command that must succeed answers, as JSON, when the tables are those of this version."""
    migrate(f"sqlite:///{path}")
    capsys.readouterr()
    assert main([*arguments, "--json", "--database-url", f"sqlite:///{path}"]) == 0
    return json.loads(capsys.readouterr().out)


def queried(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def one_more_decision_each(path):
    """For each campaign the request of its newest decision, under a new id."""
    newest = "SELECT campaign, max(sequence) AS sequence FROM decision GROUP BY campaign"
    rows = queried(
        path,
        "SELECT campaign.id, decision.context, decision.actions, decision.shadow FROM decision "
        f"JOIN ({newest}) AS newest USING (campaign, sequence) JOIN campaign ON campaign.number = decision.campaign",
    )
    for name, context, actions, shadow in rows:
        body = {"campaign_id": name, "decision_id": "one-more", "context": json.loads(context)}
        body |= {} if actions is None else {"actions": json.loads(actions)}
        yield body if shadow is None else body | {"baseline_arm": json.loads(shadow)["baseline"]}


def decide_once_more(path, client):
    reasons = {}
    for body in list(one_more_decision_each(path)):
        answer = client.post("/decide", json=body)
        assert answer.status_code == 200, (body, answer.text)
        reasons[body["campaign_id"]] = answer.json()["reason"]
    return reasons


def assert_log_holds(path, capsys):
    """Accounts follow from the log, and so does every decision that it still has."""
    assert all(one["ok"] for one in run(path, capsys, "verify"))
    found = run(path, capsys, "replay")
    assert all(one["ok"] and one["rules"] == 1 and not one["not_derived"] for one in found)
    return sum(one["decisions"] for one in found)


def test_every_stored_snapshot_decodes(path):
    snapshot = tables.snapshot
    with Database.open(f"sqlite:///{path}") as database, database.read() as connection:
        rows = connection.execute(snapshot.select()).mappings().all()
        assert len(rows) > 30
        for row in rows:
            policy = load_campaign(connection, row["campaign"], row["config_version"]).policy
            assert policy.decode(row["data"]).learnt[0] > 0, row["campaign"]


def test_every_decision_in_the_log_is_derived_again(path, capsys):
    ((decisions,),) = queried(path, "SELECT count(*) FROM decision")
    assert assert_log_holds(path, capsys) == decisions > 700


def test_a_campaign_of_version_0_1_keeps_version_1_of_the_rules_and_a_new_one_has_the_newest(path):
    with serving(path) as client:
        assert client.patch("/campaigns/per-arm", json={"horizon": 2000}).json()["rules"] == 1
        assert client.get("/campaigns/paper").json()["rules"] == 1
        create(client, campaign("new"))
        assert client.get("/campaigns/new").json()["rules"] == RULES_VERSION > 1


def test_repeated_requests_are_answered_as_version_0_1_answered_them(path):
    with serving(path) as client:
        for one in ANSWERS:
            answer = client.post(one["path"], json=one["body"])
            assert answer.json() == one["answer"]
            assert answer.headers["Idempotent-Replayed"] == "true"
    assert {one["path"] for one in ANSWERS} == {"/decide", "/decide/batch", "/feedback"}


def missing_report(status):
    """The parts of a report that a decision of this status still takes."""
    reward, costs = {"reward": 0.5}, {"costs": {"usd": 0.25}}
    return {"held": reward | costs, "rewarded": costs, "charged": reward}.get(status)


def settle_what_is_open(path, client):
    """Report every decision that waits; returns the campaigns that had one."""
    settled = set()
    for (name,) in queried(path, "SELECT id FROM campaign ORDER BY number"):
        for row in client.get(f"/admin/campaigns/{name}/decisions", params={"limit": 1000}).json()["items"]:
            report = missing_report(row["status"])
            if report is not None:
                body = {"campaign_id": name, "decision_id": row["decision_id"]} | report
                answer = client.post("/feedback", json=body).json()
                assert (answer["status"], answer["learned"]) == ("settled", True), (body, answer)
                settled.add(name)
    return settled


def test_every_campaign_decides_and_settles_what_was_open(path, capsys):
    waiting = {
        name for (name,) in queried(path, "SELECT id FROM campaign JOIN hold ON hold.campaign = campaign.number")
    }
    ((before,),) = queried(path, "SELECT count(*) FROM decision")
    with serving(path) as client:
        reasons = decide_once_more(path, client)
        assert settle_what_is_open(path, client) >= waiting
    expected = {"paused": "paused", "archived": "archived", "ended": "ended", "shadow": "shadow"}
    assert {name: reasons[name] for name in expected} == expected
    assert set(reasons.values()) <= {*expected.values(), "policy", "holdout", "budget_exhausted"}
    assert len(waiting) > 25
    assert queried(path, "SELECT count(*) FROM hold") == [(0,)]
    unlogged = sum(reason in ("paused", "archived", "ended") for reason in reasons.values())
    assert assert_log_holds(path, capsys) == before + len(reasons) - unlogged


def test_after_pruning_accounts_replay_and_decisions_still_hold(path, capsys):
    ((before,),) = queried(path, "SELECT count(*) FROM decision")
    pruned = run(path, capsys, "prune", "--before", LATER)
    ((after,),) = queried(path, "SELECT count(*) FROM decision")
    assert sum(one["decisions"] for one in pruned) == before - after > 400
    assert_log_holds(path, capsys)
    with serving(path) as client:
        decide_once_more(path, client)
        settle_what_is_open(path, client)
    assert assert_log_holds(path, capsys) > 20
