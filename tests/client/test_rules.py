"""The rules that both clients share, without a network: what is sent again when, and what is kept."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from types import MappingProxyType
from uuid import RFC_4122, UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbwk_client import (
    Account,
    BufferFullError,
    Campaign,
    CampaignSummary,
    CampaignVersion,
    ConflictError,
    Decision,
    DecisionNotFoundError,
    FeedbackResult,
    InvalidError,
    NewKey,
    NoAnswerError,
    RefusedError,
    Report,
    Terms,
    TimedOutError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
    Verification,
    answers,
    calls,
    decisions,
    errors,
)
from cbwk_client.decisions import RAISE, decide_batch
from cbwk_client.outbox import Outbox
from cbwk_client.replicas import Replicas
from cbwk_client.steps import Failure, Reply, Send, Wait, call_steps
from service import problems
from service.schemas import admin, campaign, deciding

REFUSED_CONNECTION = Failure("refused", sent=False, timed_out=False)
SILENCE = Failure("silence", sent=True, timed_out=True)
DECISION = {
    "decision_id": "d",
    "campaign_id": "c",
    "arm": "a",
    "reason": "policy",
    "probability": 0.5,
    "hold": {"usd": 1},
    "expires_at": "2026-11-16T10:00:00Z",
    "round": 3,
    "policy_version": 2,
}


class Clock:
    """Time that passes only in waits and in the network."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def problem(kind, status, **more):
    body = {"type": problems.TYPE_PREFIX + kind, "title": "", "status": status, "detail": "why"} | more
    return Reply(status, orjson.dumps(body), retry_after_seconds=1.0 if status == 503 else 0.0)


def replicas(*urls):
    return Replicas(urls or "http://here", None, Clock())


def carry_out(steps, clock, network):
    """Carry out the steps; `network` returns the result of a Send and the seconds it takes."""
    result = None
    try:
        while True:
            step = steps.send(result)
            if isinstance(step, Send):
                result, seconds = network(step)
                clock.now += min(seconds, step.time_left.get("read"))
            else:
                assert isinstance(step, Wait)
                clock.now += step.seconds
                result = None
    except StopIteration as end:
        return end.value


def replies(*results):
    """A network that gives these results in order, each after its seconds, and records what was sent."""
    waiting, sent = deque(results), []

    def network(step):
        sent.append(step)
        return waiting.popleft() if len(waiting) > 1 else waiting[0]

    return network, sent


def decide(clock, network, *, fallback=RAISE, decision_id=None, seconds=0.1, chance=0.0):
    """One decision, and the decisions to void after it."""
    late = []
    steps = decisions.decide(
        "c",
        calls.Ask([0.5], decision_id),
        explain=False,
        fallback=fallback,
        seconds=seconds,
        clock=clock,
        chance=lambda: chance,
        replicas=replicas(),
        try_seconds=1.0,
        void_later=lambda campaign_id, ids: late.extend((campaign_id, each) for each in ids),
    )
    return carry_out(steps, clock, network), late


def test_a_decision_without_an_id_gets_a_uuid_of_version_7():
    before = time.time_ns() // 1_000_000
    made = UUID(calls.Ask([0.5]).body()["decision_id"])
    assert (made.version, made.variant) == (7, RFC_4122)
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000


def test_every_attempt_of_a_decision_carries_the_same_id():
    clock = Clock()
    network, sent = replies((REFUSED_CONNECTION, 0), (SILENCE, 9), (Reply(200, orjson.dumps(DECISION)), 0.001))
    decision, late = decide(clock, network)
    assert decision.arm == "a"
    assert late == []
    assert len(sent) == 3
    assert len({step.content for step in sent}) == 1
    assert orjson.loads(sent[0].content)["decision_id"]


@given(
    seconds=st.floats(0.01, 5),
    chance=st.floats(0, 1, exclude_max=True),
    results=st.lists(st.tuples(st.sampled_from([REFUSED_CONNECTION, SILENCE]), st.floats(0, 1)), min_size=1),
)
def test_a_decision_takes_no_longer_than_its_time_and_then_plays_the_fallback(seconds, chance, results):
    clock = Clock()
    network, sent = replies(*results)
    decision, late = decide(clock, network, fallback="b", seconds=seconds, chance=chance)
    assert clock.now <= 100 + seconds + 0.0011  # an attempt is given a millisecond in any case
    assert (decision.arm, decision.is_fallback, decision.needs_feedback) == ("b", True, False)
    (made,) = {orjson.loads(step.content)["decision_id"] for step in sent}
    reached = any(what is SILENCE for what, _ in [*results, *[results[-1]] * len(sent)][: len(sent)])
    assert late == ([("c", made)] if reached else [])


def test_a_hanging_connection_leaves_time_for_a_second_attempt():
    clock = Clock()
    network, _ = replies((SILENCE, 9), (Reply(200, orjson.dumps(DECISION)), 0.001))
    decide(clock, network)
    assert clock.now == pytest.approx(100 + 0.05 + 0.005 + 0.001)


def test_without_a_fallback_no_answer_is_an_error_and_only_ids_nobody_knows_are_voided():
    for decision_id, voided in ((None, 1), ("mine", 0)):
        late = []
        steps = decisions.decide(
            "c",
            calls.Ask([0.5], decision_id),
            explain=False,
            fallback=RAISE,
            seconds=0.1,
            clock=Clock(),
            chance=lambda: 0.0,
            replicas=replicas(),
            try_seconds=1.0,
            void_later=lambda _, ids, late=late: late.extend(ids),
        )
        clock = Clock()
        with pytest.raises(TimedOutError) as raised:
            carry_out(steps, clock, lambda step: (SILENCE, 9))
        assert raised.value.may_have_been_done
        assert len(late) == voided


def test_a_call_interrupted_in_the_middle_voids_the_decision_it_may_have_left():
    late = []
    steps = decisions.decide(
        "c",
        calls.Ask([0.5]),
        explain=False,
        fallback=RAISE,
        seconds=0.1,
        clock=Clock(),
        chance=lambda: 0.0,
        replicas=replicas(),
        try_seconds=1.0,
        void_later=lambda _, ids: late.extend(ids),
    )
    sent = next(steps)
    steps.close()
    assert late == [orjson.loads(sent.content)["decision_id"]]


def test_a_batch_without_an_answer_falls_back_and_is_voided_as_a_whole():
    late, clock = [], Clock()
    steps = decide_batch(
        "c",
        [calls.Ask([0.5], "mine"), calls.Ask([0.7])],
        fallback="b",
        seconds=1.0,
        clock=clock,
        chance=lambda: 0.0,
        replicas=replicas(),
        try_seconds=1.0,
        void_later=lambda _, ids: late.extend(ids),
    )
    network, sent = replies((SILENCE, 9))
    played = carry_out(steps, clock, network)
    assert [(each.arm, each.is_fallback) for each in played] == [("b", True)] * 2
    (items,) = {tuple(item["decision_id"] for item in orjson.loads(step.content)["items"]) for step in sent}
    assert late == list(items)
    assert items[0] == "mine"


def test_a_service_that_says_when_to_come_back_is_not_asked_before():
    clock = Clock()
    busy = problem("queue-full", 503)
    network, sent = replies((busy, 0), (Reply(200, orjson.dumps(DECISION)), 0))
    decide(clock, network, seconds=3)
    assert (len(sent), clock.now) == (2, 101)
    clock = Clock()
    network, sent = replies((busy, 0))
    decision, late = decide(clock, network, fallback=None)
    assert (decision.arm, late, len(sent), clock.now) == (None, [], 1, 100)


def test_what_cannot_be_repeated_is_sent_again_only_if_it_surely_was_not_done():
    config = {"id": "c"}
    made = Reply(201, orjson.dumps({"id": "c", "version": 1, "status": "active", "config": {}}))
    cases = (
        (REFUSED_CONNECTION, 2),
        (problem("not-ready", 503), 2),
        (SILENCE, 1),
        (problem("deadline-passed", 503), 1),
        (problem("internal", 500), 1),
    )
    for first, attempts in cases:
        network, sent = replies((first, 0), (made, 0))
        clock = Clock()
        steps = call_steps(calls.create_campaign(config), 30, clock, lambda: 0.0, replicas())
        if attempts == 2:
            assert carry_out(steps, clock, network).version == 1
        else:
            with pytest.raises(NoAnswerError) as raised:
                carry_out(steps, clock, network)
            assert raised.value.may_have_been_done
        assert len(sent) == attempts


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (problem("unauthorized", 401), UnauthorizedError),
        (problem("decision-not-found", 404), DecisionNotFoundError),
        (problem("not-known-to-this-version", 409), ConflictError),
        (problem("not-known-to-this-version", 418), RefusedError),
        (problem("invalid", 422, errors=[{"field": "context.hour", "message": "required"}]), InvalidError),
        (problem("database-away", 503), UnavailableError),
        (problem("too-many-requests", 429), TooManyRequestsError),
        (Reply(502, b"<html>Bad Gateway</html>"), UnavailableError),
        (Reply(404, b"<html>Not Found</html>"), UnexpectedAnswerError),
        (Reply(200, b"<html>It works!</html>"), UnexpectedAnswerError),
        (Reply(200, b'{"hello": "world"}'), UnexpectedAnswerError),
        (Reply(302, b""), UnexpectedAnswerError),
    ],
)
def test_an_answer_that_is_none_is_the_error_it_amounts_to(reply, error):
    network, _ = replies((reply, 0))
    with pytest.raises(error) as raised:
        decide(Clock(), network)
    assert type(raised.value) is error
    if error is InvalidError:
        assert raised.value.fields == {"context.hour": "required"}


def test_every_class_of_problem_has_its_error_and_the_tree_is_drawn_as_it_is():
    statuses = {kind.status for kind in problems.Problem.__subclasses__()} - {405, 429, 431, 503}
    assert set(errors.BY_STATUS) == statuses
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.CbwkError)]
    drawn = {line.split("─ ")[-1].split()[0]: line for line in errors.__doc__.splitlines() if "Error" in line}
    assert set(drawn) == {each.__name__ for each in classes}
    for each in classes:
        depth = len(each.__mro__) - len(errors.CbwkError.__mro__)
        assert drawn[each.__name__].index(each.__name__) == 4 * depth


@pytest.mark.parametrize(
    ("ours", "theirs", "renamed"),
    [
        (Decision, deciding.Decision, {"explanation": {"arms", "prices", "gamma", "why_no_arms"}, "replayed": set()}),
        (answers.ArmThought, deciding.ArmExplanation, {}),
        (answers.WouldHave, deciding.WouldHave, {}),
        (FeedbackResult, deciding.FeedbackResult, {"replayed": set()}),
        (Account, campaign.AccountView, {}),
        (Campaign, campaign.CampaignView, {}),
        (CampaignSummary, campaign.CampaignSummary, {}),
        (CampaignVersion, admin.CampaignCreated, {}),
        (answers.Budget, admin.BudgetView, {}),
        (answers.Adjusted, admin.Adjusted, {}),
        (Verification, admin.Verification, {}),
        (answers.Check, admin.Check, {}),
        (NewKey, admin.KeyMade, {}),
    ],
)
def test_an_answer_has_every_field_the_service_declares(ours, theirs, renamed):
    names = {field.name for field in dataclasses.fields(ours)}
    assert (names - renamed.keys()).union(*renamed.values()) == theirs.model_fields.keys()


def test_contexts_of_any_mapping_or_sequence_are_sent_as_json_and_others_are_refused_where_they_were_given():
    for context, sent in ((MappingProxyType({"x": 1}), {"x": 1}), (range(3), [0, 1, 2]), ((0.5, 1), [0.5, 1])):
        call = calls.decide("c", calls.Ask(context).body())
        step = next(call_steps(call, 1, Clock(), lambda: 0.0, replicas()))
        assert orjson.loads(step.content)["context"] == sent
    with pytest.raises(TypeError):
        next(call_steps(calls.decide("c", calls.Ask({"x": object()}).body()), 1, Clock(), lambda: 0.0, replicas()))


class Service:
    """Accepts each report once, by decision, as the service does; its moods make it silent or refuse."""

    def __init__(self, moods):
        self.moods = deque(moods)
        self.taken = {}
        self.batches = []

    def __call__(self, step):
        items = orjson.loads(step.content)["items"]
        self.batches.append([item["decision_id"] for item in items])
        mood = self.moods.popleft() if self.moods else "well"
        if mood in ("unreachable", "busy", "locked out"):
            unwell = {"unreachable": REFUSED_CONNECTION, "busy": problem("queue-full", 503)}
            return unwell.get(mood, problem("unauthorized", 401)), 0.01
        if any(item["decision_id"].startswith("poison") for item in items):
            return problem("internal", 500), 0.01
        results = [self.result(item) for item in items]
        reply = Reply(200, orjson.dumps({"results": results}))
        return (SILENCE if mood == "silent" else reply), 0.01

    def result(self, item):
        name = item["decision_id"]
        if name.startswith("unknown"):
            return {"error": orjson.loads(problem("decision-not-found", 404).content)}
        assert self.taken.setdefault(name, item) == item
        head = {"campaign_id": "c", "decision_id": name, "status": "settled", "learned": True}
        return head | {"policy_version": 1, "warnings": []}


NAMES = st.lists(st.sampled_from(["good", "unknown", "poison"]), max_size=60)
MOODS = st.lists(st.sampled_from(["well", "silent", "unreachable", "busy", "locked out"]), max_size=20)


@given(kinds=NAMES, moods=MOODS, items_max=st.integers(1, 7))
def test_every_report_is_taken_or_refused_however_the_service_fails(kinds, moods, items_max):
    clock, refused = Clock(), []
    terms = Terms(batch_items_max=items_max, close_seconds=1000)
    outbox = Outbox(terms, clock, lambda: 0.5, replicas(), lambda report, error: refused.append(report.decision_id))
    names = [f"{kind}{number}" for number, kind in enumerate(kinds)]
    for name in names:
        outbox.add(Report("c", name, reward=1, costs={"usd": 0.5}))
    outbox.close()
    service = Service(moods)
    carry_out(outbox.delivery(), clock, service)
    assert outbox.undelivered() is None
    assert list(service.taken) == [name for name in names if name.startswith("good")]
    assert refused == [name for name in names if not name.startswith("good")]
    assert all(len(batch) <= items_max for batch in service.batches)


def test_a_lone_report_lingers_and_a_full_batch_does_not():
    clock = Clock()
    outbox = Outbox(Terms(batch_items_max=3, linger_seconds=0.25), clock, lambda: 0.0, replicas())
    delivery = outbox.delivery()
    assert next(delivery) == Wait(None)
    assert outbox.add(Report("c", "1", reward=1))
    assert delivery.send(None) == Wait(0.25)
    assert not outbox.add(Report("c", "2", reward=1))
    assert outbox.add(Report("c", "3", reward=1))
    assert isinstance(delivery.send(None), Send)


def test_a_late_void_waits_for_the_deadline_and_asks_twice_for_a_decision_nobody_knows():
    clock = Clock()
    outbox = Outbox(Terms(server_deadline_seconds=2), clock, lambda: 0.0, replicas())
    outbox.void_later("c", ["unknown1", "d"])
    outbox.close()
    service = Service([])
    sent_at = []

    def network(step):
        sent_at.append(clock.now)
        return service(step)

    carry_out(outbox.delivery(), clock, network)
    assert service.batches == [["unknown1", "d"], ["unknown1"]]
    assert sent_at == pytest.approx([102, 104.01])
    assert service.taken["d"] == {"campaign_id": "c", "decision_id": "d", "void": True}
    assert outbox.undelivered() is None


def test_what_is_left_at_the_end_is_handed_back_in_order():
    clock = Clock()
    outbox = Outbox(Terms(close_seconds=3, batch_items_max=2), clock, lambda: 0.0, replicas())
    reports = [Report("c", str(number), reward=1) for number in range(5)]
    for report in reports:
        outbox.add(report)
    outbox.void_later("c", ["late"])
    outbox.close()
    carry_out(outbox.delivery(), clock, lambda step: (REFUSED_CONNECTION, 0.01))
    left = outbox.undelivered()
    assert (list(left.reports), left.voids) == (reports, 1)
    assert "refused" in str(left)
    assert clock.now == pytest.approx(103, abs=0.02)


def test_a_full_buffer_says_so_instead_of_dropping_anything():
    outbox = Outbox(Terms(reports_max=2), Clock(), lambda: 0.0, replicas())
    for name in ("1", "2"):
        outbox.add(Report("c", name, reward=1))
    with pytest.raises(BufferFullError):
        outbox.add(Report("c", "3", reward=1))
    assert outbox.reports_waiting == 2


def test_a_report_that_says_nothing_or_no_number_is_refused_at_once():
    for said in ({}, {"void": True, "reward": 1}, {"reward": float("nan")}, {"costs": {"usd": float("inf")}}):
        with pytest.raises(ValueError, match="must"):
            Report("c", "d", **said)
    with pytest.raises(ValueError, match="cannot begin with"):
        calls.Ask([1.0], "fallback:d").body()
