"""A campaign keeps the version of the rules it was made with; a version that is not known is refused."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import contextmanager

import pytest
from sqlalchemy import select, update

from cbwk_core import RULES_VERSION
from service.cli import main
from service.engine import cache as memory
from service.engine.commands import CreateCampaign, Decide, Feedback
from service.problems import UnknownRules
from service.store import tables
from service.store.database import Database
from tests.service.databases import make_holds_due
from tests.service.engine.campaigns import config, running
from tests.service.http_calls import at_once, calls, campaign, create, decide_body
from tests.service.server_process import running_server

UNKNOWN = 99
STOP_SECONDS_MAX = 20.0
EXPIRE_SECONDS_MAX = 10.0


@contextmanager
def serving(url):
    """A server and its client; the server stops in good order afterwards."""
    with running_server(database_url=url) as server, calls(server) as client:
        yield server, client
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(STOP_SECONDS_MAX) == 0


def stored_rules(url, name):
    """The version in each stored configuration of a campaign, oldest first."""
    stored = tables.config
    query = select(stored.c.body).join(tables.campaign, tables.campaign.c.number == stored.c.campaign)
    with Database.open(url) as database, database.read() as connection:
        found = connection.execute(query.where(tables.campaign.c.id == name).order_by(stored.c.version)).scalars()
        return [json.loads(body).get("rules") for body in found]


def set_rules(database, number, version):
    """Let a version of the service that is yet to come have made the campaign."""
    stored = tables.config
    with database.write() as connection:
        for row in connection.execute(select(stored).where(stored.c.campaign == number)).all():
            where = (stored.c.campaign == number, stored.c.version == row.version)
            body = json.dumps(json.loads(row.body) | {"rules": version})
            connection.execute(update(stored).where(*where).values(body=body))


async def play(database):
    """Make the campaigns "known" and "newer", each with three decisions of which one is settled."""
    async with running(database) as engine:
        for name in ("known", "newer"):
            await engine.submit(CreateCampaign(config(name)))
            for number in range(3):
                assert (await engine.submit(Decide(name, f"d{number}", [0.3, 0.6]))).body["arm"] is not None
            await engine.submit(Feedback(name, "d0", reward=1, costs={"usd": 0.5}))


@pytest.fixture
def url(migrated_url):
    """A database in which nobody knows the rules of "newer"."""
    with Database.open(migrated_url) as database:
        asyncio.run(play(database))
        set_rules(database, 2, UNKNOWN)
    return migrated_url


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_campaign_is_made_with_the_newest_rules_and_keeps_them(migrated_url):
    with serving(migrated_url) as (_, client):
        create(client, campaign())
        assert client.post("/campaigns", json=campaign("other", rules=1)).status_code == 422
        changed = client.patch("/campaigns/c", json={"horizon": 2000}).json()
        shown = client.get("/campaigns/c").json()
        assert changed["rules"] == shown["rules"] == RULES_VERSION
        create(client, shown["config"] | {"id": "made-of-another"})
    assert stored_rules(migrated_url, "c") == [RULES_VERSION] * 2


def is_refused(answer):
    found = answer.status_code, answer.json().get("type"), str(UNKNOWN) in answer.text
    return found == (503, "urn:cbwk:problem:rules-unknown", True) and "Retry-After" in answer.headers


def open_holds(client, name):
    (held,) = [one["resources"][0]["held"] for one in budgets(client) if one["campaign_id"] == name]
    return held


def budgets(client):
    answer = client.get("/admin/budgets")
    assert answer.status_code == 200
    return answer.json()["items"]


def test_a_campaign_with_unknown_rules_is_refused_and_the_others_go_on(url):
    with serving(url) as (server, client):
        assert is_refused(client.post("/decide", json=decide_body("e0", "newer")))
        batch = {"campaign_id": "newer", "items": [{"context": [0.1, 0.2]}]}
        assert is_refused(client.post("/decide/batch", json=batch))
        report = {"campaign_id": "newer", "decision_id": "d1", "reward": 1, "costs": {}}
        assert is_refused(client.post("/feedback", json=report))
        both = {"items": [report, report | {"campaign_id": "known"}]}
        refused, settled = client.post("/feedback/batch", json=both).json()["results"]
        assert (refused["error"]["type"], settled["status"]) == ("urn:cbwk:problem:rules-unknown", "settled")
        assert is_refused(client.patch("/campaigns/newer", json={"horizon": 2000}))
        assert is_refused(client.get("/admin/campaigns/newer/model"))
        bodies = [decide_body(f"f{number}", name) for number in range(8) for name in ("newer", "known")]
        answers = asyncio.run(at_once([server], "/decide", bodies))
        assert [answer.status for answer in answers] == [503, 200] * 8


def test_a_campaign_with_unknown_rules_is_shown_and_its_holds_stay(url):
    with Database.open(url) as database:
        make_holds_due(database)
    with serving(url) as (_, client):
        deadline = time.monotonic() + EXPIRE_SECONDS_MAX
        while open_holds(client, "known"):
            assert time.monotonic() < deadline, "the holds of the other campaign did not expire"
            time.sleep(0.1)
        assert open_holds(client, "newer") == 2
        assert [one["id"] for one in client.get("/campaigns").json()["items"]] == ["known", "newer"]
        assert client.get("/campaigns/newer").json()["rules"] == UNKNOWN
        assert client.get("/metrics").status_code == 200
        for path in (
            "budget",
            "ledger",
            "verify",
            "timeline",
            "feedback",
            "arms",
            "decisions",
            "decisions/d1",
            "export",
        ):
            assert client.get(f"/admin/campaigns/newer/{path}").status_code == 200, path


def test_replay_counts_decisions_by_unknown_rules_as_not_derived(url, capsys):
    assert main(["replay", "--database-url", url]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "known: 3 decisions follow from the log",
        f"newer: 3 decisions not recomputed: unknown rules (version {UNKNOWN})",
    ]
    assert main(["replay", "--json", "--database-url", url]) == 0
    known, newer = json.loads(capsys.readouterr().out)
    parts = ("ok", "decisions", "not_derived", "rules")
    assert [known[part] for part in parts] == [True, 3, 0, RULES_VERSION]
    assert [newer[part] for part in parts] == [True, 0, 3, UNKNOWN]
    assert main(["verify", "--database-url", url]) == 0


def test_what_has_unknown_rules_is_not_pruned(url, capsys):
    assert main(["prune", "newer", "--before", "2100-01-01", "--database-url", url]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cbwk: newer cannot be pruned: the campaign has version 99 of the rules")
    assert main(["prune", "known", "--before", "2100-01-01", "--database-url", url]) == 0
    assert main(["replay", "--database-url", url]) == 0


def test_a_campaign_far_behind_its_log_is_refused_too(database, monkeypatch):
    async def play():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config()))
            await engine.submit(Decide("c", "d0", [0.1, 0.2]))
        set_rules(database, 1, UNKNOWN)
        monkeypatch.setattr(memory, "BEHIND_ROWS_MAX", 0)
        async with running(database) as engine:
            with pytest.raises(UnknownRules):
                await engine.submit(Decide("c", "d1", [0.1, 0.2]))

    asyncio.run(play())
