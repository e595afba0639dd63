"""Every decision follows from the log."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from sqlalchemy import delete, select, update

from cbwk_core import RULES_KNOWN, RULES_VERSION
from service import reads
from service.engine.commands import CreateCampaign, Decide, Feedback, ImportModel
from service.engine.model_export import exported_model
from service.engine.replay import replay
from service.store import tables
from tests.service.engine.campaigns import config, rows, running
from tests.service.engine.histories import lived

pytestmark = pytest.mark.slow


def replayed(database, number=1):
    """Returns a replay and the progress that it reported."""
    steps = []
    found = replay(database, number, advanced=lambda done, todo: steps.append((done, todo)))
    return found, steps


def play(database, *lives, **changes):
    """Creates a campaign and runs each life in an engine of its own."""

    async def main():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(**{"budget": 60, "horizon": 300} | changes)))
        for life in lives:
            async with running(database) as engine:
                await life(engine)

    asyncio.run(main())


def test_every_decision_of_an_eventful_life_with_a_restart_is_derived_again(database):
    numbers = count()
    play(database, lambda engine: lived(engine, numbers=numbers, rounds=2), lambda engine: decide_and_learn(engine, 20))
    found, steps = replayed(database)
    assert found.difference is None
    assert found.decisions == len(rows(database, tables.decision)) > 60
    assert steps[-1] == (found.through, found.through)
    assert len({row["place"] for row in rows(database, tables.decision)}) == 12


async def decide_and_learn(engine, many, prefix="e"):
    for number in range(many):
        answer = await engine.submit(Decide("c", f"{prefix}{number}", [0.2, number / many]))
        if answer.body["arm"] is not None:
            await engine.submit(Feedback("c", f"{prefix}{number}", reward=number % 2, costs={"usd": 0.2}))


@pytest.mark.parametrize("rules", RULES_KNOWN[:-1])
@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_campaign_goes_on_by_its_rules_after_an_upgrade_and_replays_to_the_end(database, monkeypatch, rules):
    numbers, newest = count(), "service.engine.administer.RULES_VERSION"
    monkeypatch.setattr(newest, rules)

    async def upgraded(engine):
        monkeypatch.setattr(newest, RULES_VERSION)
        await decide_and_learn(engine, 20)

    play(database, lambda engine: lived(engine, numbers=numbers, rounds=2), upgraded)
    found, steps = replayed(database)
    assert (found.difference, found.rules) == (None, rules)
    assert found.decisions == len(rows(database, tables.decision)) > 60
    assert steps[-1] == (found.through, found.through)


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_other_presets_replay_too(database, preset):
    policy = config()["policy"] | {"preset": preset}
    play(database, lived, policy=policy)
    assert replayed(database)[0].difference is None


def test_requests_with_their_own_actions_replay(database):
    shared = {"model": "shared", "arm_features": {"dimension": 1, "features": None}, "arms": []}

    async def life(engine):
        for number in range(12):
            actions = [{"id": f"x{arm}", "features": [arm / 3]} for arm in range(2 + number % 2)]
            exclude = ["x0"] if number % 5 == 0 else []
            answer = await engine.submit(Decide("c", f"d{number}", [0.5, 0.1], exclude=exclude, actions=actions))
            if answer.body["arm"] is not None:
                await engine.submit(Feedback("c", f"d{number}", reward=1, costs={"usd": 0.5}))

    play(database, life, **shared)
    found, _ = replayed(database)
    assert (found.difference, found.decisions) == (None, 12)


def test_what_follows_an_imported_model_replays(database):
    async def life(engine):
        await decide_and_learn(engine, 10)
        with database.read() as connection:
            data = exported_model(connection, "c").data
        await decide_and_learn(engine, 10, "f")
        with database.read() as connection:
            fitting = reads.fitting_model(connection, "c", data)
        await engine.submit(ImportModel("c", *fitting, data))
        await decide_and_learn(engine, 10, "g")

    play(database, life)
    found, _ = replayed(database)
    assert (found.difference, found.decisions) == (None, 30)
    versions = [row["policy_version"] for row in rows(database, tables.decision)]
    assert versions[20] < versions[19]


def test_a_horizon_that_is_estimated_on_the_way_replays(database):
    async def life(engine):
        for start in range(0, 1200, 300):
            asked = [Decide("c", f"d{number}", [0.2, number / 1200]) for number in range(start, start + 300)]
            await engine.submit_together(asked)

    play(database, life, horizon=None, ends_at="2100-01-01T00:00:00Z")
    found, _ = replayed(database)
    assert (found.difference, found.decisions) == (None, 1200)
    assert "estimate" in {row["kind"] for row in rows(database, tables.change)}


def chosen(database):
    """Returns a decision in the middle that the policy made for an arm."""
    real = [row for row in rows(database, tables.decision) if row["arm"] == 0 and row["probability"] < 1]
    return real[len(real) // 2]


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("arm", lambda row: 1),
        ("probability", lambda row: row["probability"] * (1 - 1e-6)),
        ("reason", lambda row: "other"),
    ],
)
def test_a_column_that_was_changed_is_found_and_named(database, what, changed):
    play(database, lived)
    row, table = chosen(database), tables.decision
    with database.write() as connection:
        connection.execute(update(table).where(table.c.sequence == row["sequence"]).values({what: changed(row)}))
    difference = replayed(database)[0].difference
    assert (difference.sequence, difference.decision_id, difference.what) == (row["sequence"], row["decision_id"], what)
    assert difference.derived == pytest.approx(row[what])


def test_an_outcome_that_was_changed_shows_in_a_later_decision(database):
    play(database, lived)
    table = tables.outcome
    with database.write() as connection:
        learnt = select(table.c.sequence).where(table.c.taught.is_not(None)).limit(1)
        first = connection.execute(learnt).scalar_one()
        connection.execute(update(table).where(table.c.sequence == first).values(taught="[0.5,900000,0]"))
    assert replayed(database)[0].difference.sequence > first


def test_a_row_that_is_missing_is_found(database):
    play(database, lived)
    row, table = chosen(database), tables.outcome
    with database.write() as connection:
        gone = select(table.c.sequence).where(table.c.decision == row["sequence"]).limit(1)
        sequence = connection.execute(gone).scalar_one()
        connection.execute(delete(table).where(table.c.sequence == sequence))
    assert replayed(database)[0].difference.sequence == sequence
