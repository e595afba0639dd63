"""PgBouncer between the service and PostgreSQL: session mode works, transaction mode is refused with one line."""

import asyncio
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from service.store.database import Database
from service.store.errors import DatabaseUnreachable
from tests.service.http_calls import calls, campaign, create, decide_body, failed_checks
from tests.service.pgbouncer import MISSING, new_pooler
from tests.service.server_process import CBWK, running_server

BACK_SECONDS_MAX = 30.0
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def name(postgresql_server):
    """The name of a database with empty tables."""
    with postgresql_server.database(template="with_tables") as url:
        yield url.partition("@/")[2].partition("?")[0]


def played(client, label, rounds):
    """Decide and report; returns the statuses and types of the answers that are no decisions."""
    others = set()
    for number in range(rounds):
        answer = client.post("/decide", json=decide_body(f"{label}{number}", context=[number % 7 / 7, 0.5]))
        if answer.status_code != 200:
            others.add((answer.status_code, answer.json()["type"], answer.json()["detail"]))
        elif answer.json()["arm"] is not None:
            report = {"campaign_id": "c", "decision_id": f"{label}{number}", "reward": 1, "costs": {"usd": 0.5}}
            client.post("/feedback", json=report)
    return others


def read_all(client):
    paths = ["/readyz", "/campaigns", "/admin/campaigns/c/verify", "/admin/budgets", "/admin/campaigns/c/timeline"]
    answers = [client.get(path) for path in paths * 4]
    return {(answer.status_code, answer.json().get("type")) for answer in answers}


def until_it_decides(client):
    deadline = time.monotonic() + BACK_SECONDS_MAX
    while played(client, f"back-{time.monotonic()}", 1) or read_all(client) != {(200, None)}:
        assert time.monotonic() < deadline, "the service does not come back"


def test_in_session_mode_two_processes_serve_and_the_books_hold(postgresql_server, name):
    with (
        new_pooler(postgresql_server.folder, "session", default_pool_size=20) as pooler,
        running_server(database_url=pooler.url(name)) as one,
        running_server(database_url=pooler.url(name)) as two,
        calls(one) as here,
        calls(two) as there,
        ThreadPoolExecutor(4) as pool,
    ):
        create(here, campaign())
        tasks = [pool.submit(played, client, label, 60) for client in (here, there) for label in (f"{id(client)}",)]
        tasks += [pool.submit(read_all, client) for client in (here, there)]
        assert [task.result() for task in tasks] == [set(), set(), {(200, None)}, {(200, None)}]
        assert here.get("/campaigns/c").json()["round"] == 120
        assert failed_checks(there) == []


@pytest.mark.parametrize("pool", [1, 2, 20])
@pytest.mark.parametrize("round_robin", [0, 1])
def test_transaction_mode_is_refused(postgresql_server, name, pool, round_robin):
    settings = {"default_pool_size": pool, "server_round_robin": round_robin}
    with new_pooler(postgresql_server.folder, "transaction", **settings) as pooler:
        for _ in range(3):  # the pool has more sessions each time
            with pytest.raises(DatabaseUnreachable, match="pool_mode = session"):
                Database.open(pooler.url(name))


def test_in_transaction_mode_the_service_ends_with_one_line(postgresql_server, name):
    with new_pooler(postgresql_server.folder, "transaction") as pooler:
        ended = subprocess.run(
            [CBWK, "serve", "--port", "0", "--database-url", pooler.url(name)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=os.environ | {"CBWK_ADMIN_KEY": "a" * 32},
        )
        assert ended.returncode == 1
        (line,) = ended.stderr.splitlines()
        assert line.startswith("cbwk: ")
        assert "pool_mode = session" in line


def test_transaction_mode_is_found_among_busy_clients(postgresql_server, name):
    async def busy(url):
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            while True:
                await connection.execute("SELECT pg_sleep(0.001)", prepare=False)

    async def open_often(url):
        clients = [asyncio.create_task(busy(url)) for _ in range(8)]
        for _ in range(20):
            with pytest.raises(DatabaseUnreachable, match="pool_mode = session"):
                await asyncio.to_thread(Database.open, url)
        for client in clients:
            client.cancel()

    with new_pooler(postgresql_server.folder, "transaction") as pooler:
        asyncio.run(open_often(pooler.url(name)))


def test_a_pooler_that_changes_to_transaction_mode_makes_503_that_say_so_and_loses_nothing(postgresql_server, name):
    with (
        new_pooler(postgresql_server.folder, "session", default_pool_size=40) as pooler,
        running_server(database_url=pooler.url(name)) as server,
        calls(server) as client,
    ):
        create(client, campaign())
        assert played(client, "before", 20) == set()
        with ThreadPoolExecutor(4) as pool:
            pooler.change_mode("transaction")
            tasks = [pool.submit(played, client, f"after{number}-", 100) for number in range(4)]
            reads = [pool.submit(read_all, client) for _ in range(4)]
            found = set().union(*(task.result() for task in tasks))
            seen = set().union(*(read.result() for read in reads))
        assert {status for status, *_ in found | seen} <= {200, 503}
        assert any("pool_mode = session" in detail for *_, detail in found)
        pooler.change_mode("session")
        until_it_decides(client)
        assert played(client, "again", 5) == set()
        assert failed_checks(client) == []
