"""The service is killed, frozen, locked or away while clients use it: ads are served, nothing is counted twice."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextlib import contextmanager
from itertools import count

import pytest

from cbwk_client import AsyncClient, Client, Terms, UnavailableError
from tests.service.databases import campaigns_locked
from tests.service.http_calls import calls, campaign
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import free_port, running_server
from tests.service.shared_server import server_on

pytestmark = pytest.mark.slow

WORKERS = 4
DECISIONS = 40
FALLBACKS = 8
# How long an ad server may wait for a frozen service: its limit of 0.1 s, and what a busy machine adds.
FALLBACK_SECONDS_MAX = 1.0
VOID_SECONDS_MAX = 30.0
FROZEN_DECISIONS = 6
NUMBERS = count()
TERMS = Terms(close_seconds=30, server_deadline_seconds=0.5)


@pytest.fixture(scope="module", params=["sqlite"])  # the rules are the client's own
def patient(request, tmp_path_factory):
    """A server that waits for its database longer than any client does, and the database's URL."""
    with server_on(request.param, request, tmp_path_factory, lock_timeout_ms=30_000) as served:
        yield served


@pytest.fixture
def name():
    return f"c{next(NUMBERS)}"


@contextmanager
def frozen(process):
    """It neither answers nor refuses meanwhile."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def wait_for_voids(client):
    deadline = time.monotonic() + VOID_SECONDS_MAX
    while client.voids_waiting:
        assert time.monotonic() < deadline, f"late decisions are not voided: {client.last_failure}"
        time.sleep(0.02)


def log_of(server, name):
    """Every decision the service knows, by its id."""
    found, cursor = {}, {}
    with calls(server) as http:
        while True:
            page = http.get(f"/admin/campaigns/{name}/decisions", params={"limit": 1000, **cursor}).json()
            found |= {item["decision_id"]: item for item in page["items"]}
            if page["next_cursor"] is None:
                return found
            cursor = {"cursor": page["next_cursor"]}


class AdServer:
    """Workers that decide and report without looking at how the service does."""

    def __init__(self, client):
        self.client = client
        self.decisions = []
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(WORKERS)]

    def work(self):
        while not self.stopped.is_set():
            decision = self.client.decide("c", [0.3, 0.6], fallback="a", seconds=0.5)
            self.client.report("c", decision.decision_id, reward=1, costs={"usd": 0.25})
            self.decisions.append(decision)

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def wait_for(self, number, *, fallback=False):
        """Until so many more decisions were made by the service, or without it."""
        number += sum(decision.is_fallback == fallback for decision in self.decisions)
        deadline = time.monotonic() + VOID_SECONDS_MAX
        while sum(decision.is_fallback == fallback for decision in self.decisions) < number:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_a_service_killed_and_started_again_gets_every_report_once_and_decides_nothing_twice(migrated_url):
    port = free_port()
    with Client(f"http://127.0.0.1:{port}", ADMIN_KEY, terms=TERMS) as client:
        ads = AdServer(client)
        with running_server(port=port, database_url=migrated_url) as server:
            client.create_campaign(campaign(budget=1_000_000, horizon=100_000))
            ads.start()
            ads.wait_for(DECISIONS)
            server.process.kill()
            ads.wait_for(FALLBACKS, fallback=True)
        with running_server(port=port, database_url=migrated_url) as server:
            ads.wait_for(DECISIONS)
            ads.stop()
            assert client.flush(VOID_SECONDS_MAX)
            wait_for_voids(client)
            log = log_of(server, "c")
            assert client.verify("c").ok
            account = client.budget("c")["usd"]
    answered = {each.decision_id: each for each in ads.decisions if not each.is_fallback}
    assert len(answered) == sum(not each.is_fallback for each in ads.decisions)
    assert {name: log[name]["round"] for name in answered} == {name: each.round for name, each in answered.items()}
    played = {name for name, each in answered.items() if each.needs_feedback}
    assert {name for name, each in log.items() if each["status"] == "settled"} == played
    assert {each["status"] for name, each in log.items() if name not in answered} <= {"voided", "null"}
    assert (account.spent, account.held) == (len(played) / 4, 0)


def test_a_frozen_service_is_not_waited_for_and_holds_nothing_once_it_is_back(patient, name):
    server, _ = patient
    with Client(server.url, ADMIN_KEY, terms=TERMS) as client:
        client.create_campaign(campaign(name))
        client.decide(name, [0.3, 0.6], seconds=20)
        with frozen(server.process):
            for _ in range(FROZEN_DECISIONS):
                started = time.monotonic()
                decision = client.decide(name, [0.3, 0.6], fallback="b")
                assert time.monotonic() - started < FALLBACK_SECONDS_MAX
                assert (decision.arm, decision.is_fallback) == ("b", True)
            assert client.voids_waiting == FROZEN_DECISIONS
            time.sleep(1.5 * TERMS.server_deadline_seconds)  # voids are tried, and not answered either
        wait_for_voids(client)
        first, *late = sorted(log_of(server, name).values(), key=lambda each: each["round"])
        assert first["status"] == "held"
        assert {each["status"] for each in late} <= {"voided", "null"}
        assert client.budget(name)["usd"].held == 1
        assert client.verify(name).ok


def test_a_decision_that_was_made_too_late_is_voided(patient, name):
    server, database_url = patient
    with Client(server.url, ADMIN_KEY, terms=TERMS) as client:
        client.create_campaign(campaign(name))
        with campaigns_locked(database_url):
            late = [client.decide(name, [0.3, 0.6], fallback=None) for _ in range(3)]
            assert [each.arm for each in late] == [None] * 3
        wait_for_voids(client)
        log = log_of(server, name)
        assert {each.decision_id.removeprefix("fallback:") for each in late} == set(log)
        assert {each["status"] for each in log.values()} == {"voided"}
        assert client.budget(name)["usd"].held == 0
        assert client.verify(name).ok


async def called_off(server, database_url, name):
    """A caller who does not wait for the decision, and so never learns its id."""
    async with AsyncClient(server.url, ADMIN_KEY, terms=TERMS) as client:
        await client.create_campaign(campaign(name))
        with campaigns_locked(database_url):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await client.decide(name, [0.3, 0.6], seconds=20)
            assert client.voids_waiting == 1


def test_a_decision_that_was_called_off_is_voided_before_the_client_ends(patient, name):
    server, database_url = patient
    asyncio.run(called_off(server, database_url, name))
    assert [each["status"] for each in log_of(server, name).values()] == ["voided"]


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_service_that_answers_503_gets_its_reports_when_it_is_well_again(migrated_url):
    with (
        running_server(database_url=migrated_url, lock_timeout_ms=100, request_deadline_ms=300) as server,
        Client(server.url, ADMIN_KEY, terms=TERMS) as client,
    ):
        client.create_campaign(campaign())
        made = [client.decide("c", [0.3, 0.6], seconds=20) for _ in range(5)]
        with campaigns_locked(migrated_url):
            for decision in made:
                client.report("c", decision.decision_id, reward=1, costs={"usd": 0.5})
            with pytest.raises(UnavailableError) as raised:
                client.decide("c", [0.3, 0.6], seconds=1.0)
            assert raised.value.retry_after_seconds == 1
            assert client.decide("c", [0.3, 0.6], fallback="a", seconds=1.0).is_fallback
            deadline = time.monotonic() + VOID_SECONDS_MAX
            while client.last_failure is None and time.monotonic() < deadline:
                time.sleep(0.01)
            assert client.last_failure.startswith("503")
            assert client.reports_waiting == len(made)
        assert client.flush(VOID_SECONDS_MAX)
        wait_for_voids(client)
        account = client.budget("c")["usd"]
        assert (account.spent, account.held) == (len(made) / 2, 0)
        assert client.verify("c").ok
