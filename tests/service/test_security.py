"""Attacks of a malicious client: guessed keys, leaked secrets, smuggled requests, requests that never end."""

import json
import signal
import socket
import statistics
import threading
import time
from contextlib import ExitStack

import httpx
import psycopg
import pytest

from service.auth import KeyRing
from service.store.keys import create_key, revoke_key
from tests.service.engine.campaigns import config
from tests.service.http_client import ADMIN_KEY, key_for, served
from tests.service.server_process import running_server

HEADERS = {"Authorization": f"Bearer {ADMIN_KEY}"}
PASSWORD = "pass-word-of-the-database"
SLOW_CLIENTS = 100
RECEIVE_SECONDS_MAX = 3


@pytest.fixture(params=["sqlite"])
def dialect(request):
    return request.param


class Watched(str):
    """A key that fails the test if its text is compared."""

    __slots__ = ()

    def _compared(self, *_: object) -> bool:
        raise AssertionError("the text of a key was compared")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _compared
    __hash__ = _compared


def test_a_key_is_looked_up_by_its_digest_and_its_text_is_never_compared(database):
    with database.write() as connection:
        _, text = create_key(connection, "n", "reader", None, now=1)
        revoked, gone = create_key(connection, "n", "reader", None, now=1)
        revoke_key(connection, revoked, now=2)
    ring = KeyRing(database, ADMIN_KEY)
    for _ in range(2):  # from the database, then from the cache
        assert ring.lookup(Watched(ADMIN_KEY)).role == "admin"
        assert ring.lookup(Watched(text)).role == "reader"
        for wrong in (gone, text[:-1] + "~", text[:-1], ADMIN_KEY[:-1], ""):
            assert ring.lookup(Watched(wrong)) is None


def test_the_time_of_a_lookup_does_not_reveal_how_much_of_a_key_is_right(database):
    ring = KeyRing(database, ADMIN_KEY)
    half = len(ADMIN_KEY) // 2
    guesses = ["x" * len(ADMIN_KEY), ADMIN_KEY[:half].ljust(len(ADMIN_KEY), "x"), ADMIN_KEY[:-1] + "x"]
    for guess in guesses:
        assert ring.lookup(guess) is None
    took = {guess: [] for guess in guesses}
    for _ in range(4_000):  # alternately, so that other load on the machine affects all guesses alike
        for guess, times in took.items():
            started = time.perf_counter_ns()
            ring.remembered(guess)
            times.append(time.perf_counter_ns() - started)
    medians = [statistics.median(times) for times in took.values()]
    assert max(medians) < 1.25 * min(medians) + 300


def test_responses_forbid_caching_and_sniffing_and_pages_forbid_frames(database):
    reader = key_for(database, "reader")
    with served(database) as client:
        answers = [
            client("POST", "/admin/keys", json={"name": "n", "role": "decider"}),
            client("POST", "/campaigns", json=config()),
            client("POST", "/decide", json={"campaign_id": "c", "context": [0, 0]}),
            client("POST", "/decide", json={"campaign_id": "unknown", "context": [0, 0]}),
            client("GET", "/campaigns", key=reader),
            client("GET", "/admin/campaigns/c/export", key=reader),
            client("GET", "/campaigns", key="wrong"),
            client("GET", "/nowhere"),
            client("GET", "/openapi.json"),
            client("GET", "/metrics"),
            client("GET", "/docs"),
        ]
    assert [answer.status_code for answer in answers] == [201, 201, 200, 404, 200, 200, 401, 404, 200, 200, 200]
    for answer in answers:
        assert answer.headers.get_list("cache-control") == ["no-store"], answer.url
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], answer.url
    docs = answers[-1]
    policy = dict(part.split(" ", 1) for part in docs.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert "unsafe" not in policy["script-src"]
    assert "*" not in docs.headers["content-security-policy"]
    assert docs.headers["referrer-policy"] == "no-referrer"
    assert docs.headers["x-frame-options"] == "DENY"


def bad_requests(url, secret):
    """Send requests that fail, with a secret wherever a response or a log line might repeat it."""
    decide = {"campaign_id": "c", "decision_id": "d", "context": [0.1, 0.2]}
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        yield client.get("/campaigns", headers={"Authorization": f"Bearer {secret}"})
        yield client.get("/campaigns", headers={"X-API-Key": secret})
        yield client.get("/campaigns", headers={"Authorization": f"Basic {secret}"})
        yield client.get(f"/campaigns/{secret}", headers=HEADERS)
        yield client.get(f"/nowhere/{secret}?api_key={secret}", headers=HEADERS)
        yield client.get("/campaigns", params={"limit": secret, "cursor": secret}, headers=HEADERS)
        yield client.put("/decide", json={"key": secret}, headers=HEADERS)
        for body in (
            secret.encode(),
            f'"{secret}"'.encode(),
            b'{"campaign_id": "\xff"}',
            b"[" * 5000,
            b"{" + b" " * 2**20,
        ):
            yield client.post("/decide", content=body, headers=HEADERS)
        for changes in (
            {"campaign_id": secret + "/"},
            {"context": [secret]},
            {"context": {"a": secret}},
            {"exclude": secret},
        ):
            yield client.post("/decide", json=decide | changes, headers=HEADERS)
        yield client.post("/feedback", json={"campaign_id": "c", "decision_id": "d", "reward": secret}, headers=HEADERS)
        yield client.post("/campaigns", json=config("x", seed=secret), headers=HEADERS)
        yield client.post("/admin/keys", json={"name": "n", "role": secret}, headers=HEADERS)
        yield client.put("/admin/campaigns/c/model", content=secret.encode(), headers=HEADERS)


def good_requests(url):
    """Create, use and revoke a key; return its text and the responses."""
    with httpx.Client(base_url=url, trust_env=False, timeout=30, headers=HEADERS) as client:
        answers = [client.post("/campaigns", json=config())]
        made = client.post("/admin/keys", json={"name": "n", "role": "decider"})
        key = {"Authorization": f"Bearer {made.json()['key']}"}
        answers += [
            client.post("/decide", json={"campaign_id": "c", "decision_id": "d", "context": [0, 0]}, headers=key),
            client.post(
                "/feedback", json={"campaign_id": "c", "decision_id": "d", "reward": 1, "costs": {}}, headers=key
            ),
            *(client.get(path) for path in ("/admin/keys", "/admin/audit", "/metrics", "/readyz", "/docs")),
            client.delete(f"/admin/keys/{made.json()['id']}"),
        ]
        return made.json()["key"], answers


def test_no_response_and_no_log_line_has_a_secret_or_a_stack_trace(postgresql_server):
    with ExitStack() as stack:
        url = stack.enter_context(postgresql_server.database(template="with_tables"))
        url_with_password = url.replace("postgres@", f"postgres:{PASSWORD}@")
        server = stack.enter_context(running_server(database_url=url_with_password, log_level="debug"))
        key, answers = good_requests(server.url)
        assert {answer.status_code for answer in answers} <= {200, 201}
        secret = "cbwk_" + "Zz9-" * 10 + "end"
        failed = list(bad_requests(server.url, secret))
        assert {answer.status_code for answer in failed} == {400, 401, 404, 405, 409, 413, 422}
        with psycopg.connect(url) as connection:  # from here on requests fail with 500, and the log must say why
            connection.execute("ALTER TABLE decision RENAME TO lost")
        broken = httpx.post(
            server.url + "/decide", json={"campaign_id": "c", "context": [0.25, 0]}, headers=HEADERS, trust_env=False
        )
        assert broken.status_code == 500
        server.process.send_signal(signal.SIGTERM)
        out, log = server.process.communicate(timeout=30)
    for answer in [*answers, *failed, broken]:
        text = f"{answer.headers} {answer.text}"
        for private in (ADMIN_KEY, key, secret, PASSWORD, "Traceback", "service/", "psycopg", "sqlalchemy"):
            assert private not in text, (answer.request.url, private)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
    for private in (ADMIN_KEY, key, secret, PASSWORD, "[0.25"):
        assert private not in out + log, private
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    traced = [line for line in lines if "Traceback" in str(line)]
    assert [line["event"] for line in traced] == ["command failed", "request failed"]  # only for the broken table
    assert traced[-1]["request_id"] == broken.headers["x-request-id"]


@pytest.fixture(scope="module")
def server():
    """A server with a short time to receive a request."""
    with running_server(receive_seconds_max=RECEIVE_SECONDS_MAX, request_deadline_ms=1_000) as running:
        for name in ("c", "d"):
            httpx.post(
                running.url + "/campaigns", json=config(name), headers=HEADERS, trust_env=False
            ).raise_for_status()
        yield running


def hidden(name):
    start = f"POST /campaigns/{name}/pause HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN_KEY}\r\n".encode()
    return start + b"Content-Length: 0\r\n\r\n"


def exchanged(server, sent):
    """Return the received bytes until the server closes the connection or is silent, and whether it closed it."""
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=1.0) as connection:
        connection.sendall(sent)
        while True:
            try:
                piece = connection.recv(65536)
            except TimeoutError:
                return received, False
            except ConnectionResetError:
                return received, True
            if not piece:
                return received, True
            received += piece


def status_of(server, name):
    return httpx.get(f"{server.url}/campaigns/{name}", headers=HEADERS, trust_env=False).json()["status"]


AMBIGUOUS = {
    "two lengths": (b"Content-Length: 2\r\nContent-Length: 0\r\n", b"{}"),
    "the same length twice": (b"Content-Length: 2\r\nContent-Length: 2\r\n", b"{}"),
    "a list of lengths": (b"Content-Length: 2, 2\r\n", b"{}"),
    "a length with a sign": (b"Content-Length: +2\r\n", b"{}"),
    "a length in hexadecimal": (b"Content-Length: 0x2\r\n", b"{}"),
    "a length beyond all numbers": (b"Content-Length: 18446744073709551618\r\n", b"{}"),
    "a length and chunks": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "chunks and a length": (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n"),
    "an unknown encoding": (b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    "chunks that are not last": (b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"),
    "two encodings": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"0\r\n\r\n"),
    "an encoding after a vertical tab": (b"Transfer-Encoding:\x0bchunked\r\n", b"0\r\n\r\n"),
    "a folded header": (b"X-A: b\r\n c\r\nContent-Length: 0\r\n", b""),
    "a folded encoding": (b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n"),
    "a folded length": (b"Content-Length: 0\r\n 2\r\n", b"{}"),
    "a bare line feed": (b"X-A: b\nContent-Length: 0\r\n", b""),
    "a bare carriage return": (b"X-A: b\rContent-Length: 0\r\n", b""),
    "a space before the colon": (b"Content-Length : 2\r\n", b"{}"),
    "a zero byte": (b"X-A: b\x00c\r\nContent-Length: 0\r\n", b""),
    "a chunk that ends with a line feed": (b"Transfer-Encoding: chunked\r\n", b"0\n\n"),
    "an extension that ends with a line feed": (b"Transfer-Encoding: chunked\r\n", b"2;a\n{}\r\n0\r\n\r\n"),
    "a chunk longer than it says": (b"Transfer-Encoding: chunked\r\n", b"1\r\n{}\r\n0\r\n\r\n"),
    "a chunk beyond all numbers": (b"Transfer-Encoding: chunked\r\n", b"10000000000000002\r\n{}\r\n0\r\n\r\n"),
    "a chunk in another notation": (b"Transfer-Encoding: chunked\r\n", b"0x2\r\n{}\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_a_request_whose_end_is_ambiguous_ends_the_connection_and_hides_no_other(server, case):
    headers, body = AMBIGUOUS[case]
    start = f"POST /campaigns HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN_KEY}\r\n".encode()
    received, closed = exchanged(server, start + headers + b"\r\n" + body + hidden("c"))
    assert closed
    assert received.count(b"HTTP/1.1 ") == 1
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json\r\n" in received
    assert b'"urn:cbwk:problem:not-http"' in received
    assert status_of(server, "c") == "active"


def test_a_request_after_a_complete_one_is_served(server):
    """Without this the test above would prove nothing."""
    first = f"GET /campaigns/c HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN_KEY}\r\n\r\n".encode()
    received, _ = exchanged(server, first + hidden("d"))
    assert received.count(b"HTTP/1.1 200 ") == 2
    assert status_of(server, "d") == "paused"


def drip(connection, ends):
    """Send a byte every 0.2 s until the server closes the connection; append the time of that."""
    started = time.monotonic()
    try:
        while time.monotonic() - started < 4 * RECEIVE_SECONDS_MAX:
            connection.send(b"x")
            time.sleep(0.2)
    except OSError:
        ends.append(time.monotonic() - started)


def test_clients_that_never_finish_a_request_delay_no_other_and_are_disconnected(server):
    begun = f"POST /decide HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN_KEY}\r\n".encode()
    starts = (b"", b"POST /deci", begun + b"X-A: ", begun + b"Content-Length: 100000\r\n\r\n{")
    took, ends = [], []
    with ExitStack() as stack:
        threads = []
        for number in range(SLOW_CLIENTS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            connection.sendall(starts[number % len(starts)])
            if number % len(starts) == 0:
                continue  # sends nothing
            threads.append(threading.Thread(target=drip, args=(connection, ends)))
            threads[-1].start()
        client = stack.enter_context(httpx.Client(base_url=server.url, trust_env=False, headers=HEADERS))
        until = time.monotonic() + RECEIVE_SECONDS_MAX - 0.5
        while time.monotonic() < until:
            started = time.monotonic()
            answer = client.post("/decide", json={"campaign_id": "c", "context": [0, 0]})
            assert answer.status_code == 200
            took.append(time.monotonic() - started)
        assert not ends
        for thread in threads:
            thread.join()
    assert statistics.quantiles(took, n=20)[-1] < 0.5
    assert len(ends) == len(threads)
    assert max(ends) < 3 * RECEIVE_SECONDS_MAX
