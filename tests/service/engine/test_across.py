"""A request of each of several campaigns: decided together as each would be alone."""

from __future__ import annotations

import asyncio

import pytest

from service.engine import decide
from service.engine.commands import CreateCampaign, Decide, Feedback, SetStatus
from service.engine.replay import replay
from service.problems import Problem
from service.store import tables
from tests.service.engine.campaigns import config, rows, running

SAME = ("arm", "reason", "hold", "round", "policy_version")
ROUNDS = 25


def campaign(name, number):
    """Some alike, some of another shape, with budgets and holds of their own; every fourth soon has nothing left."""
    arms = [{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.5}}, {"id": "c"}][: 2 + number % 2]
    return config(name, arms=arms, budget=5 if number % 4 == 0 else 20 + number, horizon=20 if number == 7 else 500)


def requests(names, round_number):
    """One of each campaign; a few say more than their context, or cannot be taken."""
    made = []
    for number, name in enumerate(names):
        context = [0.1 * number, 0.03 * round_number]
        more = {"exclude": ["a"]} if (number + round_number) % 9 == 0 else {}
        if (number, round_number) == (2, 3):
            context = [0.5]
        made.append(Decide(name, f"d{round_number}", context, explain=number == 11, **more))
    return made


def lived(database, prefix, together):
    """What campaigns answer in rounds of one request each, asked together or one by one."""
    names = [f"{prefix}{number}" for number in range(14)]

    async def run():
        found = []
        async with running(database) as engine:
            for number, name in enumerate(names):
                await engine.submit(CreateCampaign(campaign(name, number)))
            for round_number in range(ROUNDS):
                asked = requests(names, round_number)
                if together:
                    answers = await engine.submit_together(asked)
                else:
                    answers = [(await engine.submit_together([one]))[0] for one in asked]
                found.append(answers)
                if round_number == 10:
                    await engine.submit(SetStatus(names[5], "pause"))
                for number, (name, answer) in enumerate(zip(names, answers, strict=True)):
                    if not isinstance(answer, Problem) and answer.body["hold"] and (number + round_number) % 5:
                        cost = 0.4 * answer.body["hold"]["usd"]
                        report = Feedback(name, f"d{round_number}", reward=number / 14, costs={"usd": cost})
                        await engine.submit(report)
        return found

    return asyncio.run(run())


def shown(answer):
    if isinstance(answer, Problem):
        return answer.kind
    return [answer.body[name] for name in SAME], answer.replayed


def test_campaigns_asked_together_decide_as_each_alone(database, monkeypatch):
    used = []
    record_group = decide.record_group

    def counted(campaigns, *others):
        used.append(len(campaigns))
        return record_group(campaigns, *others)

    monkeypatch.setattr(decide, "record_group", counted)
    together, alone = lived(database, "t", together=True), lived(database, "a", together=False)
    assert sum(used) > 100
    for round_number, (one, other) in enumerate(zip(together, alone, strict=True)):
        for number, (answer, expected) in enumerate(zip(one, other, strict=True)):
            assert shown(answer) == shown(expected), (round_number, number)
            if not isinstance(answer, Problem):
                assert answer.body["probability"] == pytest.approx(expected.body["probability"], rel=1e-9)
    for number in sorted({row["campaign"] for row in rows(database, tables.decision)}):
        assert replay(database, number, advanced=lambda done, todo: None).difference is None


def test_a_repeat_among_several_is_answered_from_the_log(database):
    names = [f"c{number}" for number in range(6)]

    async def run():
        async with running(database) as engine:
            for name in names:
                await engine.submit(CreateCampaign(config(name)))
            asked = [Decide(name, "d", [0.2, 0.4]) for name in names]
            first = await engine.submit_together(asked)
            again = await engine.submit_together([*asked[:2], *(one._replace(decision_id="e") for one in asked[2:])])
            other = await engine.submit_together([asked[0]._replace(context=[0.3, 0.4]), *asked[1:]])
            return first, again, other

    first, again, other = asyncio.run(run())
    assert [answer.replayed for answer in again] == [True, True, False, False, False, False]
    assert [answer.body for answer in again[:2]] == [answer.body for answer in first[:2]]
    assert other[0].kind == "decision-id-reused"
    assert [answer.body for answer in other[1:]] == [answer.body for answer in first[1:]]
