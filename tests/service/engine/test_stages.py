"""Two stages: stage one survives restarts, one of several processes ends it, and play equals that of the library."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import numpy as np
import pytest

from cbwk_core import NULL_ARM, SquareCBwK, two_stage
from service import reads
from service.domain.campaign import Campaign
from service.engine import stage_one
from service.engine.commands import CreateCampaign, Decide, Expire, Feedback, ImportModel, PatchCampaign
from service.engine.model_export import exported_model
from service.engine.replay import replay
from service.problems import Conflict
from service.store import tables
from service.store.database import Database
from tests.service.conditions import until
from tests.service.databases import make_holds_due
from tests.service.engine.campaigns import config, rows, running
from tests.service.engine.staged import (
    ARMS,
    BUDGET,
    DRAWN,
    HORIZON,
    LAST,
    ONE,
    T0,
    assert_equal_play,
    context_of,
    library_play,
    reward_of,
    staged,
    usd_of,
)

pytestmark = pytest.mark.slow


async def report(engine, i, body, **halves):
    arm = ARMS[body["arm"]]
    if arm == NULL_ARM:
        return
    whole = {"reward": reward_of(i, arm), "costs": {"usd": usd_of(i, arm) / ONE, "impressions": 1}}
    await engine.submit(Feedback("c", f"d{i}", **(halves or whole)))


async def decide(engine, i):
    return (await engine.submit(Decide("c", f"d{i}", context_of(i)))).body


async def play(engine, start, stop):
    bodies = []
    for i in range(start, stop):
        bodies.append(await decide(engine, i))
        await report(engine, i, bodies[-1])
    return bodies


async def conclude(engine, database):
    """End stage one now; the engine would do so within a second."""
    found = await asyncio.to_thread(stage_one.conclusion, database, 1)
    return (await engine.submit(found)).body["ended"] if found is not None else None


def stage_changes(database):
    return [row for row in rows(database, tables.change) if row["kind"] == "stage"]


def assert_equal_end(database, state):
    stored = np.frombuffer(rows(database, tables.campaign_state)[0]["books"], dtype="<f8")
    np.testing.assert_allclose(stored, state.books[0], rtol=1e-9, atol=1e-6)
    written = json.loads(stage_changes(database)[0]["body"])["stage"]
    np.testing.assert_allclose(written["radius"], state.stage.radius[0], rtol=1e-9)
    assert (written["running"], written["start"]) == (True, int(state.stage.start[0]))


@pytest.mark.parametrize("preset", ["authors", "paper"])
def test_play_over_both_stages_with_restarts_in_the_middle_is_that_of_the_library(preset, database):
    async def main():
        bodies = []
        # Three processes for stage one, then two for stage two.
        for start, stop in ((0, 20), (20, DRAWN + 5), (DRAWN + 5, LAST)):
            async with running(database) as engine:
                if start == 0:
                    await engine.submit(CreateCampaign(staged(preset)))
                bodies += await play(engine, start, stop)
                if stop == LAST:
                    await conclude(engine, database)
            with database.write() as connection:  # as after a kill
                connection.execute(tables.snapshot.delete())
        for start, stop in ((LAST, 110), (110, 150)):
            async with running(database) as engine:
                bodies += await play(engine, start, stop)
        return bodies

    bodies = asyncio.run(main())
    state, made = library_play(preset, 150)
    assert {body["probability"] for body in bodies[:DRAWN]} == {0.5}
    assert [(body["arm"], body["probability"]) for body in bodies[DRAWN:LAST]] == [(None, 1.0)] * T0
    assert_equal_play(bodies, made)
    assert_equal_end(database, state)
    assert len(stage_changes(database)) == 1
    assert state.stage.radius[0] < HORIZON / BUDGET
    found = replay(database, 1, advanced=lambda done, todo: None)
    assert (found.decisions, found.difference) == (150, None)


def test_voids_and_expiries_in_stage_one_are_waited_for_and_teach_nothing(database):
    cancelled, expired = {3, 11, 12}, {7, 30}
    terms = {"missing_reward": None}

    async def main():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(staged(feedback=terms)))
            bodies = []
            for i in range(LAST):
                bodies.append(await decide(engine, i))
                if i in cancelled:
                    await engine.submit(Feedback("c", f"d{i}", void=True))
                elif i not in expired:
                    await report(engine, i, bodies[-1])
            waiting = await conclude(engine, database), len(stage_changes(database))
        make_holds_due(database)
        async with running(database) as engine:
            await engine.submit(Expire())
            await conclude(engine, database)
            bodies += await play(engine, LAST, LAST + 20)
        return waiting, bodies

    waiting, bodies = asyncio.run(main())
    assert waiting == (None, 0)
    statuses = {row["status"] for row in rows(database, tables.outcome)}
    assert statuses == {"settled", "voided", "expired"}
    with database.read() as connection:
        assert reads.verify(connection, "c")["ok"]
    (change,) = stage_changes(database)
    body = json.loads(change["body"])
    assert body["stage"]["radius"] == pytest.approx(min(1, body["optimum"] + body["margin"]) * HORIZON / BUDGET)
    state, made = library_play("authors", LAST + 20, cancelled=cancelled, expired=expired)
    assert_equal_play(bodies, made)
    assert_equal_end(database, state)


def test_the_sample_of_stage_one_is_the_librarys_for_any_order_of_the_halves(database):
    cancelled = {5, 9}

    async def main():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(staged()))
            for i in range(LAST):
                body = await decide(engine, i)
                if i in cancelled:
                    await engine.submit(Feedback("c", f"d{i}", void=True))
                elif i % 2 and body["arm"] is not None:
                    arm = ARMS[body["arm"]]
                    halves = [
                        {"reward": reward_of(i, arm)},
                        {"costs": {"usd": usd_of(i, arm) / ONE, "impressions": 1}},
                    ]
                    for half in halves if i % 4 == 1 else reversed(halves):
                        await report(engine, i, body, **half)
                else:
                    await report(engine, i, body)
            await conclude(engine, database)

    asyncio.run(main())
    (change,) = stage_changes(database)
    state, _ = library_play("authors", LAST + 1, cancelled=cancelled)
    np.testing.assert_allclose(json.loads(change["body"])["stage"]["radius"], state.stage.radius[0], rtol=1e-9)


def test_before_the_last_outcome_of_stage_one_play_uses_the_widest_radius_and_then_the_engine_ends_the_stage(
    database, monkeypatch
):
    monkeypatch.setattr("service.engine.engine.STAGES_EVERY_SECONDS", 0.02)
    conclusion, conclusions = stage_one.conclusion, []

    def recorded(*arguments):
        conclusions.append(conclusion(*arguments))
        return conclusions[-1]

    monkeypatch.setattr(stage_one, "conclusion", recorded)

    async def main():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(staged()))
            bodies = []
            for i in range(LAST + 5):
                bodies.append(await decide(engine, i))
                if i != 0:
                    await report(engine, i, bodies[-1])
            looks = len(conclusions)
            await until(lambda: len(conclusions) >= looks + 2, "the engine has looked at the stage twice")
            assert set(conclusions) == {None}
            assert stage_changes(database) == []
            await report(engine, 0, bodies[0])
            await until(lambda: stage_changes(database), "the engine has ended the stage")
            return bodies

    bodies = asyncio.run(main())
    assert any(body["arm"] is not None for body in bodies[LAST:])
    (change,) = stage_changes(database)
    assert json.loads(change["body"])["stage"]["start"] == LAST + 5


def test_in_stage_one_neither_the_shape_nor_the_model_may_change_but_the_budget_may(database):
    async def main():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(staged()))
            await play(engine, 0, 10)
            dearer, cheaper = {"id": "usd", "max_cost": 2}, {"id": "a", "max_cost": {"usd": 0.5}}
            shape = {"horizon": 500}, {"add_arms": [{"id": "n"}]}
            for changes in (*shape, {"resources": [dearer]}, {"arms": [cheaper]}):
                with pytest.raises(Conflict, match="stage one"):
                    await engine.submit(PatchCampaign("c", changes))
            with database.read() as connection:
                data = exported_model(connection, "c").data
                fitting = reads.fitting_model(connection, "c", data)
            with pytest.raises(Conflict, match="stage one"):
                await engine.submit(ImportModel("c", *fitting, data))
            richer = {"resources": [{"id": "usd", "budget": BUDGET + 50}]}
            assert (await engine.submit(PatchCampaign("c", richer))).body["version"] == 2
            await play(engine, 10, LAST - 1)
            looking = (await engine.submit(Decide("c", f"d{LAST - 1}", [0.4, 0.4], explain=True))).body
            assert [arm["why_not"] for arm in looking["arms"]] == ["stage_one"] * 2
            await conclude(engine, database)
            await play(engine, LAST, LAST + 10)
            here = (await engine.submit(Decide("c", "x", [0.4, 0.4], explain=True))).body
            async with running(database) as cold:
                there = (await cold.submit(Decide("c", "y", [0.4, 0.4], explain=True))).body
            return here, there

    here, there = asyncio.run(main())
    assert [(arm["reward"], arm["cost"]) for arm in here["arms"]] == [
        (arm["reward"], arm["cost"]) for arm in there["arms"]
    ]
    assert here["gamma"] == there["gamma"]


def test_a_radius_found_for_an_older_configuration_is_dropped(database, monkeypatch):
    monkeypatch.setattr("service.engine.engine.STAGES_EVERY_SECONDS", 3600)

    async def main():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(staged()))
            await play(engine, 0, LAST)
            found = stage_one.conclusion(database, 1)
            await engine.submit(PatchCampaign("c", {"resources": [{"id": "usd", "budget": BUDGET + 50}]}))
            ended = [
                (await engine.submit(one)).body["ended"] for one in (found, stage_one.conclusion(database, 1), found)
            ]
            return ended, found.radius

    ended, radius = asyncio.run(main())
    assert ended == [False, True, False]
    (change,) = stage_changes(database)
    assert json.loads(change["body"])["stage"]["radius"] < radius
    assert stage_one.conclusion(database, 1) is None


def test_actions_are_refused_while_stage_one_explores_the_campaigns_own_arms(database):
    arms = [{"id": "a", "features": [0.1]}, {"id": "b", "features": [0.9]}]
    shared = {"model": "shared", "arms": arms, "arm_features": {"dimension": 1, "features": None}}

    async def main():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(staged(**shared) | {"horizon": 150}))
            actions = [{"id": "x", "features": [0.2]}, {"id": "y", "features": [0.9]}]
            with pytest.raises(Conflict, match="stage one"):
                await engine.submit(Decide("c", "d", [0.3, 0.6], actions=actions))
            return (await engine.submit(Decide("c", "e", [0.3, 0.6]))).body

    assert asyncio.run(main())["probability"] == 0.5


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_of_two_processes_on_one_database_only_one_ends_the_stage_and_both_go_on_from_it(migrated_url, monkeypatch):
    monkeypatch.setattr("service.engine.engine.STAGES_EVERY_SECONDS", 3600)

    async def main(databases):
        async with AsyncExitStack() as stack:
            engines = [await stack.enter_async_context(running(database)) for database in databases]
            await engines[0].submit(CreateCampaign(staged()))
            bodies = []
            for i in range(LAST):
                bodies.append(await decide(engines[i % 2], i))
                await report(engines[(i // 2) % 2], i, bodies[-1])
            found = [await asyncio.to_thread(stage_one.conclusion, database, 1) for database in databases]
            assert found[0] == found[1] is not None
            answers = await asyncio.gather(*(engine.submit(found[0]) for engine in engines))
            for i in range(LAST, LAST + 30):
                bodies.append(await decide(engines[i % 2], i))
                await report(engines[(i // 2) % 2], i, bodies[-1])
            answers += [await engine.submit(found[0]) for engine in engines]
            assert [stage_one.conclusion(database, 1) for database in databases] == [None, None]
            return [answer.body["ended"] for answer in answers], bodies

    with Database.open(migrated_url) as one, Database.open(migrated_url) as other:
        ended, bodies = asyncio.run(main([one, other]))
        assert sorted(ended) == [False, False, False, True]
        state, made = library_play("authors", LAST + 30)
        assert_equal_play(bodies, made)
        assert_equal_end(one, state)
        assert len(stage_changes(one)) == 1


@pytest.mark.parametrize(
    ("preset", "horizon", "budget", "mode"),
    [("paper", 20_000, 40_000, "paper"), ("paper", 20_000, 30_000, "auto"), ("practical", 20_000, 40_000, "auto")],
)
def test_auto_has_two_stages_exactly_where_the_library_has_and_is_shown_as_the_resulting_mode(
    preset, horizon, budget, mode, database
):
    resources = [{"id": name, "budget": budget, "max_cost": 1} for name in ("usd", "impressions")]
    terms = config(horizon=horizon, resources=resources, policy=config()["policy"] | {"preset": preset})

    async def main():
        async with running(database) as engine:
            return (await engine.submit(CreateCampaign(terms))).body["config"]

    made = asyncio.run(main())
    assert made["policy"]["two_stage"] == mode
    campaign = Campaign(1, "c", 1, json.loads(rows(database, tables.config)[0]["body"]))
    alone = SquareCBwK(
        arms=2,
        dimension=2,
        resources=2,
        horizon=horizon,
        budget=campaign.budgets,
        max_cost=ONE,
        model="per_arm",
        preset=preset,
    )
    assert two_stage.length(campaign.policy) == two_stage.length(alone)
    assert two_stage.mode_of(alone) == ("off" if mode == "auto" else mode)
