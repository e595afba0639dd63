"""Imported models: every process continues from them, whatever it has cached and however it was stopped."""

from __future__ import annotations

import asyncio
import json

import pytest

from service import reads
from service.engine.commands import CreateCampaign, Decide, Feedback, ImportModel, PatchCampaign
from service.engine.model_export import exported_model
from service.problems import Conflict
from service.store import tables
from tests.service.engine.campaigns import config, rows, running

CONTEXTS = ([0.1, 0.9], [0.5, 0.5], [0.8, 0.2])


def predictions(body):
    return [(arm["id"], arm["reward"], arm["cost"]) for arm in body["arms"]]


async def thoughts(engine, name, tag):
    """Returns an engine's predictions for a few contexts."""
    answers = [
        await engine.submit(Decide(name, f"{tag}-{index}", context, explain=True))
        for index, context in enumerate(CONTEXTS)
    ]
    return [predictions(answer.body) for answer in answers]


async def play(engine, name, tag, count, *, reward=1.0):
    for i in range(count):
        decision_id = f"{tag}{i}"
        answer = await engine.submit(Decide(name, decision_id, [i / count, 0.5]))
        if answer.body["arm"] is not None:
            costs = {"usd": 0.1 * (i % 5), "impressions": 1}
            await engine.submit(Feedback(name, decision_id, reward=reward * (i % 2), costs=costs))


def exported(database, name):
    with database.read() as connection:
        return exported_model(connection, name)


def importing(database, name, data):
    with database.read() as connection:
        return ImportModel(name, *reads.fitting_model(connection, name, data), data, "somebody")


async def made(engine, *names):
    for budget, name in enumerate(names, start=100):
        await engine.submit(CreateCampaign(config(name, budget=budget)))


def test_what_follows_an_import_is_the_same_in_memory_in_other_engines_after_eviction_and_from_the_log(database):
    async def main():
        async with (
            running(database) as here,
            running(database) as there,
            running(database, memory_bytes_max=1) as forgetful,
        ):
            await made(here, "a", "b")
            await play(here, "a", "a", 30)
            await play(here, "b", "b", 12, reward=0.2)
            await here.submit(Decide("b", "open", [0.4, 0.4]))
            before = await thoughts(there, "b", "warm")
            answer = await here.submit(importing(database, "b", exported(database, "a").data))
            source = await thoughts(here, "a", "source")
            seen = [await thoughts(engine, "b", f"after{n}") for n, engine in enumerate((here, there, forgetful))]
            # Decisions made before the import still teach; then the campaign changes its shape.
            await there.submit(Feedback("b", "open", reward=1.0, costs={"usd": 0.4}))
            await play(here, "b", "more", 10)
            await here.submit(PatchCampaign("b", {"add_arms": [{"id": "n"}]}))
            await play(there, "b", "last", 10)
            await thoughts(forgetful, "a", "elsewhere")
            later = [await thoughts(engine, "b", f"later{n}") for n, engine in enumerate((here, there, forgetful))]
            async with running(database) as cold:
                later.append(await thoughts(cold, "b", "cold"))
            return answer.body, before, source, seen, later

    answer, before, source, seen, later = asyncio.run(main())
    assert (answer["model_version"], answer["policy_version"]) == (2, exported(database, "a").policy_version)
    assert seen == [source] * 3
    assert before != source
    assert later == [later[0]] * 4
    assert later[0] != source
    assert len(later[0][0]) == 3


def test_an_import_is_one_change_with_its_bytes_and_an_audit_and_leaves_round_and_accounts_alone(database):
    async def main():
        async with running(database) as engine:
            await made(engine, "a", "b")
            await play(engine, "a", "a", 10)
            await play(engine, "b", "b", 4)
            before = rows(database, tables.campaign_state)[1]
            data = exported(database, "a").data
            await engine.submit(importing(database, "b", data))
            return before, rows(database, tables.campaign_state)[1], data

    before, after, data = asyncio.run(main())
    assert (before["model_version"], after["model_version"]) == (1, 2)
    assert (after["round"], after["sequence"]) == (before["round"], before["sequence"] + 1)
    assert exported(database, "b").data == data
    (change,) = rows(database, tables.change)
    assert (change["kind"], change["model"], change["sequence"]) == ("model", data, after["sequence"])
    audit = rows(database, tables.audit)[-1]
    assert (audit["actor"], audit["action"], audit["campaign_id"]) == ("somebody", "campaign.model", "b")
    assert json.loads(audit["body"])["bytes"] == len(data)
    with database.read() as connection:
        assert reads.verify(connection, "b")["ok"]
        assert reads.campaign(connection, "b")["policy_version"] == exported(database, "a").policy_version


def test_a_snapshot_of_a_model_that_was_replaced_is_not_used(database):
    async def main():
        async with running(database) as engine:  # its stop writes snapshots
            await made(engine, "a", "b")
            await play(engine, "a", "a", 20)
            await play(engine, "b", "b", 20, reward=0.1)
        async with running(database) as engine:
            await engine.submit(importing(database, "b", exported(database, "a").data))
            source = await thoughts(engine, "a", "source")
        async with running(database) as engine:
            return source, await thoughts(engine, "b", "after")

    source, after = asyncio.run(main())
    assert {row["model_version"] for row in rows(database, tables.snapshot) if row["campaign"] == 2} == {1}
    assert after == source


def test_a_campaign_that_gets_an_arm_between_the_check_of_a_model_and_its_import_keeps_its_own(database):
    async def main():
        async with running(database) as engine:
            await made(engine, "a")
            await play(engine, "a", "a", 5)
            command = importing(database, "a", exported(database, "a").data)
            await engine.submit(PatchCampaign("a", {"add_arms": [{"id": "n"}]}))
            before = exported(database, "a").data
            with pytest.raises(Conflict):
                await engine.submit(command)
            return before

    before = asyncio.run(main())
    assert exported(database, "a").data == before
    assert rows(database, tables.campaign_state)[0]["model_version"] == 1
