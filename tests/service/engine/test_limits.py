"""Commands at the limits: an id created twice at once, accounts beyond 64 bits, many arms to explain."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from math import inf

import psycopg
import pytest
from sqlalchemy import text

from service.domain.decision_rows import EXPLAINED_ARMS_MAX
from service.domain.ledger import TOTAL_MICROS_MAX
from service.engine.batch import BatchRunner
from service.engine.commands import Adjust, Answer, CreateCampaign, Decide, Feedback, Item, PatchCampaign
from service.money import AMOUNT_MAX, MICROS_MAX
from service.problems import Conflict
from service.reads.verification import verify
from service.store import tables
from service.store.database import Database
from tests.service.conditions import until
from tests.service.engine.campaigns import accounts, config, rows


def runner_of(database):
    """Returns a function that runs commands as one batch and returns their answers."""
    runner = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=5_000)

    def run_batch(*commands):
        items = [Item(command, inf) for command in commands]
        runner.run(items)
        return [item.answer for item in items]

    return run_batch


@pytest.fixture
def run(database):
    return runner_of(database)


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_an_id_that_another_process_is_creating_is_waited_for(migrated_url, ending):
    with (
        Database.open(migrated_url, lock_timeout_ms=20_000, statement_timeout_ms=20_000) as database,
        psycopg.connect(migrated_url) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        run = runner_of(database)
        other.execute("INSERT INTO campaign (id, created_at) VALUES ('c', 1)")
        creating = pool.submit(run, CreateCampaign(config()))
        waits = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        with Database.open(migrated_url) as watching:
            asyncio.run(until(lambda: _scalar(watching, waits) == 1, "the second process waits"))
        getattr(other, ending)()
        (answer,) = creating.result()
        assert answer.status == (409 if ending == "commit" else 201)


def _scalar(database, statement):
    with database.read() as connection:
        return connection.execute(statement).scalar_one()


def test_an_id_that_exists_is_a_conflict_and_leaves_nothing(run, database):
    assert run(CreateCampaign(config()))[0].status == 201
    again, other, twice = run(*(CreateCampaign(config(name)) for name in ("c", "d", "d")))
    assert [again.kind, other.status, twice.kind] == ["campaign-exists", 201, "campaign-exists"]
    assert [row["id"] for row in rows(database, tables.campaign)] == ["c", "d"]


def test_an_account_that_is_full_takes_no_more_and_the_books_hold(run, database):
    run(CreateCampaign(config()))
    (decided,) = run(Decide("c", "d", [0.3, 0.6]))
    assert decided.body["arm"] is not None
    fitting = TOTAL_MICROS_MAX // MICROS_MAX
    answers = run(*(Adjust("c", "usd", AMOUNT_MAX, "too much") for _ in range(fitting + 3)))
    assert [isinstance(answer, Answer) for answer in answers] == [True] * fitting + [False] * 3
    assert {(answer.status, answer.kind) for answer in answers[fitting:]} == {(409, "account-full")}
    before = accounts(database)
    assert before[2] == fitting * MICROS_MAX
    costs = {"usd": AMOUNT_MAX}
    (refused,) = run(Feedback("c", "d", 1.0, costs))
    assert isinstance(refused, Conflict)
    assert (refused.kind, accounts(database)) == ("account-full", before)
    corrected, settled = run(Adjust("c", "usd", -AMOUNT_MAX, "back"), Feedback("c", "d", 1.0, {"usd": 0.5}))
    assert isinstance(corrected, Answer)
    assert settled.body["status"] == "settled"
    with database.read() as connection:
        assert verify(connection, "c")["ok"]


def test_a_repeat_with_explain_is_the_same_after_an_arm_was_retired(run):
    arms = [{"id": name} for name in "abc"]
    run(CreateCampaign(config(arms=arms)))
    ask = Decide("c", "d", [0.3, 0.6], exclude=("b",), explain=True)
    (first,) = run(ask)
    run(PatchCampaign("c", {"retire_arms": ["b"]}))
    (again,) = run(ask)
    assert (again.body, again.replayed) == (first.body, True)
    (later,) = run(Decide("c", "later", [0.3, 0.6], explain=True))
    assert [arm["why_not"] for arm in later.body["arms"]] == [None, "retired", None]
    run(PatchCampaign("c", {"retire_arms": ["b", "c"]}))  # b once more
    (repeated,) = run(Decide("c", "later", [0.3, 0.6], explain=True))
    assert repeated.body == later.body


@pytest.mark.parametrize("arms", [EXPLAINED_ARMS_MAX, EXPLAINED_ARMS_MAX + 1, 400])
def test_an_explanation_has_every_arm_or_says_that_it_was_not_stored(run, arms):
    run(CreateCampaign(config(arms=[{"id": f"a{number}"} for number in range(arms)])))
    asked, silent = Decide("c", "asked", [0.3, 0.6], explain=True), Decide("c", "silent", [0.3, 0.6])
    (first,) = run(asked)
    assert [arm["id"] for arm in first.body["arms"]] == [f"a{number}" for number in range(arms)]
    assert sum(arm["probability"] for arm in first.body["arms"]) <= 1.0 + 1e-9
    assert "why_no_arms" not in first.body
    assert run(asked)[0].body == first.body
    run(silent)
    (later,) = run(silent._replace(explain=True))
    if arms <= EXPLAINED_ARMS_MAX:
        assert len(later.body["arms"]) == arms
    else:
        assert (later.body["arms"], later.body["why_no_arms"]) == ([], "not_stored")


def test_a_missing_reward_outside_the_range_of_rewards_is_refused_in_a_change_too(run):
    run(CreateCampaign(config()))
    (refused,) = run(PatchCampaign("c", {"feedback": {"missing_reward": 2.0}}))
    assert (refused.status, refused.extensions["errors"][0]["field"]) == (422, "feedback.missing_reward")
    assert run(PatchCampaign("c", {"feedback": {"missing_reward": 0.5}}))[0].status == 200
