"""A batch that fails is tried again command by command: each answer is that of the transaction that was committed."""

import time
from math import inf
from urllib.parse import urlsplit

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from service.engine.batch import AWAY_LOGGED_SECONDS, BatchRunner
from service.engine.commands import Answer, CreateCampaign, Decide, Item
from service.store import tables
from tests.service.engine.campaigns import config, rows
from tests.service.store.rows import decision

GOOD = ("c", "d", "e")  # enough to be decided as a group


@pytest.fixture
def run(database):
    """Runs commands as one batch and returns their answers."""
    runner = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000)

    def run_batch(*commands):
        items = [Item(command, inf) for command in commands]
        runner.run(items)
        return [item.answer for item in items]

    return run_batch


@pytest.mark.parametrize("names", [GOOD[:1], GOOD])
def test_decisions_beside_a_command_that_fails_are_answered_as_they_are_stored(run, database, names):
    run(*(CreateCampaign(config(name)) for name in (*names, "bad")))
    bad = len(names) + 1
    with database.write() as connection:  # the number that its next decision will have
        connection.execute(tables.decision.insert().values(decision(3, campaign=bad, decision_id="taken")))
    *answers, failed = run(*(Decide(name, "x", [0.3, 0.6]) for name in (*names, "bad")))
    assert not isinstance(failed, Answer)
    stored = {row["campaign"]: row for row in rows(database, tables.decision) if row["campaign"] != bad}
    assert len(stored) == len(names)
    for number, answer in enumerate(answers, 1):
        row = stored[number]
        assert (answer.body["round"], answer.body["arm"]) == (row["round"], row["arm_id"])
    again = run(*(Decide(name, "x", [0.3, 0.6]) for name in names))
    assert all(answer.replayed for answer in again)


@pytest.mark.parametrize("commands", [1, 2])
def test_commands_are_answered_if_the_log_cannot_be_read_to_catch_up(run, database, monkeypatch, commands):
    run(CreateCampaign(config()))
    monkeypatch.setattr("service.engine.cache.BEHIND_ROWS_MAX", 0)
    with database.write() as connection:
        connection.execute(text("ALTER TABLE snapshot RENAME TO away"))
    answers = run(*(Decide("c", f"d{number}", [0.3, 0.6]) for number in range(commands)))
    assert all(isinstance(answer, DBAPIError) for answer in answers)
    with database.write() as connection:
        connection.execute(text("ALTER TABLE away RENAME TO snapshot"))
    assert all(isinstance(answer, Answer) for answer in run(Decide("c", "d", [0.3, 0.6])))


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_a_database_that_is_away_is_one_line_a_second_with_the_words_of_the_driver(
    run, migrated_url, postgresql_server, logged
):
    name = urlsplit(migrated_url).path[1:]
    run(CreateCampaign(config()))
    postgresql_server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    postgresql_server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    logged()
    began = time.monotonic()
    for number in range(20):
        (answer,) = run(Decide("c", f"d{number}", [0.3, 0.6]))
        assert answer.kind == "database-away"
    lines = logged()
    assert 1 <= len(lines) <= 1 + (time.monotonic() - began) / AWAY_LOGGED_SECONDS
    time.sleep(AWAY_LOGGED_SECONDS)
    run(Decide("c", "last", [0.3, 0.6]))
    (last,) = logged()
    assert last["event"] == "database away"
    assert "not currently accepting connections" in last["error"]
    assert last["transactions"] + sum(line["transactions"] for line in lines) == 21
