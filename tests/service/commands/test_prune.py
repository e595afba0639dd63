"""`cbwk prune` and `cbwk replay` on the database itself, next to servers and with kill -9."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time

import pytest
from sqlalchemy import create_engine, func, select, update
from sqlalchemy.pool import NullPool

from service.cli import main
from service.engine.commands import CreateCampaign, Decide, Feedback
from service.store import tables
from service.store.database import Database
from tests.service.engine.campaigns import config, running
from tests.service.http_calls import account, calls, decide_body, failed_checks
from tests.service.server_process import CBWK, running_server

pytestmark = pytest.mark.slow

MANY = 1_300
TOGETHER = 500
TOMORROW = "2100-01-01"
KILL_SECONDS_MAX = 60


@pytest.fixture
def url(migrated_url):
    """A database with two campaigns whose decisions are all settled."""
    with Database.open(migrated_url) as database:
        asyncio.run(settled(database, 20))
    return migrated_url


@pytest.fixture
def long_url(migrated_url):
    """A database with a campaign of many settled decisions."""
    with Database.open(migrated_url) as database:
        asyncio.run(settled(database, MANY, names=("c",)))
    return migrated_url


async def settled(database, many, names=("c", "other")):
    async with running(database) as engine:
        for name in names:
            await engine.submit(CreateCampaign(config(name, budget=3 * many, horizon=2 * many)))
            for start in range(0, many, TOGETHER):
                ids = [f"d{number}" for number in range(start, min(start + TOGETHER, many))]
                answers = await engine.submit_together([Decide(name, each, [0.3, 0.6]) for each in ids])
                plays = [each for each, answer in zip(ids, answers, strict=True) if answer.body["arm"] is not None]
                reports = [Feedback(name, each, reward=1, costs={"usd": 0.5}) for each in plays]
                await engine.submit_together(reports)


def counted(url, table=tables.decision):
    """Returns the number of rows of a table, read without the lock on the database."""
    driver = url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(driver, poolclass=NullPool)
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def test_a_dry_run_shows_what_prune_deletes(url, capsys):
    assert main(["prune", "c", "--before", TOMORROW, "--dry-run", "--json", "--database-url", url]) == 0
    (would,) = json.loads(capsys.readouterr().out)
    assert (would["campaign_id"], would["decisions"]) == ("c", 19)
    assert counted(url) == 40
    assert main(["prune", "--before", TOMORROW, "--database-url", url]) == 0
    shown = capsys.readouterr().out
    assert "decisions deleted" in shown
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [["c", "19"], ["other", "19"]]
    assert counted(url) == 2
    for command in ("verify", "replay"):
        assert main([command, "--database-url", url]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "c: 0 decisions after number 42 follow from the log",
        "other: 0 decisions after number 42 follow from the log",
    ]


def test_nothing_older_than_the_time_means_that_nothing_changes(url, capsys):
    assert main(["prune", "--before", "2001-01-01T00:00:00+01:00", "--json", "--database-url", url]) == 0
    assert [item["decisions"] for item in json.loads(capsys.readouterr().out)] == [0, 0]
    assert counted(url, tables.opening) == 0


@pytest.mark.parametrize("before", ["yesterday", "2026-11-16T10:00:00", "2026-13-45"])
def test_a_time_that_cannot_be_read_is_one_line(before, capsys):
    assert main(["prune", "--before", before]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--before" in line


def test_an_unknown_campaign_is_one_line(url, capsys):
    for command in (["prune", "--before", TOMORROW], ["replay"]):
        assert main([*command, "nobody", "--database-url", url]) == 1
        assert capsys.readouterr().err == 'cbwk: there is no campaign "nobody"\n'


def test_a_replay_names_the_first_decision_that_differs(url, capsys):
    assert main(["replay", "--database-url", url]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "c: 20 decisions follow from the log",
        "other: 20 decisions follow from the log",
    ]
    decision = tables.decision
    with Database.open(url) as database, database.write() as connection:
        where = (decision.c.campaign == 2, decision.c.decision_id == "d7")
        connection.execute(update(decision).where(*where).values(probability=0.125))
    assert main(["replay", "--database-url", url]) == 1
    assert "decision d7, number" in capsys.readouterr().out
    assert main(["replay", "--json", "--database-url", url]) == 1
    one, two = json.loads(capsys.readouterr().out)
    assert (one["ok"], two["ok"]) == (True, False)
    assert (two["difference"]["what"], two["difference"]["logged"]) == ("probability", 0.125)


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_kill_9_in_the_middle_leaves_everything_right(long_url, capsys):
    command = [str(CBWK), "prune", "--before", TOMORROW, "--database-url", long_url]
    deadline = time.monotonic() + KILL_SECONDS_MAX
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while counted(long_url) == MANY:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
        process.kill()
    left = counted(long_url)
    assert left < MANY
    for command in ("verify", "replay"):
        assert main([command, "--database-url", long_url]) == 0
    assert main(["prune", "--before", TOMORROW, "--json", "--database-url", long_url]) == 0
    gone = json.loads(capsys.readouterr().out.splitlines()[-1])[0]["decisions"]
    assert (gone, counted(long_url)) == (left - 1, 1)
    with running_server(database_url=long_url) as server, calls(server) as client:
        assert failed_checks(client) == []
        answer = client.post("/decide", json=decide_body("next")).json()
        assert answer["round"] == MANY
        assert client.get("/campaigns/c").json()["policy_version"] == answer["policy_version"] > 0
        unknown = {"campaign_id": "c", "decision_id": "d1", "reward": 1}
        assert client.post("/feedback", json=unknown).status_code == 404
        assert account(client)["spent"] == pytest.approx(0.5 * answer["policy_version"])


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_file_that_a_server_has_is_refused_with_one_line(url, capsys):
    with running_server(database_url=url):
        assert main(["prune", "--before", TOMORROW, "--database-url", url]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("cbwk: another process uses ")


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_a_server_decides_and_learns_while_its_campaign_is_pruned(long_url):
    with running_server(database_url=long_url) as server, calls(server) as client:
        command = [str(CBWK), "prune", "--before", TOMORROW, "--database-url", long_url]
        pruning = subprocess.Popen(command)
        answers = 0
        while pruning.poll() is None:
            answer = client.post("/decide", json=decide_body(f"n{answers}"))
            assert answer.status_code == 200, answer.text
            if answer.json()["arm"] is not None:
                report = {"campaign_id": "c", "decision_id": f"n{answers}", "reward": 1, "costs": {"usd": 0.5}}
                assert client.post("/feedback", json=report).status_code == 200
            answers += 1
        assert pruning.returncode == 0
        assert answers > 0
        assert failed_checks(client) == []
        assert counted(long_url) < MANY
    assert main(["replay", "--database-url", long_url]) == 0
