"""The client against a real server: every call, every refusal, many threads, many tasks."""

from __future__ import annotations

import asyncio
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count

import numpy as np
import pytest

from cbwk_client import (
    Ask,
    AsyncClient,
    BudgetBelowSpentError,
    CampaignExistsError,
    CampaignNotFoundError,
    Client,
    Decision,
    DecisionIdReusedError,
    DecisionNotFoundError,
    FeedbackDiffersError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Report,
    Terms,
    UnauthorizedError,
    UndeliveredError,
    VersionDiffersError,
)
from tests.service.http_calls import campaign
from tests.service.http_client import ADMIN_KEY
from tests.service.shared_server import server_on

# A busy machine is no reason to fail: who tests times sets them.
PATIENT = Terms(decide_seconds=20, batch_seconds=20, feedback_seconds=20, close_seconds=20)
THREADS = 8
EACH = 25
TASKS = 150
NUMBERS = count()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request, tmp_path_factory):
    with server_on(request.param, request, tmp_path_factory) as (running, _):
        yield running


@pytest.fixture
def name():
    return f"c{next(NUMBERS)}"


@pytest.fixture
def client(server, name):
    with Client(server.url, ADMIN_KEY, terms=PATIENT) as opened:
        opened.create_campaign(campaign(name))
        yield opened


def test_a_campaign_is_made_asked_paid_changed_and_ended(client, name):
    assert client.ensure_campaign(campaign(name)).version == 1
    first = client.decide(name, [0.3, 0.6], explain=True)
    assert first.arm in ("a", "b")
    assert (first.round, first.hold, first.replayed, first.is_fallback) == (0, {"usd": 1}, False, False)
    assert {thought.id for thought in first.explanation.arms} == {"a", "b"}
    again = client.decide(name, [0.3, 0.6], decision_id=first.decision_id)
    assert (again.replayed, again.arm, again.round) == (True, first.arm, 0)
    other = client.decide(name, np.array([0.1, 0.2]), exclude=[first.arm])
    assert {first.arm, other.arm} == {"a", "b"}
    charged = client.feedback(name, first.decision_id, costs={"usd": 0.25})
    settled = client.feedback(name, first.decision_id, reward=1)
    assert (charged.status, settled.status, settled.learned) == ("charged", "settled", True)
    assert client.feedback(name, first.decision_id, reward=1).replayed
    assert client.feedback(name, other.decision_id, void=True).status == "voided"
    account = client.budget(name)["usd"]
    assert (account.granted, account.spent, account.held) == (1000, 0.25, 0)
    assert client.set_budgets(name, {"usd": 500}).version == 2
    assert client.change_campaign(name, add_arms=[{"id": "new"}], expected_version=2).version == 3
    assert client.adjust(name, "usd", 1.5, "what fallbacks cost").spent == 1.75
    assert client.pause(name).status == "paused"
    assert (client.decide(name, [0, 0]).arm, client.decide(name, [0, 0]).reason) == (None, "paused")
    assert client.resume(name).status == "active"
    found = client.campaign(name)
    assert (found.round, found.version, found.accounts[0].granted) == (2, 3, 500)
    assert client.archive(name).status == "archived"
    assert name in [each.id for each in client.campaigns("archived")]
    assert client.verify(name).ok


def test_a_request_holds_the_max_costs_that_it_brings(client, name):
    assert client.decide(name, [0.3, 0.6], max_cost={"usd": 0.25}).hold == {"usd": 0.25}
    asks = [Ask([0.1, 0.2], max_cost={"usd": 0.1}, max_costs={"a": {"usd": 0.2}}), Ask([0.1, 0.2])]
    one, other = client.decide_batch(name, asks)
    assert (one.hold["usd"], other.hold["usd"]) == ({"a": 0.2, "b": 0.1}[one.arm], 1)
    with pytest.raises(InvalidError) as refused:
        client.decide(name, [0.3, 0.6], max_costs={"b": {"usd": 1.5}})
    assert refused.value.fields == {"max_costs.b.usd": "must be at most 1, the max cost declared for arm b"}


def test_batches_answer_in_order_with_errors_in_their_places(client, name):
    asks = [Ask([0.1, 0.2], "mine"), Ask([0.1]), Ask([0.3, 0.4])]
    mine, bad, made = client.decide_batch(name, asks)
    assert (mine.decision_id, mine.round, made.round) == ("mine", 0, 1)
    assert isinstance(bad, InvalidError)
    reports = [
        Report(name, "mine", 1, {"usd": 0.5}),
        Report(name, "nobody", 1),
        Report(name, made.decision_id, void=True),
    ]
    settled, unknown, voided = client.feedback_batch(reports)
    assert (settled.status, voided.status) == ("settled", "voided")
    assert isinstance(unknown, DecisionNotFoundError)


def test_each_refusal_has_its_error(client, server, name):
    client.decide(name, [0.1, 0.2], decision_id="d")
    client.feedback(name, "d", reward=1, costs={"usd": 1})
    held = client.decide(name, [0.1, 0.2])
    cases = [
        (CampaignExistsError, lambda: client.create_campaign(campaign(name))),
        (CampaignExistsError, lambda: client.ensure_campaign(campaign(name, horizon=9))),
        (CampaignNotFoundError, lambda: client.decide("nobody", [0.1, 0.2], fallback="a")),
        (DecisionIdReusedError, lambda: client.decide(name, [0.9, 0.9], decision_id="d", fallback="a")),
        (FeedbackDiffersError, lambda: client.feedback(name, "d", reward=0)),
        (DecisionNotFoundError, lambda: client.feedback(name, "nobody", reward=0)),
        (BudgetBelowSpentError, lambda: client.set_budgets(name, {"usd": 0.5})),
        (VersionDiffersError, lambda: client.change_campaign(name, horizon=5000, expected_version=9)),
        (InvalidError, lambda: client.decide(name, {"no": "list"})),
        (NotFoundError, lambda: client.campaign("a/b?c")),
    ]
    for error, call in cases:
        with pytest.raises(error) as raised:
            call()
        assert type(raised.value) is error
    client.feedback(name, held.decision_id, void=True)
    decider = client.create_key("ad server", "decider", [name]).key
    with Client(server.url, decider, terms=PATIENT) as limited:
        assert limited.decide(name, [0.1, 0.2]).arm
        with pytest.raises(ForbiddenError):
            limited.pause(name)


def test_a_wrong_key_is_an_error_even_with_a_fallback_and_loses_no_report(server, name):
    terms = Terms(decide_seconds=20, close_seconds=0.3)
    wrong = Client(server.url, "not-the-key-of-anybody", terms=terms)
    with pytest.raises(UnauthorizedError):
        wrong.decide(name, [0.1, 0.2], fallback="a")
    wrong.report(name, "d", reward=1)
    with pytest.raises(UndeliveredError) as left:
        wrong.close()
    assert left.value.reports == (Report(name, "d", reward=1),)
    assert "unauthorized" in str(left.value)


def test_feedback_on_a_fallback_goes_nowhere(client, name):
    late = Decision.fallback(name, "d", "a")
    assert client.feedback(name, late.decision_id, reward=1, costs={"usd": 1}).status == "ignored"
    client.report(name, late.decision_id, reward=1, costs={"usd": 1})
    assert client.reports_waiting == 0
    assert client.budget(name)["usd"].spent == 0


def test_refused_reports_are_handed_to_the_caller_and_the_others_arrive(client, server, name):
    refused = []
    with Client(
        server.url, ADMIN_KEY, terms=PATIENT, on_refused=lambda report, error: refused.append((report, error))
    ) as reporting:
        made = reporting.decide(name, [0.1, 0.2])
        reporting.report(name, "nobody", reward=1)
        reporting.report(name, made.decision_id, reward=1, costs={"usd": 0.5})
        assert reporting.flush(20)
    ((report, error),) = refused
    assert report.decision_id == "nobody"
    assert isinstance(error, DecisionNotFoundError)
    assert client.budget(name)["usd"].spent == 0.5


def test_threads_share_one_client_and_nothing_is_lost_or_counted_twice(client, name):
    def work(_):
        made = []
        for number in range(EACH):
            decision = client.decide(name, [number / EACH, 0.5])
            client.report(name, decision.decision_id, reward=1, costs={"usd": 0.25})
            made.append(decision)
        return made

    with ThreadPoolExecutor(THREADS) as pool:
        decisions = [decision for made in pool.map(work, range(THREADS)) for decision in made]
    assert client.flush(20)
    assert sorted(decision.round for decision in decisions) == list(range(THREADS * EACH))
    played = sum(decision.needs_feedback for decision in decisions)
    account = client.budget(name)["usd"]
    assert (account.spent, account.held) == (played / 4, 0)
    assert client.verify(name).ok


async def many_tasks(url, name):
    async with AsyncClient(url, ADMIN_KEY, terms=PATIENT) as client:
        await client.create_campaign(campaign(name))
        decisions = await asyncio.gather(*(client.decide(name, [each / TASKS, 0.5]) for each in range(TASKS)))
        for decision in decisions:
            client.report(name, decision.decision_id, reward=1, costs={"usd": 0.25})
        listed = [each.id async for each in client.campaigns()]
        together = await client.decide_batch(name, [Ask([0.1, 0.2]), Ask([0.3, 0.4])])
        voids = [Report(name, decision.decision_id, void=True) for decision in together]
        assert {result.status for result in await client.feedback_batch(voids)} <= {"voided", "ignored"}
        with pytest.raises(CampaignNotFoundError):
            await client.pause("nobody")
        assert (await client.feedback(name, "fallback:x", reward=1)).status == "ignored"
    return decisions, listed


def test_tasks_share_one_client_and_its_end_delivers_their_reports(server, name):
    decisions, listed = asyncio.run(many_tasks(server.url, name))
    assert name in listed
    assert sorted(decision.round for decision in decisions) == list(range(TASKS))
    with Client(server.url, ADMIN_KEY) as client:
        account = client.budget(name)["usd"]
        played = sum(decision.needs_feedback for decision in decisions)
        assert (account.spent, account.held) == (played / 4, 0)
        assert client.verify(name).ok


def forward(asking, server):
    with suppress(OSError):  # either side may hang up
        while asked := asking.recv(65536):
            server.sendall(asked)


@contextmanager
def losing_the_first_answer(port):
    """A way to the server on which the first answer is read and then lost with its connection."""
    lost = []

    class Pipe(socketserver.BaseRequestHandler):
        def handle(self):
            with socketserver.socket.create_connection(("127.0.0.1", port)) as server:
                threading.Thread(target=forward, args=(self.request, server), daemon=True).start()
                while answer := server.recv(65536):
                    if not lost:
                        lost.append(answer)
                        return
                    self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Pipe) as way:
        way.daemon_threads = True
        threading.Thread(target=way.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{way.server_address[1]}", lost
        way.shutdown()


def test_a_decision_whose_answer_was_lost_is_asked_for_again_and_made_once(client, server, name):
    with losing_the_first_answer(server.port) as (url, lost), Client(url, ADMIN_KEY, terms=PATIENT) as unlucky:
        decision = unlucky.decide(name, [0.3, 0.6])
    assert b"200 OK" in lost[0]
    assert (decision.replayed, decision.round) == (True, 0)
    assert client.campaign(name).round == 1


def test_a_closed_client_asks_and_takes_nothing_any_more():
    closed = Client("http://127.0.0.1:9", ADMIN_KEY)
    closed.close()
    closed.close()
    with pytest.raises(ValueError, match="the client is closed"):
        closed.decide("c", [0.1], fallback=None)
    with pytest.raises(ValueError, match="the client is closed"):
        closed.report("c", "d", reward=1)


def test_what_no_client_can_work_with_is_refused_when_it_is_made():
    for url, key in (
        ("localhost:8000", "k" * 32),
        ("ftp://host", "k" * 32),
        ("http://host", ""),
        ("http://host", "a\nb"),
    ):
        with pytest.raises(ValueError, match="must be"):
            Client(url, key)
    with pytest.raises(ValueError, match="decide_seconds must be above 0"):
        Terms(decide_seconds=0)
