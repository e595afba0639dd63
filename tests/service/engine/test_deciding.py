"""Decisions: idempotency, budgets under simultaneous requests, restarts, and equality with the library."""

from __future__ import annotations

import asyncio
import hashlib

import numpy as np
import pytest

from cbwk_core import NULL_ARM, RULES_VERSION
from service.domain.campaign import Campaign
from service.domain.decision_rows import unpacked
from service.engine.commands import CreateCampaign, Decide, Feedback, PatchCampaign, SetStatus
from service.engine.decide import encoded_together
from service.problems import Conflict, Invalid, NotFound, Problem
from service.store import tables
from tests.service.engine.campaigns import accounts, config, rows, running, with_campaign

ONE = 1_000_000
COSTS = (0.0, 0.1, 0.2, 0.3, 0.4)
# The campaign of the sessions as the engine makes it: with the newest rules.
NEW_CAMPAIGN = Campaign(1, "c", 1, {**config(budget=100), "rules": RULES_VERSION})


def test_the_same_decision_id_again_gets_the_same_answer(database):
    async def play(engine):
        first = await engine.submit(Decide("c", "d", [1.0, 0.5]))
        again = await engine.submit(Decide("c", "d", [1.0, 0.5]))
        with pytest.raises(Conflict):
            await engine.submit(Decide("c", "d", [0.9, 0.5]))
        return first, again

    first, again = with_campaign(database, play)
    assert not first.replayed
    assert again.replayed
    assert again.body == first.body
    assert len(rows(database, tables.decision)) == 1


def test_a_context_is_the_same_in_any_order_and_another_with_another_type(database):
    features = [{"name": "a", "type": "number", "min": 0, "max": 2}, {"name": "b", "type": "hash", "buckets": 8}]
    first = {"b": "x", "a": 1.0}

    async def play(engine):
        await engine.submit(Decide("c", "d", first))
        again = await engine.submit(Decide("c", "d", {"a": 1.0, "b": "x"}))
        others = [
            Decide("c", "d", {"a": True, "b": "x"}),
            Decide("c", "d", {"a": 1.0, "b": "y"}),
            Decide("c", "d", first, exclude=["a"]),
        ]
        return again, [await refused(engine, other) for other in others]

    again, others = with_campaign(database, play, context={"features": features})
    assert again.replayed
    assert others == ["decision-id-reused"] * 3
    assert [row["request_digest"] for row in rows(database, tables.decision)] == [b""]


async def refused(engine, command):
    with pytest.raises(Conflict) as caught:
        await engine.submit(command)
    return caught.value.kind


def test_requests_of_which_only_a_digest_was_kept_are_known_again(database):
    excluding = Decide("c", "e", [1.0, 0.5], exclude=["a"])

    async def play(engine):
        return [(await engine.submit(one)).replayed for one in (Decide("c", "d", [1.0, 0.5]), excluding)]

    with_campaign(database, play)
    with database.write() as connection:  # as every row had one before
        digest = hashlib.blake2b(b"[1.0,0.5]", digest_size=8).digest()
        table = tables.decision
        connection.execute(table.update().where(table.c.decision_id == "d").values(request_digest=digest))

    others = [Decide("c", "d", [1.0, 0.4]), excluding._replace(decision_id="d"), excluding._replace(exclude=[])]

    async def again():
        async with running(database) as engine:
            return await play(engine), [await refused(engine, other) for other in others]

    assert asyncio.run(again()) == ([True, True], ["decision-id-reused"] * 3)


def test_the_same_decision_id_twice_in_one_batch_is_one_decision(database):
    async def play(engine):
        return await engine.submit_together([Decide("c", "d", [0.1, 0.2]), Decide("c", "d", [0.1, 0.2])])

    first, second = with_campaign(database, play)
    assert first.body == second.body
    assert second.replayed
    assert accounts(database)[1] == ONE


def test_a_decision_id_whose_first_request_in_the_batch_was_refused_is_decided_by_the_second(database):
    async def play(engine):
        return await engine.submit_together([Decide("c", "d", [0.1]), Decide("c", "d", [0.1, 0.2])])

    refused, decided = with_campaign(database, play)
    assert isinstance(refused, Invalid)
    assert (decided.body["reason"], decided.replayed) == ("policy", False)
    assert [row["decision_id"] for row in rows(database, tables.decision)] == ["d"]


def test_simultaneous_requests_hold_exactly_what_there_is_room_for(database):
    async def play(engine):
        return await asyncio.gather(*(engine.submit(Decide("c", f"d{i}", [0.3, 0.6])) for i in range(300)))

    answers = with_campaign(database, play, budget=20)
    made = [answer.body for answer in answers if answer.body["arm"] is not None]
    refused = [answer.body for answer in answers if answer.body["arm"] is None]
    assert len(made) == 20
    assert {body["reason"] for body in refused} == {"budget_exhausted"}
    assert accounts(database) == (20 * ONE, 20 * ONE, 0, 0)


def test_one_bad_item_of_a_batch_fails_alone(database):
    async def play(engine):
        return await engine.submit_together(
            [
                Decide("c", "good", [0.1, 0.2]),
                Decide("c", "short", [0.1]),
                Decide("nowhere", "lost", [0.1, 0.2]),
                Feedback("c", "unheard-of", reward=1.0),
            ]
        )

    good, short, lost, unknown = with_campaign(database, play)
    assert good.body["arm"] in ("a", "b")
    assert isinstance(short, Invalid)
    assert isinstance(lost, NotFound)
    assert isinstance(unknown, NotFound)
    assert [row["decision_id"] for row in rows(database, tables.decision)] == ["good"]


def test_paused_archived_and_ended_campaigns_answer_null_and_store_nothing(database):
    async def play(engine):
        await engine.submit(SetStatus("c", "pause"))
        paused = await engine.submit(Decide("c", "p", [0.1, 0.2]))
        await engine.submit(SetStatus("c", "resume"))
        last = await engine.submit(Decide("c", "l", [0.1, 0.2]))
        ended = await engine.submit(Decide("c", "e", [0.1, 0.2]))
        await engine.submit(SetStatus("c", "archive"))
        archived = await engine.submit(Decide("c", "z", [0.1, 0.2]))
        with pytest.raises(Conflict):
            await engine.submit(SetStatus("c", "resume"))
        return [answer.body["reason"] for answer in (paused, last, ended, archived)]

    assert with_campaign(database, play, horizon=1) == ["paused", "policy", "ended", "archived"]
    assert [row["decision_id"] for row in rows(database, tables.decision)] == ["l"]


def test_a_patch_keeps_what_was_learnt_and_a_budget_cannot_go_below_what_is_spent(database):
    async def play(engine):
        for i in range(6):
            await engine.submit(Decide("c", f"d{i}", [0.3, 0.6]))
            await engine.submit(Feedback("c", f"d{i}", reward=1.0, costs={"usd": 0.5}))
        with pytest.raises(Conflict):
            await engine.submit(PatchCampaign("c", {"resources": [{"id": "usd", "budget": 2}]}))
        with pytest.raises(Conflict):
            await engine.submit(PatchCampaign("c", {"horizon": 50, "expected_version": 9}))
        changes = {"resources": [{"id": "usd", "budget": 4000}], "add_arms": [{"id": "n"}], "retire_arms": ["a", "b"]}
        patched = await engine.submit(PatchCampaign("c", changes))
        after = await engine.submit(Decide("c", "after", [0.3, 0.6]))
        return patched.body, after.body

    patched, after = with_campaign(database, play, budget=1000)
    assert patched["version"] == 2
    assert (after["arm"], after["policy_version"]) == ("n", 6)
    assert accounts(database) == (4000 * ONE, ONE, 3 * ONE, 0)


def test_after_a_restart_everything_is_as_before(database):
    async def session(engine, start):
        for i in range(start, start + 15):
            answer = await engine.submit(Decide("c", f"d{i}", [i / 30, 0.5]))
            if answer.body["arm"] is not None:
                await engine.submit(Feedback("c", f"d{i}", reward=i % 2, costs={"usd": COSTS[i % 5], "impressions": 0}))
        return [(await engine.submit(Decide("c", f"d{i}", [i / 30, 0.5]))).body for i in range(start + 15)]

    first = with_campaign(database, lambda engine: session(engine, 0), budget=100)

    async def again():
        async with running(database) as engine:
            return await session(engine, 15)

    second = asyncio.run(again())
    assert second[:15] == first
    policy = NEW_CAMPAIGN.policy
    state, _ = library_loop(policy, 30)
    stored = np.frombuffer(rows(database, tables.campaign_state)[0]["books"], dtype="<f8")
    np.testing.assert_allclose(stored, state.books[0], rtol=1e-9, atol=1e-9)


def library_loop(policy, rounds):
    """The session above, played by the library alone with the same uniforms and an integer ledger of its own."""
    state, answers = policy.init(), []
    left = np.array([100 * ONE, 100_000 * ONE])
    for i in range(rounds):
        uniform = NEW_CAMPAIGN.uniforms(i, 1)
        choice = policy.decide(state, np.array([[i / 30, 0.5]]), uniform, free=left)
        state = policy.commit(state, choice.ticket)
        answers.append((int(choice.arm[0]), float(choice.probability[0])))
        if choice.arm[0] != NULL_ARM:
            cost = np.array([[round(COSTS[i % 5] * ONE), 0.0]])
            state = policy.settle(state, choice.ticket, [float(i % 2)], cost)
            left = left - cost[0].astype(np.int64)
    return state, answers


def test_arms_and_probabilities_equal_those_of_the_library(database):
    async def play(engine):
        bodies = []
        for i in range(30):
            answer = await engine.submit(Decide("c", f"d{i}", [i / 30, 0.5]))
            bodies.append(answer.body)
            if answer.body["arm"] is not None:
                await engine.submit(Feedback("c", f"d{i}", reward=i % 2, costs={"usd": COSTS[i % 5], "impressions": 0}))
        return bodies

    bodies = with_campaign(database, play, budget=100)
    _, expected = library_loop(NEW_CAMPAIGN.policy, 30)
    names = {"a": 0, "b": 1, None: NULL_ARM}
    assert [names[body["arm"]] for body in bodies] == [arm for arm, _ in expected]
    np.testing.assert_allclose([body["probability"] for body in bodies], [p for _, p in expected], atol=1e-9)


def test_an_explanation_says_what_the_policy_thought(database):
    async def play(engine):
        return (await engine.submit(Decide("c", "d", [0.3, 0.6], exclude=("b",), explain=True))).body

    body = with_campaign(database, play)
    first, second = body["arms"]
    assert (first["id"], first["eligible"], first["why_not"]) == ("a", True, None)
    assert (second["id"], second["eligible"], second["why_not"]) == ("b", False, "excluded")
    assert first["probability"] == pytest.approx(body["probability"])
    assert set(body["prices"]) == {"usd", "impressions"}


def test_a_shared_campaign_takes_actions_with_the_request(database):
    shared = {
        "model": "shared",
        "arms": [],
        "arm_features": {"dimension": 1, "features": None},
    }
    actions = [{"id": "x", "features": [0.2]}, {"id": "y", "features": [0.9], "max_cost": {"usd": 0.5}}]

    async def play(engine):
        answer = await engine.submit(Decide("c", "d", [0.3, 0.6], actions=actions, exclude=("x",)))
        settled = await engine.submit(Feedback("c", "d", reward=1.0, costs={"usd": 0.5}))
        needed = await engine.submit_together([Decide("c", "e", [0.3, 0.6])])
        return answer.body, settled.body, needed[0]

    answer, settled, needed = with_campaign(database, play, **shared)
    assert (answer["arm"], answer["hold"]) == ("y", {"usd": 0.5, "impressions": 1})
    assert settled["learned"]
    assert isinstance(needed, Problem)


def test_one_transaction_of_many_campaigns_knows_each_decision_by_its_campaign_and_id(database):
    names = [f"c{number}" for number in range(5)]

    async def play():
        async with running(database) as engine:
            for name in names:
                await engine.submit(CreateCampaign(config(name)))
            asked = [Decide(name, each, [0.5, 0.5]) for name in names for each in ("same", f"own-{name}")]
            first = await engine.submit_together(asked)
            again = await engine.submit_together([*reversed(asked), Decide("c0", "own-c1", [0.5, 0.5])])
            reports = [Feedback(name, "same", 1.0, {"usd": 0.5, "impressions": 1}) for name in names[:4]]
            settled = await engine.submit_together([*reports, Feedback("c4", "own-c0", 1.0, {})])
            return first, again, settled

    first, again, settled = asyncio.run(play())
    assert [answer.body["campaign_id"] for answer in first] == [name for name in names for _ in range(2)]
    assert [answer.body for answer in again[:-1]] == [answer.body for answer in reversed(first)]
    assert [answer.replayed for answer in again] == [True] * 10 + [False]
    assert [answer.body["status"] for answer in settled[:4]] == ["settled"] * 4
    assert settled[4].kind == "decision-not-found"
    assert sorted((row["campaign"], row["decision_id"]) for row in rows(database, tables.decision)) == sorted(
        [(number, each) for number in range(1, 6) for each in ("same", f"own-c{number - 1}")] + [(1, "own-c1")]
    )


def test_the_uniforms_of_several_rounds_are_those_of_each():
    campaign = Campaign(1, "c", 1, config(seed=12_345_678_901))
    together = campaign.uniforms(7, 300)
    digests = [hashlib.blake2b(b"12345678901:%d" % (7 + each), digest_size=8).digest() for each in range(300)]
    assert together.tolist() == [(int.from_bytes(digest, "big") >> 11) / 2**53 for digest in digests]
    assert campaign.uniforms(9, 1).tolist() == together[2:3].tolist()


def test_answers_of_a_batch_are_those_that_a_repeat_reads_from_the_log(database):
    async def play(engine):
        asked = [Decide("c", f"d{each}", [each / 40, 0.5]) for each in range(40)]
        first = await engine.submit_together(asked)
        again = await engine.submit_together(asked)
        return first, again

    first, again = with_campaign(database, play, budget=25)
    assert [answer.body for answer in first] == [answer.body for answer in again]
    assert [answer.replayed for answer in (*first, *again)] == [False] * 40 + [True] * 40
    assert {answer.body["arm"] for answer in first} > {None}


def test_of_a_batch_that_passes_the_end_each_decision_made_keeps_its_own_explanation(database):
    async def play(engine):
        return await engine.submit_together([Decide("c", f"d{each}", [each / 10, 0.5]) for each in range(9)])

    answers = with_campaign(database, play, budget=100, horizon=6)
    assert [answer.body["reason"] for answer in answers] == ["policy"] * 6 + ["ended"] * 3
    kept = rows(database, tables.decision)
    assert [row["decision_id"] for row in kept] == [f"d{each}" for each in range(6)]
    for row in kept:
        table = unpacked(row["explanation"], resources=2)
        assert table.shape == (2, 4)
        assert table[:, -1].sum() == pytest.approx(1.0)
        assert table[row["arm"], -1] == pytest.approx(row["probability"])


def test_contexts_of_several_campaigns_are_encoded_as_each_by_itself():
    features = [{"name": "a", "type": "number", "min": 0, "max": 2}, {"name": "b", "type": "hash", "buckets": 8}]
    alike = [Campaign(n, f"c{n}", 1, config(f"c{n}", context={"features": features})) for n in range(5)]
    other = Campaign(9, "other", 1, config("other"))
    requests = [
        [Decide(one.id, None, {"a": n / 4, "b": f"{n}{k}"}) for k in range(n)] for n, one in enumerate(alike, 1)
    ]
    asked = [*zip(alike, requests, strict=True), (other, [Decide("other", None, [0.5, 0.25])])]
    *together, alone = encoded_together(asked)
    assert alone is None
    for campaign, mine, vectors in zip(alike, requests, together, strict=True):
        assert vectors.tolist() == [campaign.encode(request.context).tolist() for request in mine]
    requests[2][1].context["a"] = "much"
    assert encoded_together(asked) == [None] * 6


def test_campaigns_that_are_decided_together_are_decided_as_each_alone(database):
    features = [{"name": "a", "type": "number", "min": 0, "max": 2}, {"name": "b", "type": "hash", "buckets": 8}]
    names = [f"c{n}" for n in range(12)]
    requests = [Decide(name, f"{name}-{k}", {"a": 0.1 * k, "b": name}) for k in range(3) for name in names]
    requests[4] = requests[4]._replace(context={"a": 1.0})  # a feature is missing

    def answers(together):
        async def play():
            async with running(database) as engine:
                made = [CreateCampaign(config(f"{together}{name}", context={"features": features})) for name in names]
                await engine.submit_together(made)
                mine = [one._replace(campaign_id=f"{together}{one.campaign_id}") for one in requests]
                if together:
                    return await engine.submit_together(mine)
                parts = [[one for one in mine if one.campaign_id == name] for name in names]
                found = [answer for part in parts for answer in await engine.submit_together(part)]
                order = [mine.index(one) for part in parts for one in part]
                return [found[order.index(at)] for at in range(len(mine))]

        return asyncio.run(play())

    for one, other in zip(answers("t"), answers(""), strict=True):
        if isinstance(one, Problem):
            assert one.kind == other.kind == "invalid-context"
        else:
            same = ("arm", "reason", "probability", "hold", "round")
            assert [one.body[name] for name in same] == [other.body[name] for name in same]
