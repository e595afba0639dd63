"""A repeated request gets the first answer."""

from __future__ import annotations

from hashlib import blake2b

import orjson
import pytest
from sqlalchemy import update

from service.engine import transaction
from service.engine.batch import BatchRunner
from service.engine.changes import Changes
from service.engine.commands import CreateCampaign, Decide, Feedback, Item, SetStatus
from service.engine.replay import replay
from service.reads import verify
from service.store import tables
from tests.service.engine.campaigns import config, rows


@pytest.fixture
def looked_for(monkeypatch):
    """The ids that the engine has asked the database for, transaction by transaction."""
    asked = []
    fetch = transaction.DECISIONS.fetch

    def noted(connection, wanted):
        asked.append([each for _, each in wanted])
        return fetch(connection, wanted)

    monkeypatch.setattr(transaction.DECISIONS, "fetch", noted)
    return asked


@pytest.fixture
def run(database):
    """Carry out commands in one transaction; their answers."""
    processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000)

    def carried_out(*commands):
        items = [Item(command, 0.0) for command in commands]
        processor.run(items)
        return [item.answer for item in items]

    return carried_out


def decide(name, campaign="c", context=(0.3, 0.6)):
    return Decide(campaign, name, list(context))


def test_the_ids_of_requests_are_looked_for_before_they_are_decided(run, database, looked_for):
    run(CreateCampaign(config()))
    looked_for.clear()
    (first,) = run(decide("a"))
    run(decide(None))
    (again,) = run(decide("a"))
    assert (again.body, again.replayed, first.replayed) == (first.body, True, False)
    assert looked_for == [["a"], [], ["a"]]
    assert len(rows(database, tables.decision)) == 2


def test_a_repeat_among_new_requests_of_several_campaigns_is_made_once(run, database):
    names = [f"c{number}" for number in range(6)]
    run(*(CreateCampaign(config(name)) for name in names))
    (first,) = run(decide("x", "c2"))
    answers = run(*(decide("x", name) for name in names), decide("y", "c2"), decide("y", "c2"))
    assert answers[2].body == first.body
    assert [answer.replayed for answer in answers] == [False, False, True, False, False, False, False, True]
    assert len(rows(database, tables.decision)) == 7
    with database.read() as connection:
        assert all(verify(connection, name)["ok"] for name in names)


def test_another_body_under_an_id_that_was_used_is_refused_without_a_trace(run, database):
    run(CreateCampaign(config()))
    run(decide("a"))
    before = [rows(database, table) for table in (tables.decision, tables.hold, tables.account)]
    refused, fine = run(decide("a", context=(0.5, 0.5)), decide("b"))
    assert (refused.kind, fine.body["decision_id"]) == ("decision-id-reused", "b")
    assert rows(database, tables.decision)[:1] == before[0]


ACTIONS = [{"id": "x", "features": [-0.0]}, {"id": "y", "features": [1.0]}]
SHARED = {"model": "shared", "arm_features": {"dimension": 1, "features": None}, "arms": []}


@pytest.mark.parametrize(
    ("first", "again", "changes"),
    [
        ({"context": [-0.0, 1.0]}, {"context": [0.0, 1.0]}, {}),
        ({"context": [-0.0, 1.0], "exclude": ["a"]}, {"context": [0.0, 1.0], "exclude": ["a"]}, {}),
        ({"exclude": ["a", "a"]}, {"exclude": ["a"]}, {}),
        ({"exclude": ["n", "a"]}, {"exclude": ["a", "n", "a"]}, {}),
        ({"actions": ACTIONS}, {"actions": [{"id": "x", "features": [0.0]}, ACTIONS[1]]}, SHARED),
    ],
)
def test_minus_zero_is_zero_and_an_exclusion_counts_once(run, database, first, again, changes):
    run(CreateCampaign(config(**changes)))
    for one, other, name in ((first, again, "a"), (again, first, "b")):
        (made,) = run(Decide("c", name, **{"context": [0.5, 0.5]} | one))
        (repeated,) = run(Decide("c", name, **{"context": [0.5, 0.5]} | other))
        assert (repeated.body, repeated.replayed) == (made.body, True)
    assert replay(database, 1, advanced=lambda done, todo: None).difference is None


@pytest.mark.parametrize("request_", [{"context": [-0.0, 1.0], "exclude": ["a"]}, {"exclude": ["a", "a"]}])
def test_a_request_that_version_0_1_stored_as_it_was_sent_is_repeated_and_replayed(run, database, request_):
    command, decision = Decide("c", "a", **{"context": [0.5, 0.5]} | request_), tables.decision
    run(CreateCampaign(config()))
    (made,) = run(command)
    digest = blake2b(orjson.dumps(command.context), digest_size=8)
    digest.update(orjson.dumps([command.exclude, None]))
    with database.write() as connection:
        stored = {"request_digest": digest.digest(), "exclude": orjson.dumps(command.exclude).decode()}
        connection.execute(update(decision).values(stored))
    (again,) = run(command)
    assert (again.body, again.replayed) == (made.body, True)
    assert replay(database, 1, advanced=lambda done, todo: None).difference is None


@pytest.mark.parametrize("end", ["paused", "ended"])
def test_what_was_decided_before_a_campaign_ended_is_told_again_after_it(run, end):
    run(CreateCampaign(config(horizon=1 if end == "ended" else 1000)))
    (first,) = run(decide("a"))
    if end == "paused":
        run(SetStatus("c", "pause"))
    again, other = run(decide("a"), decide("b"))
    assert again.body == first.body
    assert again.replayed
    assert (other.body["arm"], other.body["reason"]) == (None, end)


def test_outcomes_are_found_whoever_looks(run):
    run(CreateCampaign(config()))
    run(decide("a"))
    told, unknown = run(Feedback("c", "a", void=True), Feedback("c", "b", void=True))
    assert (told.body["status"], unknown.kind) == ("voided", "decision-not-found")


def test_decisions_of_a_transaction_that_failed_are_made_and_stored_when_they_are_tried_one_by_one(
    run, database, monkeypatch
):
    run(CreateCampaign(config("c")), CreateCampaign(config("d")))
    write, failures = Changes.write, [RuntimeError("not written")]

    def failing_once(changes, *arguments):
        if failures:
            raise failures.pop()
        return write(changes, *arguments)

    monkeypatch.setattr(Changes, "write", failing_once)
    answers = run(decide("1"), decide("2", "d"))
    assert [answer.body["decision_id"] for answer in answers] == ["1", "2"]
    assert sorted(row["decision_id"] for row in rows(database, tables.decision)) == ["1", "2"]
