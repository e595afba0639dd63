"""A client without a key, or one that does not read its answers, can make the service hold only so much."""

import json
import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from service import assets
from service.hot.bounds import HEAD_BYTES_MAX, HEADERS_MAX, PIPELINED_MAX, WAITING_BYTES_MAX
from tests.service.engine.campaigns import config
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import running_server

SECONDS_MAX = 3
KEY = f"X-API-Key: {ADMIN_KEY}\r\n".encode()
BEARER = f"Authorization: Bearer {ADMIN_KEY}\r\n".encode()
WRONG_KEY = b"Authorization: Bearer " + b"x" * 43 + b"\r\n"
BODY = b'{"campaign_id": "c", "context": [0.5, 0.5]}'
SCRIPT = f"GET /{assets.address('plotly.min.js')} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
EXPORT = b"GET /admin/campaigns/c/export HTTP/1.1\r\nHost: x\r\n" + KEY + b"\r\n"


def post(headers=BEARER, body=BODY, path=b"/decide", length=None):
    length = len(body) if length is None else length
    return b"POST %b HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n%b" % (path, headers, length, body)


@pytest.fixture(scope="module")
def server():
    with (
        running_server(receive_seconds_max=SECONDS_MAX) as running,
        httpx.Client(base_url=running.url, headers={"X-API-Key": ADMIN_KEY}, trust_env=False, timeout=60) as client,
    ):
        client.post("/campaigns", json=config(horizon=1_000_000)).raise_for_status()
        items = [{"context": [0.5, 0.5]}] * 1000
        for _ in range(12):
            client.post("/decide/batch", json={"campaign_id": "c", "items": items}).raise_for_status()
        yield running


def connected(server, *, reads=True):
    client = socket.socket()
    if not reads:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(20)
    client.connect(("127.0.0.1", server.port))
    return client


def received(client):
    """All that comes until the server closes the connection."""
    found = b""
    try:
        while piece := client.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def answers(data):
    """The status and the body of each answer; all have a length."""
    found = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(lines[b"content-length"])
        found.append((int(head.split()[1]), lines, json.loads(rest[:size])))
        data = rest[size:]
    return found


def sent(server, *pieces):
    """The answers to some data, which the server answers and then closes the connection."""
    with connected(server) as client:
        for piece in pieces:
            try:
                client.sendall(piece)
            except OSError:
                break
            time.sleep(0.05 if len(pieces) > 1 else 0)
        return answers(received(client))


def kinds(found):
    return [(status, body.get("type", "").rpartition(":")[2]) for status, _, body in found]


def memory_bytes(server):
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("request_of", [SCRIPT, EXPORT], ids=["a file", "an export"])
def test_an_answer_that_is_not_read_is_given_up(server, request_of):
    with connected(server) as client:
        client.sendall(request_of.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        whole = len(received(client))
    with connected(server, reads=False) as client:
        client.sendall(request_of)
        time.sleep(SECONDS_MAX + 2.5)
        assert len(received(client)) < whole


def test_an_answer_that_is_read_slowly_is_sent_to_its_end(server):
    with connected(server, reads=False) as client:
        client.sendall(SCRIPT.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        head, _, rest = client.recv(65536).partition(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        taken, until = len(rest), time.monotonic() + 2 * SECONDS_MAX
        while time.monotonic() < until:
            taken += len(client.recv(32768))
            time.sleep(0.1)
        assert taken < size
        assert taken + len(received(client)) == size


def test_clients_that_do_not_read_a_file_share_its_bytes(server):
    before = memory_bytes(server)
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connected(server, reads=False)).sendall(SCRIPT)
        time.sleep(1)
        assert memory_bytes(server) - before < 100e6


@pytest.mark.parametrize("path", [b"/decide", b"/decide/batch", b"/campaigns"])
@pytest.mark.parametrize("headers", [WRONG_KEY, b""], ids=["a wrong key", "no key"])
def test_a_key_is_checked_before_the_body_comes(server, path, headers):
    for _ in range(2):  # the second time the key is known to be wrong
        with connected(server) as client:
            client.sendall(post(headers, b"{", path, length=500_000))
            assert client.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_body_with_a_valid_key_may_come_in_pieces(server):
    with connected(server) as client:
        request = post(body=BODY[:-1] + b" " * 500_000 + BODY[-1:])
        for start in range(0, len(request), 10_000):
            client.sendall(request[start : start + 10_000])
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_bodies_with_a_wrong_key_are_not_kept(server):
    before = memory_bytes(server)
    with ExitStack() as stack:
        for _ in range(30):
            client = stack.enter_context(connected(server))
            client.sendall(post(WRONG_KEY, b" " * (2**23 - 1), b"/decide/batch", length=2**23))
        assert memory_bytes(server) - before < 60e6


CHUNKED = b"POST /decide HTTP/1.1\r\nHost: x\r\n%bTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n"
LARGE = {
    "a header": [b"GET /livez HTTP/1.1\r\nX-A: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n"],
    "a header of a hot request": [post(BEARER + b"X-A: " + b"x" * HEAD_BYTES_MAX + b"\r\n")],
    "a target": [b"GET /" + b"x" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n"],
    "a header without an end": [b"GET /livez HTTP/1.1\r\nX-A: ", *[b"x" * 10_000] * 20],
    "a target without an end": [b"GET /", *[b"x" * 10_000] * 20],
    "a trailer without an end": [CHUNKED % (KEY, len(BODY), BODY) + b"X-A: ", *[b"x" * 10_000] * 20],
    "many short headers": [b"GET /livez HTTP/1.1\r\n" + b"a:\r\n" * (HEADERS_MAX + 2)],
    "many short headers of a hot request": [post(BEARER + b"a: b\r\n" * HEADERS_MAX)],
}


@pytest.mark.parametrize("name", LARGE)
def test_a_head_above_the_limit_is_431_and_ends_the_connection(server, name):
    assert kinds(sent(server, *LARGE[name])) == [(431, "head-too-large")]


def test_a_head_below_the_limit_is_served_whatever_is_sent_before_it(server):
    head = KEY + b"X-A: " + b"x" * (HEAD_BYTES_MAX - 500) + b"\r\n" + b"a: b\r\n" * 50
    before = post(body=b" " * 200_000 + BODY)
    last = post(head + b"Connection: close\r\n")
    for cut in (len(before) + 30_000, len(before) + 60_000, len(before) + len(last)):
        data = before + last
        assert [status for status, _, _ in sent(server, data[:cut], data[cut:])] == [200, 200]


def test_clients_that_wait_with_half_a_request_are_cut_off_when_they_hold_too_much(server):
    half, calm = b"GET /livez HTTP/1.1\r\nX-A: " + b"x" * (HEAD_BYTES_MAX - 1_000), post()
    with ExitStack() as stack:
        steady = stack.enter_context(connected(server))
        steady.sendall(calm[:-1])
        clients = [stack.enter_context(connected(server)) for _ in range(WAITING_BYTES_MAX // len(half) + 100)]
        for client in clients:
            client.sendall(half)
        time.sleep(0.5)
        ended = 0
        for client in clients:
            client.setblocking(False)
            try:
                ended += client.recv(1) == b""
            except ConnectionResetError:
                ended += 1
            except BlockingIOError:
                pass
        assert 100 <= ended < len(clients)
        steady.sendall(calm[-1:])
        assert steady.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_bodies_behind_an_answer_that_is_not_read_are_bounded(server):
    before = memory_bytes(server)
    with ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(connected(server, reads=False))
            client.setblocking(False)
            client.send(SCRIPT + post(WRONG_KEY, b" " * 250_000, b"/decide/batch", length=2**23))
        time.sleep(1)
        assert memory_bytes(server) - before < 100e6


def test_requests_that_wait_on_a_connection_are_bounded_and_those_before_are_answered(server):
    request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    found = sent(server, request * (PIPELINED_MAX + 50))
    assert kinds(found) == [(200, "")] * (PIPELINED_MAX + 1) + [(400, "not-http")]


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
HIDDEN = post(KEY, b"", b"/campaigns/c/pause")


@pytest.mark.parametrize("headers", [UPGRADE, UPGRADE.replace(b"h2c", b"websocket")], ids=["h2c", "websocket"])
@pytest.mark.parametrize("cut", [0, 10_000], ids=["at once", "body later"])
def test_a_request_for_another_protocol_is_served_in_this_one_with_its_whole_body(server, headers, cut):
    for key in (BEARER, KEY):
        padded = BODY[:-1] + b" " * 20_000 + BODY[-1:]
        request, last = post(key + headers, padded), post(b"Connection: close\r\n" + key)
        found = sent(server, request[: -cut or None], request[len(request) - cut :] + last)
        assert [status for status, _, _ in found] == [200, 200]
        # What is in the body is never a request of its own.
        found = sent(server, post(key + headers, HIDDEN), post(b"Connection: close\r\n" + key))
        assert kinds(found) == [(400, "not-json"), (200, "")]
    shown = httpx.get(f"{server.url}/campaigns/c", headers={"X-API-Key": ADMIN_KEY}, trust_env=False)
    assert shown.json()["status"] == "active"


def test_a_request_for_another_protocol_without_a_body_is_served(server):
    request = b"GET /livez HTTP/1.1\r\nHost: x\r\n" + UPGRADE + b"\r\n"
    found = sent(server, request * 3 + b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert [status for status, _, _ in found] == [200] * 4


def test_a_tunnel_is_refused(server):
    assert kinds(sent(server, b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN)) == [(400, "not-http")]


@pytest.mark.parametrize("key", [BEARER, KEY], ids=["Authorization", "X-API-Key"])
def test_a_key_in_a_trailer_is_no_key(server, key):
    data = CHUNKED % (b"Connection: close\r\n", len(BODY), BODY)
    assert kinds(sent(server, data + key + b"\r\n")) == [(401, "key-missing")]
    data = CHUNKED % (b"Connection: close\r\n" + key, len(BODY), BODY)
    assert kinds(sent(server, data + b"X-A: b\r\n\r\n")) == [(200, "")]


GOOD = {
    "the short way": post(),
    "the long way": post(KEY),
    "a read": b"GET /campaigns/c HTTP/1.1\r\nHost: x\r\n" + KEY + b"\r\n",
}
BAD = {
    "nonsense": b"nonsense\r\n\r\n",
    "a bad length": post(BEARER, b"", b"/decide").replace(b"Length: 0", b"Length: x"),
    "a bad chunk": b"POST /decide HTTP/1.1\r\nHost: x\r\n" + KEY + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a target without a path": b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n",
    "a target with a bad port": b"GET http://x:99999/livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "a bad target and another protocol": b"GET http://x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
}


@pytest.mark.parametrize("good", GOOD)
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_requests_before_one_that_cannot_be_read_get_their_answers(server, good, bad, count):
    found = sent(server, GOOD[good] * count + BAD[bad] + HIDDEN)
    assert kinds(found) == [(200, "")] * count + [(400, "not-http")]
    *_, (_, lines, _) = found
    assert lines[b"content-type"] == b"application/problem+json"
    assert lines[b"connection"] == b"close"
    assert lines[b"x-content-type-options"] == b"nosniff"
    assert lines[b"x-request-id"]


def test_a_request_that_is_answered_before_its_bad_body_gets_no_second_answer(server):
    start = b"POST /decide HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert kinds(sent(server, start, b"zz\r\n")) == [(401, "key-missing")]
