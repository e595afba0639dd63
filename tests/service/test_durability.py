"""What was answered stays, through kill -9, SIGTERM and restarts, and is never counted twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from itertools import count

import pytest

from tests.service.databases import campaigns_locked
from tests.service.http_calls import (
    account,
    at_once,
    calls,
    campaign,
    connected,
    create,
    decide_body,
    failed_checks,
)
from tests.service.server_process import CBWK, free_port, running_server

KILLS = int(os.environ.get("CBWK_TEST_REPETITIONS", "1"))
WORKERS = 8
LOAD_SECONDS = 0.4
STOP_SECONDS_MAX = 5.0
QUEUED = 40


@dataclass
class Diary:
    """Every request that was sent, with the bytes it was answered with, None where no answer came."""

    decides: list[tuple[dict, bytes | None]] = field(default_factory=list)
    reports: list[tuple[dict, bytes | None]] = field(default_factory=list)
    numbers: count = field(default_factory=count)


async def ask_and_report(connection, diary):
    """Decide and report, one after the other, until the server is gone."""
    while True:
        number = next(diary.numbers)
        body = decide_body(f"d{number}", context=[number % 7 / 7, 0.5])
        answer = await kept(connection, "/decide", body, diary.decides)
        if answer is None or answer.json["arm"] is None:
            continue
        report = {"campaign_id": "c", "decision_id": f"d{number}", "reward": number % 2, "costs": {"usd": 0.25}}
        await kept(connection, "/feedback", report, diary.reports)


async def kept(connection, path, body, pages):
    """The answer, noted; None if it was 503. Raises when the server is gone, having noted that no answer came."""
    place = len(pages)
    pages.append((body, None))
    answer = await connection.post(path, body)
    if answer.status == 503:
        return None
    assert answer.status == 200, answer.body
    pages[place] = (body, answer.body)
    return answer


async def kill_under_load(server, diary):
    async with connected(server, WORKERS) as connections:
        workers = [asyncio.create_task(ask_and_report(connection, diary)) for connection in connections]
        await asyncio.sleep(LOAD_SECONDS)
        server.process.kill()
        ends = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(end, ConnectionError | EOFError) for end in ends), ends


async def send_again(server, path, pages):
    """All of it once more: what was answered is answered byte for byte the same, as a replay."""
    answers = []

    async def again(connection, waiting):
        for body, before in waiting:
            answer = await connection.post(path, body)
            assert answer.status == 200, answer.body
            assert before is None or (answer.body, answer.replayed) == (before, True)
            answers.append(answer.json)

    async with connected(server, WORKERS) as connections:
        waiting = iter(pages)
        await asyncio.gather(*(again(connection, waiting) for connection in connections))
    return answers


@pytest.mark.slow
def test_kill_9_loses_nothing_that_was_answered_and_counts_nothing_twice(migrated_url):
    diary = Diary()
    for kill in range(KILLS):
        with running_server(database_url=migrated_url) as server:
            if kill == 0:
                with calls(server) as client:
                    create(client, campaign(budget=1_000_000, horizon=100_000))
            asyncio.run(kill_under_load(server, diary))
    with running_server(database_url=migrated_url, request_deadline_ms=30_000) as server, calls(server) as client:
        assert failed_checks(client) == []
        answers = asyncio.run(send_again(server, "/decide", diary.decides))
        asyncio.run(send_again(server, "/feedback", diary.reports))
        answered = [answer for _, answer in diary.decides + diary.reports if answer is not None]
        assert len(answered) > 20 * KILLS
        assert client.get("/campaigns/c").json()["round"] == len(diary.decides)
        made = sum(answer["arm"] is not None for answer in answers)
        found = account(client)
        assert (found["spent"], found["held"]) == (len(diary.reports) / 4, made - len(diary.reports))
        assert failed_checks(client) == []


async def queue_then_stop(server, url):
    """Requests that wait for a lock when the signal comes; the lock is given back a little later."""
    with campaigns_locked(url):
        asked = asyncio.create_task(at_once([server], "/decide", [decide_body(f"d{i}") for i in range(QUEUED)]))
        await asyncio.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        stopped = time.monotonic()
        await asyncio.sleep(0.3)
        assert not asked.done()
    replies = await asked
    await asyncio.to_thread(server.process.wait, STOP_SECONDS_MAX)
    return replies, time.monotonic() - stopped


def test_sigterm_answers_what_is_queued_and_ends_in_good_order_and_a_start_finds_it_again(migrated_url):
    patience = {"lock_timeout_ms": 5_000, "request_deadline_ms": 5_000}
    with running_server(database_url=migrated_url, **patience) as server:
        with calls(server) as client:
            create(client, campaign())
        replies, seconds = asyncio.run(queue_then_stop(server, migrated_url))
    assert [reply.status for reply in replies] == [200] * QUEUED
    assert server.process.returncode == 0
    assert seconds < STOP_SECONDS_MAX
    with running_server(database_url=migrated_url, request_deadline_ms=20_000) as server, calls(server) as client:
        assert client.get("/campaigns/c").json()["round"] == QUEUED
        again = [client.post("/decide", json=decide_body(f"d{i}")).content for i in range(QUEUED)]
        assert again == [reply.body for reply in replies]
        assert failed_checks(client) == []


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_second_process_on_the_same_sqlite_file_is_refused_in_one_line(migrated_url, tmp_path):
    with running_server(database_url=migrated_url):
        second = subprocess.run(
            [CBWK, "serve", "--port", str(free_port()), "--database-url", migrated_url],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert second.returncode == 1
    assert second.stdout == ""
    (line,) = second.stderr.splitlines()
    assert line.startswith("cbwk: another process uses ")
