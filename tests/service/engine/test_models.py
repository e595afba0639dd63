"""Imported models: every process continues from them, whatever it has cached and however it was stopped."""

from __future__ import annotations

import asyncio
import json

import pytest

from service import reads
from service.engine.commands import CreateCampaign, Decide, Feedback, ImportModel, PatchCampaign
from service.engine.model_export import exported_model
from service.engine.replay import replay
from service.evaluation.log_import import trained_model
from service.problems import Conflict, Invalid
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


async def raised(engine, name, **changes):
    """Makes a campaign that has learnt, and doubles all its max costs: what it has learnt keeps its units."""
    await engine.submit(CreateCampaign(config(name, **changes)))
    await play(engine, name, name, 30)
    resources = [{"id": "usd", "max_cost": 2}, {"id": "impressions", "max_cost": 2}]
    await engine.submit(PatchCampaign(name, {"resources": resources}))
    await play(engine, name, f"{name}-later", 10)


def doubled(name, **changes):
    """A campaign that is made with the max costs that `raised` ends with."""
    made = config(name, budget=200, max_cost=2, **changes)
    made["resources"][1]["max_cost"] = 2
    return made


def test_a_model_of_a_campaign_whose_max_costs_changed_predicts_the_same_costs_elsewhere(database):
    async def main():
        async with running(database) as engine:
            await raised(engine, "a")
            await engine.submit(CreateCampaign(doubled("b")))
            await play(engine, "b", "b", 5)
            await engine.submit(importing(database, "b", exported(database, "a").data))
            source, after = await thoughts(engine, "a", "source"), await thoughts(engine, "b", "after")
            await play(engine, "b", "more", 10)
        async with running(database, memory_bytes_max=1) as cold:
            later = [await thoughts(engine, "b", f"later{n}") for n, engine in enumerate((cold, cold))]
            return source, after, later

    source, after, later = asyncio.run(main())
    for one, other in zip(source, after, strict=True):
        for (_, reward, cost), (_, same_reward, same_cost) in zip(one, other, strict=True):
            assert (same_reward, same_cost) == (pytest.approx(reward), pytest.approx(cost))
    assert later[0] == later[1] != after
    with database.read() as connection:
        assert reads.verify(connection, "b")["ok"]
    assert replay(database, 2, advanced=lambda *_: None).difference is None


def test_a_model_whose_units_cannot_be_converted_is_refused_with_both(database):
    logistic = config()["policy"] | {"oracle": {"kind": "newton", "link": "logistic", "forgetting": None}}

    async def main():
        async with running(database) as engine:
            await raised(engine, "a", policy=logistic)
            await engine.submit(CreateCampaign(doubled("b", policy=logistic)))
            uneven = config("c", arms=[{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.5}}])
            await engine.submit(CreateCampaign(uneven))
            await made(engine, "d")

    asyncio.run(main())
    with pytest.raises(Invalid) as caught:
        importing(database, "b", exported(database, "a").data)
    assert caught.value.extensions["errors"] == [{"field": "unit", "message": "must be [2.0, 2.0], got [1.0, 1.0]"}]
    with pytest.raises(Invalid) as caught:
        importing(database, "d", exported(database, "c").data)
    wanted = [{"field": "arm_unit[1]", "message": "must be [1.0, 1.0], got [0.5, 1.0]"}]
    assert caught.value.extensions["errors"] == wanted
    assert caught.value.kind == "invalid-model"
    assert importing(database, "a", exported(database, "a").data).model.learnt > 0


def test_a_log_teaches_a_campaign_whose_max_costs_changed_in_the_units_of_its_model(database):
    async def main():
        async with running(database) as engine:
            await raised(engine, "a")

    asyncio.run(main())
    with database.read() as connection:
        found = reads.campaign(connection, "a")
    row = {"context": [0.5, 0.5], "arm": "a", "reward": 0.5, "costs": {"usd": 0.6, "impressions": 1}}
    lines = [json.dumps(row).encode()] * 500
    data, _ = trained_model(found["config"] | {"rules": found["rules"]}, exported(database, "a").data, lines)

    async def after():
        async with running(database) as engine:
            await engine.submit(importing(database, "a", data))
            answer = await engine.submit(Decide("a", "d", [0.5, 0.5], explain=True))
            return answer.body["arms"][0]["cost"]

    assert asyncio.run(after())["usd"] == pytest.approx(0.6, abs=0.02)
