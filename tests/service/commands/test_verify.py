"""`cbwk verify`, which opens the database itself."""

import asyncio
import json

import pytest
from sqlalchemy import update

from service.cli import main
from service.engine.commands import CreateCampaign, CreatePortfolio, Decide
from service.store import tables
from service.store.database import Database
from tests.service.engine.campaigns import config, running

USD = {"id": "usd", "budget": 5, "windows": []}


@pytest.fixture
def url(migrated_url):
    """A database with two campaigns, each with a hold or two."""

    async def play(database):
        async with running(database) as engine:
            for name in ("one", "two"):
                await engine.submit(CreateCampaign(config(name)))
                for number in range(3):
                    await engine.submit(Decide(name, f"d{number}", [0.1, 0.2]))

    with Database.open(migrated_url) as database:
        asyncio.run(play(database))
    return migrated_url


def spoil(url):
    """Makes the account of the second campaign differ from the log."""
    with Database.open(url) as database, database.write() as connection:
        account = tables.account
        where = (account.c.campaign == 2, account.c.resource == 0)
        connection.execute(update(account).where(*where).values(spent=account.c.spent + 1_000_000))


def test_correct_accounts_pass(url, capsys):
    assert main(["verify", "--database-url", url]) == 0
    one, two = capsys.readouterr().out.splitlines()
    assert one.startswith("one: ")
    assert two.startswith("two: ")
    assert main(["verify", "two", "--json", "--database-url", url]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["campaign_id"], found["ok"]) == ("two", True)
    assert found["checks"]


def test_an_account_that_differs_from_the_log_is_named_and_the_exit_code_is_1(url, capsys):
    spoil(url)
    assert main(["verify", "--database-url", url]) == 1
    assert "  spent of usd: the log says 0, found 1\n" in capsys.readouterr().out
    assert main(["verify", "--json", "--database-url", url]) == 1
    assert [report["ok"] for report in json.loads(capsys.readouterr().out)] == [True, False]
    assert main(["verify", "one", "--database-url", url]) == 0


def test_an_unknown_campaign_is_one_line(url, capsys):
    assert main(["verify", "three", "--database-url", url]) == 1
    assert capsys.readouterr().err == 'cbwk: there is no campaign "three"\n'


def test_a_database_without_campaigns_says_so(migrated_url, capsys):
    assert main(["verify", "--database-url", migrated_url]) == 0
    assert capsys.readouterr().out == "there are no campaigns\n"


def test_portfolios_are_verified_after_the_campaigns(url, capsys):
    async def play(database):
        async with running(database) as engine:
            await engine.submit(CreatePortfolio({"id": "acme", "timezone": "UTC", "resources": [USD]}))
            await engine.submit(CreateCampaign(config("three", portfolio="acme")))
            await engine.submit(Decide("three", "d", [0.1, 0.2]))

    with Database.open(url) as database:
        asyncio.run(play(database))
    assert main(["verify", "--database-url", url]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("portfolio acme: ")
    assert main(["verify", "--json", "--database-url", url]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["portfolio_id"] == "acme"
