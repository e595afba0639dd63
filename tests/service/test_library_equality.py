"""The service is the library: the same arms, probabilities and prices, also after any end of the process."""

from __future__ import annotations

import asyncio
import os
import signal

import numpy as np
import pytest
from sqlalchemy import select

from cbwk_core import NULL_ARM
from service.engine.cache import Cache, current, load_campaign
from service.store import tables
from service.store.database import Database
from tests.service.http_calls import calls, connected, create, failed_checks
from tests.service.library_loop import ARMS, RESOURCES, LibraryLoop, World
from tests.service.server_process import running_server

pytestmark = pytest.mark.slow

# CBWK_TEST_DECISIONS=2000 plays longer, and ends every model in every way.
LONG = "CBWK_TEST_DECISIONS" in os.environ
ROUNDS = min(2_000, int(os.environ.get("CBWK_TEST_DECISIONS", "150")))
MODELS = ("per_arm", "shared")
ENDS = [(signal.SIGTERM, "shared"), (signal.SIGKILL, "per_arm")]
if LONG:
    ENDS += [(signal.SIGTERM, "per_arm"), (signal.SIGKILL, "shared")]
AGREEMENT = 1e-9
# The service learns in other units and, after a start, many outcomes in one call.
ORACLE_AGREEMENT = 1e-12
# Outcomes enough for a snapshot a while before the end; the last few of each batch are never told.
BATCHES, BATCH, UNREPORTED = 5, 300, 7
BATCH_PACE = (0.16, 0.5)
STOP_SECONDS_MAX = 5.0


def names_of(arms):
    return [None if arm == NULL_ARM else ARMS[arm] for arm in arms]


def body_of(world, number):
    return {"decision_id": f"d{number}", "context": world.contexts[number].tolist()}


async def played_one_by_one(server, world):
    """Every decision with its outcome before the next: the answers, explained."""
    answers = []
    async with connected(server, 1) as (connection,):
        for number in range(world.rounds):
            asked = {"campaign_id": world.model, "explain": True, **body_of(world, number)}
            answer = await connection.post("/decide", asked)
            assert answer.status == 200, answer.body
            answers.append(answer.json)
            if answer.json["arm"] is not None:
                report = world.report(number, ARMS.index(answer.json["arm"]))
                told = await connection.post("/feedback", report)
                assert told.json["status"] == "settled", told.body
    return answers


def assert_the_library_says_the_same(world, answers, shown):
    loop, arms, probabilities, prices = LibraryLoop(world), [], [], []
    for number in range(world.rounds):
        prices.append(loop.prices)
        (arm,), probability = loop.decide()
        arms.append(arm)
        probabilities += probability
        if arm != NULL_ARM:
            loop.settle(number)
    assert [answer["arm"] for answer in answers] == names_of(arms)
    assert [answer["round"] for answer in answers] == list(range(world.rounds))
    found = [answer["probability"] for answer in answers]
    np.testing.assert_allclose(found, probabilities, rtol=0, atol=AGREEMENT)
    found = [[answer["prices"][name] for name in RESOURCES] for answer in answers]
    np.testing.assert_allclose(found, prices, rtol=0, atol=AGREEMENT)
    np.testing.assert_allclose([shown["prices"][name] for name in RESOURCES], prices[-1], rtol=0, atol=AGREEMENT)
    assert [round(account["spent"] * 1e6) for account in shown["accounts"]] == loop.spent.tolist()
    # The run says something only if the budget binds: prices rise, and some rounds go without an arm.
    assert max(map(max, prices)) > 0.1
    assert 0.01 < arms.count(NULL_ARM) / world.rounds < 0.5


def test_with_immediate_feedback_arms_probabilities_and_prices_over_http_are_the_librarys(migrated_url):
    with running_server(database_url=migrated_url) as server, calls(server) as client:
        for model in MODELS:
            world = World(model, ROUNDS)
            create(client, world.campaign())
            answers = asyncio.run(played_one_by_one(server, world))
            assert_the_library_says_the_same(world, answers, client.get(f"/campaigns/{model}").json())
            assert failed_checks(client, model) == []


def batch_by_both(client, loop):
    """Rounds decided in one batch and reported in another, by the service and by the library."""
    world, numbers = loop.world, range(loop.round, loop.round + BATCH)
    items = [body_of(world, number) for number in numbers]
    decided = client.post("/decide/batch", json={"campaign_id": world.model, "items": items}).json()["decisions"]
    arms, probabilities = loop.decide(BATCH)
    assert [one["arm"] for one in decided] == names_of(arms)
    np.testing.assert_allclose([one["probability"] for one in decided], probabilities, rtol=0, atol=AGREEMENT)
    shown = [number for number, arm in zip(numbers, arms, strict=True) if arm != NULL_ARM]
    reported = shown[:-UNREPORTED]
    reports = [world.report(number, loop.tickets[number][1]) for number in reported]
    results = client.post("/feedback/batch", json={"items": reports}).json()["results"]
    assert {result["status"] for result in results} == {"settled"}
    for number in reported:
        loop.settle(number)


def restored(url, model):
    """A policy's state as a start finds it, the same from the log alone, and the newest snapshot."""
    snapshot = tables.snapshot
    with Database.open(url) as database, database.write() as connection:
        number = connection.execute(select(tables.campaign.c.number).where(tables.campaign.c.id == model)).scalar_one()
        states = select(tables.campaign_state).where(tables.campaign_state.c.campaign == number)
        row = dict(connection.execute(states).mappings().one())
        found = current(connection, Cache(2**28), row).state
        newest = select(snapshot.c.data).where(snapshot.c.campaign == number).order_by(snapshot.c.sequence.desc())
        policy = load_campaign(connection, number, row["config_version"]).policy
        saved = policy.decode(connection.execute(newest).scalars().first())
        connection.execute(snapshot.delete())
        from_log = current(connection, Cache(2**28), row).state
        connection.rollback()
    return found, from_log, saved


def arrays(part):
    """Every array of a state, in order."""
    if isinstance(part, np.ndarray):
        return [part]
    return [array for inner in part for array in arrays(inner)] if isinstance(part, tuple) else []


def assert_the_oracle_is_the_librarys(state, loop):
    for mine, library in zip(arrays(state.oracle), arrays(loop.state.oracle), strict=True):
        np.testing.assert_allclose(mine, library, rtol=ORACLE_AGREEMENT, atol=ORACLE_AGREEMENT)
    np.testing.assert_allclose(state.residuals, loop.state.residuals, rtol=ORACLE_AGREEMENT)


def assert_a_start_finds_everything(url, loop, end):
    found, from_log, saved = restored(url, loop.world.model)
    assert_the_oracle_is_the_librarys(found, loop)
    assert_the_oracle_is_the_librarys(from_log, loop)
    np.testing.assert_array_equal(found.books, from_log.books)
    if end == signal.SIGTERM:  # what the process had in its memory, to the last bit
        assert all(map(np.array_equal, arrays(found.oracle), arrays(saved.oracle)))
    else:  # the snapshot is from before the end, and the log has the rest
        assert saved.learnt < found.learnt


@pytest.mark.parametrize(("end", "model"), ENDS, ids=lambda part: getattr(part, "name", part))
def test_after_any_end_prices_accounts_rounds_and_parameters_are_as_before(migrated_url, end, model):
    loop = LibraryLoop(World(model, (BATCHES + 1) * BATCH, BATCH_PACE))
    with running_server(database_url=migrated_url) as server, calls(server) as client:
        create(client, loop.world.campaign())
        for _ in range(BATCHES):
            batch_by_both(client, loop)
        before = client.get(f"/campaigns/{model}").json()
        server.process.send_signal(end)
        server.process.wait(STOP_SECONDS_MAX)
    assert_a_start_finds_everything(migrated_url, loop, end)
    prices, held, spent = loop.prices, loop.held.tolist(), loop.spent.tolist()
    with running_server(database_url=migrated_url) as server, calls(server) as client:
        assert client.get(f"/campaigns/{model}").json() == before
        batch_by_both(client, loop)
        shown = client.get(f"/campaigns/{model}").json()["prices"]
        assert failed_checks(client, model) == []
    np.testing.assert_allclose([shown[name] for name in RESOURCES], prices, rtol=0, atol=AGREEMENT)
    assert before["round"] == BATCHES * BATCH
    assert [round(account["held"] * 1e6) for account in before["accounts"]] == held
    assert [round(account["spent"] * 1e6) for account in before["accounts"]] == spent
    assert min(held) > 0
    assert max(prices) > 0
