"""Costs teach when they come, the reward when it comes; the log says what was taught, on both databases."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from service.engine.cache import load_campaign
from service.engine.commands import CreateCampaign, Decide, Expire, Feedback, PatchCampaign
from service.engine.replay import replay
from service.evaluation.campaign_log import read_log
from service.reads import verify
from service.reads.export import export_page, export_start
from service.reads.feedback_health import feedback
from service.store import tables
from tests.service.databases import make_holds_due
from tests.service.engine.campaigns import config, rows, running, with_campaign
from tests.service.engine.histories import state_of

COSTS = {"usd": 0.25, "impressions": 1}
IN_MILLIONTHS = [250_000, 1_000_000]


async def decided(engine, *names):
    answers = await engine.submit_together([Decide("c", name, [0.5, 0.25]) for name in names])
    assert all(answer.body["arm"] is not None for answer in answers)


async def report(engine, name="d1", **halves):
    return (await engine.submit(Feedback("c", name, **halves))).body


def taught(database):
    """What each outcome taught, in order."""
    return [row["taught"] and json.loads(row["taught"]) for row in rows(database, tables.outcome)]


def predicted(database):
    """Reward, then costs, of both arms, as a process predicts that has just started."""
    with database.read() as connection:
        policy = load_campaign(connection, 1, 1).policy
    return policy.predict(state_of(database), np.array([[0.5, 0.25]]))[0]


def model_in(engine):
    """The state that the engine caches."""
    return engine._batches._transactions.cache.get(1).state


def is_derived(database):
    return replay(database, 1, advanced=lambda done, todo: None).difference is None


def test_costs_alone_are_learnt_at_once_and_do_not_count_as_an_outcome(database):
    async def play(engine):
        await decided(engine, "d1")
        return await report(engine, costs=COSTS)

    answer = with_campaign(database, play)
    assert (answer["status"], answer["learned"], answer["policy_version"]) == ("charged", False, 0)
    assert taught(database) == [[None, *IN_MILLIONTHS]]
    assert state_of(database).learnt == 0
    values = predicted(database)
    played = rows(database, tables.decision)[0]["arm"]
    assert (values[played, 1:] > 0.1).all()
    assert values[played, 0] == 0
    assert (values[1 - played] == 0).all()


def test_the_reward_completes_the_outcome_and_the_model_is_that_of_whole_outcomes(database):
    async def play(engine):
        await engine.submit(CreateCampaign(config("whole")))
        await decided(engine, "d1", "d2")
        for name in ("d1", "d2"):
            await report(engine, name, costs=COSTS)
        answers = [await report(engine, name, reward=reward) for name, reward in (("d2", 0.5), ("d1", 1.0))]
        await engine.submit_together([Decide("whole", name, [0.5, 0.25]) for name in ("d1", "d2")])
        for name, reward in (("d1", 1.0), ("d2", 0.5)):
            await engine.submit(Feedback("whole", name, reward=reward, costs=COSTS))
        return answers

    answers = with_campaign(database, play)
    assert [(one["status"], one["learned"], one["policy_version"]) for one in answers] == [
        ("settled", True, 1),
        ("settled", True, 2),
    ]
    assert taught(database)[:4] == [
        [None, *IN_MILLIONTHS], [None, *IN_MILLIONTHS], [0.5, *IN_MILLIONTHS], [1.0, *IN_MILLIONTHS]
    ]  # fmt: skip
    apart, whole = state_of(database, 1), state_of(database, 2)
    for part, columns in zip(apart.oracle.parts, (slice(0, 1), slice(1, None)), strict=True):
        np.testing.assert_allclose(part.theta, whole.oracle.theta[..., columns], atol=1e-12)
    np.testing.assert_allclose(apart.residuals, whole.residuals, atol=1e-12)
    assert is_derived(database)


def test_a_reward_alone_waits_for_its_costs_because_the_decision_may_still_be_voided(database):
    async def play(engine):
        await decided(engine, "d1", "d2")
        first = [await report(engine, name, reward=1.0) for name in ("d1", "d2")]
        return first, await report(engine, "d1", void=True), await report(engine, "d2", costs=COSTS)

    first, voided, settled = with_campaign(database, play)
    assert [(one["status"], one["learned"]) for one in first] == [("rewarded", False)] * 2
    assert (voided["status"], voided["learned"], voided["policy_version"]) == ("voided", False, 0)
    assert (settled["learned"], settled["policy_version"]) == (True, 1)
    assert taught(database) == [None, None, None, [1.0, *IN_MILLIONTHS]]
    assert not hasattr(state_of(database).oracle, "parts")  # every lesson was whole
    assert is_derived(database)


@pytest.mark.parametrize(("missing", "last"), [(0, [0.0, *IN_MILLIONTHS]), (None, None)])
def test_expiry_of_a_charged_decision_teaches_the_missing_reward_if_there_is_one(database, missing, last):
    async def play(engine):
        await decided(engine, "d1")
        await report(engine, costs=COSTS)
        make_holds_due(database)
        await engine.submit(Expire())
        return await report(engine, reward=1.0), model_in(engine)

    late, live = with_campaign(database, play, feedback={"missing_reward": missing})
    assert (late["status"], late["learned"]) == ("late", False)
    assert taught(database) == [[None, *IN_MILLIONTHS], last, None]
    assert live.learnt == (missing is not None)
    assert_same_model(live, state_of(database))


def test_costs_that_come_too_late_teach_nothing(database):
    async def play(engine):
        await decided(engine, "d1")
        await report(engine, void=True)
        return await report(engine, costs=COSTS)

    assert with_campaign(database, play)["status"] == "late"
    assert taught(database) == [None, None]


@pytest.mark.parametrize("rules", [1, 2, 3])
def test_a_campaign_of_earlier_rules_learns_when_both_halves_are_known(database, monkeypatch, rules):
    monkeypatch.setattr("service.engine.administer.RULES_VERSION", rules)

    async def play(engine):
        await decided(engine, "d1", "d2")
        first = await report(engine, costs=COSTS)
        await engine.submit_together([Feedback("c", "d1", reward=0.5), Feedback("c", "d2", reward=1.0, costs=COSTS)])
        await decided(engine, "d3")
        return first

    assert with_campaign(database, play)["learned"] is False
    assert taught(database) == [None, [0.5, *IN_MILLIONTHS], [1.0, *IN_MILLIONTHS]]
    assert not hasattr(state_of(database).oracle, "parts")
    assert is_derived(database)


async def busy(engine):
    """Halves of all kinds in one batch and in several, between decisions."""
    names = [f"d{number}" for number in range(12)]
    await decided(engine, *names)
    await engine.submit_together([Feedback("c", name, costs=COSTS) for name in names[:6]])
    await engine.submit_together(
        [
            Feedback("c", "d0", reward=1.0),
            Feedback("c", "d6", reward=0.5, costs=COSTS),
            Feedback("c", "d7", costs={"usd": 0.9}),
            Feedback("c", "d7", reward=0.25),
            Feedback("c", "d8", reward=0.75),
            Feedback("c", "d1", reward=0.0),
        ]
    )
    await decided(engine, "e0", "e1")
    await engine.submit_together([Feedback("c", "d8", costs=COSTS), Feedback("c", "d9", void=True)])
    await engine.submit(PatchCampaign("c", {"add_arms": [{"id": "new"}], "horizon": 2000}))
    await engine.submit(Feedback("c", "e0", costs=COSTS))
    await decided(engine, "e2")


def assert_same_model(one, other):
    assert type(one.oracle) is type(other.oracle)
    for part, same in zip(one.oracle.parts, other.oracle.parts, strict=True):
        np.testing.assert_allclose(part.solution, same.solution, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.residuals, other.residuals, rtol=1e-9)
    np.testing.assert_array_equal(one.learnt, other.learnt)


def test_a_process_that_folds_the_log_has_the_model_of_the_one_that_wrote_it(database):
    async def play(engine):
        await busy(engine)
        return model_in(engine)

    live = with_campaign(database, play, budget=1000)
    assert_same_model(live, state_of(database))
    assert live.learnt == 5
    assert is_derived(database)


def test_a_snapshot_of_a_split_model_is_read_and_what_follows_it_is_folded(database):
    async def main():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(budget=1000)))
            await busy(engine)
        assert rows(database, tables.snapshot)  # written when the engine stopped
        async with running(database) as engine:
            await report(engine, "d2", reward=0.5)
            await report(engine, "e1", costs=COSTS)
            return model_in(engine)

    live = asyncio.run(main())
    assert_same_model(live, state_of(database))
    assert is_derived(database)


def test_halves_count_towards_the_next_snapshot(database, monkeypatch):
    """Costs may come for days before the first reward: a log of them must not be folded at every start."""
    monkeypatch.setattr("service.engine.cache.SNAPSHOT_OUTCOMES", 3)

    async def play(engine):
        await decided(engine, "d1", "d2", "d3")
        for name in ("d1", "d2", "d3"):
            await report(engine, name, costs=COSTS)
        await decided(engine, "d4")
        return len(rows(database, tables.snapshot))

    assert with_campaign(database, play) == 1


def test_costs_that_would_spoil_the_model_are_booked_and_not_learnt_and_their_reward_is(database, monkeypatch):
    def is_finite(policy, state):
        """Not after the costs of the context [0.9, 0.9], whose square is 0.81."""
        costs = getattr(state.oracle, "parts", (state.oracle,))[-1]
        return all(gram[0, 0, 0] < policy.regressor.ridge + 0.5 for gram in costs.gram)

    monkeypatch.setattr("cbwk_core.SquareCBwK.is_finite", is_finite)

    async def play(engine):
        contexts = {"d1": [0.1, 0.2], "d2": [0.9, 0.9], "d3": [0.3, 0.4]}
        await engine.submit_together([Decide("c", name, context) for name, context in contexts.items()])
        charged = await engine.submit_together([Feedback("c", name, costs=COSTS) for name in contexts])
        return charged, await report(engine, "d2", reward=1.0)

    charged, settled = with_campaign(database, play)
    assert [one.body["status"] for one in charged] == ["charged"] * 3
    assert taught(database) == [[None, *IN_MILLIONTHS], None, [None, *IN_MILLIONTHS], [1.0, *IN_MILLIONTHS]]
    assert (settled["learned"], settled["policy_version"]) == (True, 1)
    assert is_derived(database)


def test_costs_whose_reward_is_missing_are_no_learnt_outcome_for_any_reader(database):
    async def play(engine):
        await decided(engine, "d1", "d2")
        await report(engine, "d1", costs=COSTS)
        await report(engine, "d2", costs=COSTS, reward=0.5)

    with_campaign(database, play)
    with database.read() as connection:
        losses = feedback(connection, "c")["losses"]
        page, _ = export_page(connection, export_start(connection, "c", "jsonl"), 0)
        damaged = [check for check in verify(connection, "c")["checks"] if not check["ok"]]
    assert sum(loss["outcomes"] for loss in losses) == 1
    assert [json.loads(line)["learned"] for line in page.decode().splitlines()] == [False, True]
    log = read_log(database, "c", rounds_max=100, advanced=lambda *_: None)
    assert (log.log.rounds, log.left_out["unsettled"]) == (1, 1)
    assert damaged == []
