"""Expiry goes on whatever fails: a table that is away for a moment, a campaign whose holds cannot expire."""

import asyncio

import pytest
from sqlalchemy import select, text, update

from service.engine.commands import CreateCampaign, Decide, Expire
from service.store import tables
from tests.service.conditions import until
from tests.service.databases import make_holds_due
from tests.service.engine.campaigns import config, rows, running
from tests.service.http_client import served


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("service.engine.engine.EXPIRE_EVERY_SECONDS", 0.02)
    monkeypatch.setattr("service.engine.transaction.EXPIRE_AGAIN_SECONDS", 0.2)


def held(database):
    """The numbers of the campaigns that have open holds."""
    with database.read() as connection:
        return {*connection.execute(select(tables.hold.c.campaign)).scalars()}


async def create_and_decide(engine, *names):
    for name in names:
        await engine.submit(CreateCampaign(config(name)))
        await engine.submit(Decide(name, "d", [0.3, 0.6]))


@pytest.mark.parametrize("table", ["hold", "outcome"])
def test_expiry_goes_on_after_a_table_was_away(database, logged, table):
    async def play():
        async with running(database) as engine:
            await create_and_decide(engine, "c")
            with database.write() as connection:  # in one transaction, or the hold could expire in between
                for one in (tables.hold, tables.decision):
                    connection.execute(one.update().values(expires_at=1))
                connection.execute(text(f"ALTER TABLE {table} RENAME TO away"))
            await until(lambda: any(line["event"] == "command failed" for line in logged()), "expiry has failed")
            assert engine.is_whole
            with database.write() as connection:
                connection.execute(text(f"ALTER TABLE away RENAME TO {table}"))
            await until(lambda: not rows(database, tables.hold), "the hold has expired")

    asyncio.run(play())
    assert [row["kind"] for row in rows(database, tables.outcome)] == ["expired"]


def damage_config(database, number):
    with database.write() as connection:
        connection.execute(update(tables.config).where(tables.config.c.campaign == number).values(body="{"))


def move_one_hold_only(database, number):
    with database.write() as connection:
        connection.execute(update(tables.hold).where(tables.hold.c.campaign == number).values(expires_at=2))


@pytest.mark.parametrize("poison", [damage_config, move_one_hold_only])
def test_a_hold_that_cannot_expire_stops_only_its_own_campaign(database, logged, poison):
    async def play():
        async with running(database) as engine:
            await create_and_decide(engine, "first", "second", "third")
        async with running(database) as engine:  # which remembers no campaign
            make_holds_due(database)
            poison(database, 1)
            await until(lambda: held(database) == {1}, "the other campaigns' holds have expired")
            await create_and_decide(engine, "fourth")
            make_holds_due(database)
            poison(database, 1)
            await until(lambda: held(database) == {1}, "later holds expire, too")

    asyncio.run(play())
    failed = [line for line in logged() if line["event"] == "the holds of a campaign cannot expire"]
    assert {line["campaign"] for line in failed} == {1}


def test_a_campaign_whose_holds_cannot_expire_is_tried_alone_and_fails_no_other_again(database, logged, monkeypatch):
    monkeypatch.setattr("service.engine.transaction.EXPIRE_AGAIN_SECONDS", 0.05)

    lines = []

    def failures(event):
        lines.extend(logged())  # which returns each line once
        return sum(line["event"] == event for line in lines)

    async def play():
        async with running(database) as engine:
            await create_and_decide(engine, "first", "second")
        make_holds_due(database)
        for number in (1, 2):
            move_one_hold_only(database, number)
        async with running(database):
            await until(lambda: failures("the holds of a campaign cannot expire") >= 5, "both were tried again")

    asyncio.run(play())
    joint = failures("command failed") - failures("the holds of a campaign cannot expire")
    assert joint in (1, 2), "on a slow machine the first joint one finds time for one campaign only"
    assert held(database) == {1, 2}


def test_campaigns_that_expire_one_by_one_leave_the_rest_to_the_next_expiry(database, monkeypatch):
    monkeypatch.setattr("service.engine.engine.EXPIRE_EVERY_SECONDS", 3600.0)
    monkeypatch.setattr("service.engine.batch.EXPIRE_ALONE_SECONDS", 0.0)
    monkeypatch.setattr("service.engine.transaction.EXPIRE_AGAIN_SECONDS", 3600.0)
    left = []

    async def play():
        async with running(database) as engine:
            await create_and_decide(engine, "first", "second", "third", "fourth")
            for turn in range(4):
                make_holds_due(database)
                move_one_hold_only(database, 3)
                await engine.submit(Expire())
                left.append(held(database))
                if turn == 0:  # the first campaign has an overdue hold again, and the second has its turn
                    await engine.submit(Decide("first", "later", [0.3, 0.6]))

    asyncio.run(play())
    assert left == [{2, 3, 4}, {1, 3, 4}, {1, 3, 4}, {3}]  # the third fails alone, and the others expire together


def test_the_age_of_the_oldest_overdue_hold_is_a_gauge(database, monkeypatch):
    monkeypatch.setattr("service.engine.engine.EXPIRE_EVERY_SECONDS", 3600.0)

    def overdue(client):
        lines = client("GET", "/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("cbwk_overdue_hold_seconds "))

    with served(database) as client:
        assert overdue(client) == 0.0
        client.runner.run(create_and_decide(client.app.state.engine, "c"))
        assert overdue(client) == 0.0
        with database.write() as connection:
            since = database.now_micros(connection) - 90_000_000
            connection.execute(update(tables.hold).values(expires_at=since))
        assert 90.0 <= overdue(client) < 110.0


@pytest.mark.parametrize("part", range(3))
def test_a_process_with_a_dead_background_task_is_not_ready(database, part):
    with served(database) as client:
        assert client("GET", "/readyz").status_code == 200

        async def end_one():
            engine = client.app.state.engine
            client.app.state.tasks.append(asyncio.create_task(asyncio.sleep(3600)))
            task = [*engine._tasks, *client.app.state.tasks][part]
            task.cancel()
            await asyncio.wait([task])

        client.runner.run(end_one())
        answer = client("GET", "/readyz")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:cbwk:problem:not-ready")
