"""One request for each of several campaigns: a group decides as each campaign does alone."""

from __future__ import annotations

import asyncio

import pytest

from cbwk_core.group import Group
from service.engine.commands import CreateCampaign, Decide, Feedback, SetStatus
from service.engine.replay import replay
from service.problems import Problem
from service.store import tables
from tests.service.engine.campaigns import config, rows, running

SAME = ("arm", "reason", "hold", "round", "policy_version")
CAMPAIGNS, ROUNDS = 14, 25


def campaign(name, number):
    """Two shapes, different budgets and holds; every fourth campaign soon exhausts its budget."""
    arms = [{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.5}}, {"id": "c"}][: 2 + number % 2]
    return config(name, arms=arms, budget=5 if number % 4 == 0 else 20 + number, horizon=20 if number == 7 else 500)


def requests(names, round_number):
    """One request for each campaign; a few exclude an arm or ask for an explanation, one is invalid."""
    requested = []
    for number, name in enumerate(names):
        context = [0.1 * number, 0.03 * round_number]
        more = {"exclude": ["a"]} if (number + round_number) % 9 == 0 else {}
        if (number, round_number) == (2, 3):
            context = [0.5]
        requested.append(Decide(name, f"d{round_number}", context, explain=number == 11, **more))
    return requested


def answers_of(database, prefix, *, together):
    """The answers of each round: one request for each campaign, in one transaction or in one for each."""
    names = [f"{prefix}{number}" for number in range(CAMPAIGNS)]

    async def run():
        found = []
        async with running(database) as engine:
            for number, name in enumerate(names):
                await engine.submit(CreateCampaign(campaign(name, number)))
            for round_number in range(ROUNDS):
                commands = requests(names, round_number)
                if together:
                    answers = await engine.submit_together(commands)
                else:
                    answers = [(await engine.submit_together([command]))[0] for command in commands]
                found.append(answers)
                if round_number == 10:
                    await engine.submit(SetStatus(names[5], "pause"))
                for number, (name, answer) in enumerate(zip(names, answers, strict=True)):
                    if not isinstance(answer, Problem) and answer.body["hold"] and (number + round_number) % 5:
                        cost = 0.4 * answer.body["hold"]["usd"]
                        report = Feedback(name, f"d{round_number}", reward=number / CAMPAIGNS, costs={"usd": cost})
                        await engine.submit(report)
        return found

    return asyncio.run(run())


def comparable(answer):
    if isinstance(answer, Problem):
        return answer.kind
    return [answer.body[name] for name in SAME], answer.replayed


def test_a_group_of_campaigns_decides_as_each_campaign_alone(database, monkeypatch):
    sizes = []
    decide = Group.decide

    def recorded(group, features, uniforms, free):
        sizes.append(len(uniforms))
        return decide(group, features, uniforms, free)

    monkeypatch.setattr(Group, "decide", recorded)
    alone = answers_of(database, "a", together=False)
    assert sizes == []
    together = answers_of(database, "t", together=True)
    assert len(sizes) > ROUNDS  # both shapes have a group
    assert sum(sizes) > 5 * ROUNDS
    decisions = 0
    for round_number, (grouped, single) in enumerate(zip(together, alone, strict=True)):
        for number, (answer, expected) in enumerate(zip(grouped, single, strict=True)):
            assert comparable(answer) == comparable(expected), (round_number, number)
            if not isinstance(answer, Problem):
                decisions += 1
                assert answer.body["probability"] == pytest.approx(expected.body["probability"], rel=1e-9)
    assert decisions == CAMPAIGNS * ROUNDS - 1  # one request is invalid
    numbers = sorted({row["campaign"] for row in rows(database, tables.decision)})
    assert len(numbers) == 2 * CAMPAIGNS
    for number in numbers:
        assert replay(database, number, advanced=lambda done, todo: None).difference is None


def test_a_repeated_request_in_a_group_is_answered_from_the_log(database):
    names = [f"c{number}" for number in range(6)]

    async def run():
        async with running(database) as engine:
            for name in names:
                await engine.submit(CreateCampaign(config(name)))
            commands = [Decide(name, "d", [0.2, 0.4]) for name in names]
            fresh = [command._replace(decision_id="e") for command in commands[2:]]
            first = await engine.submit_together(commands)
            again = await engine.submit_together([*commands[:2], *fresh])
            other = await engine.submit_together([commands[0]._replace(context=[0.3, 0.4]), *commands[1:]])
            return first, again, other

    first, again, other = asyncio.run(run())
    assert [answer.replayed for answer in again] == [True, True, False, False, False, False]
    assert [answer.body for answer in again[:2]] == [answer.body for answer in first[:2]]
    assert other[0].kind == "decision-id-reused"
    assert [answer.body for answer in other[1:]] == [answer.body for answer in first[1:]]
