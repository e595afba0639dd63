"""A budget is never promised twice, however many ask at the same moment."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack

import pytest

from tests.service.http_calls import account, at_once, calls, campaign, create, decide_body, failed_checks
from tests.service.server_process import running_server

REPETITIONS = int(os.environ.get("CBWK_TEST_REPETITIONS", "1"))
ASKING, ROOM = 1000, 100
# What a thousand wait for is a busy machine, and not what is tested here.
PATIENCE = {"request_deadline_ms": 60_000, "lock_timeout_ms": 30_000}


def check_that_all_who_fit_hold(servers):
    with calls(servers[0]) as client:
        for repetition in range(REPETITIONS):
            name = f"c{repetition}"
            create(client, campaign(name, budget=ROOM, horizon=100_000))
            bodies = [decide_body(f"d{i}", name) for i in range(ASKING)]
            replies = asyncio.run(at_once(servers, "/decide", bodies))
            assert {reply.status for reply in replies} == {200}
            answers = [reply.json for reply in replies]
            held = [answer for answer in answers if answer["arm"] is not None]
            assert len(held) == ROOM
            assert {answer["reason"] for answer in answers if answer["arm"] is None} == {"budget_exhausted"}
            assert sorted(answer["round"] for answer in answers) == list(range(ASKING))
            found = account(client, name)
            assert (found["granted"], found["held"], found["spent"], found["free"]) == (ROOM, ROOM, 0, 0)
            assert failed_checks(client, name) == []


def test_of_a_thousand_simultaneous_decisions_exactly_as_many_hold_as_there_is_room_for(migrated_url):
    with running_server(database_url=migrated_url, **PATIENCE) as server:
        check_that_all_who_fit_hold([server])


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_three_processes_on_one_database_together_hold_exactly_as_many(migrated_url):
    with ExitStack() as stack:
        servers = [stack.enter_context(running_server(database_url=migrated_url, **PATIENCE)) for _ in range(3)]
        check_that_all_who_fit_hold(servers)
