"""A service that has all it can do refuses the rest at once, on connections that stay usable."""

import json
import socket
import time
from contextlib import ExitStack, suppress

import httpx
import pytest

from tests.service.databases import campaigns_locked
from tests.service.engine.campaigns import config
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import running_server

HEADERS = {"Authorization": f"Bearer {ADMIN_KEY}"}
DECIDE = {"campaign_id": "c", "context": [0, 0]}


@pytest.fixture
def client(tmp_path):
    """Of a server that has as many requests under way as it lets come in."""
    url = f"sqlite:///{tmp_path}/cbwk.db"
    with ExitStack() as stack:
        server = stack.enter_context(running_server(database_url=url, queue_max=3, statement_timeout_ms=60_000))
        client = stack.enter_context(httpx.Client(base_url=server.url, headers=HEADERS, trust_env=False, timeout=30))
        client.post("/campaigns", json=config()).raise_for_status()
        with campaigns_locked(url):
            for _ in range(3):  # they wait for the database, though nobody waits for them any more
                with suppress(httpx.ReadTimeout):
                    client.post("/decide", json=DECIDE, timeout=0.5)
            yield client


def test_a_refusal_is_an_answer_like_any_other_and_other_endpoints_still_answer(client):
    for path in ("/decide", "/decide/batch", "/feedback", "/feedback/batch"):
        refused = client.post(path, content=b"whatever it is, it is not read")
        assert refused.status_code == 503
        assert refused.json()["type"] == "urn:cbwk:problem:queue-full"
        assert refused.json()["status"] == 503
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["cache-control"] == "no-store"
        assert refused.headers["x-request-id"]
        assert refused.headers["date"]
    assert client.get("/livez").status_code == 200
    assert client.get("/campaigns/c").status_code == 200
    assert client.get("/decide").status_code == 405
    assert client.post("/decide", json=DECIDE, headers={"Connection": "close"}).status_code == 503


def test_the_rest_of_a_refused_request_is_not_taken_for_the_next_one(client):
    body = json.dumps(DECIDE).encode()
    head = f"POST /decide HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN_KEY}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=10) as connection:
        for _ in range(3):
            connection.sendall(head)
            answer = connection.recv(65536)  # before the body was sent
            assert answer.startswith(b"HTTP/1.1 503 ")
            connection.sendall(body[:5])
            connection.sendall(body[5:])
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_requests_that_come_in_one_piece_or_in_two_are_each_refused_once_and_in_their_order(client):
    body = json.dumps(DECIDE).encode()
    head = f"POST /decide HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN_KEY}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    whole = head + body
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=10) as connection:
        for pieces in ([whole], [whole[:30], whole[30:]], [whole], [whole + whole], [head, body], [whole]):
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(0.05)
            expected = b"".join(pieces).count(b"POST ")
            answers = b""
            while answers.count(b"urn:cbwk:problem:queue-full") < expected:
                answers += connection.recv(65536)
            assert answers.count(b"HTTP/1.1 503 ") == expected
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
