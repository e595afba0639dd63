"""Hot requests go a short way or a long one, and nobody can tell which from the answer."""

import json
import socket
import time

import httpx
import pytest

from tests.service.databases import campaigns_locked
from tests.service.engine.campaigns import config
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import running_server

# A scheme in small letters is as good, but not usual: the request goes the long way.
SHORT, LONG = ({"Authorization": f"{scheme} {ADMIN_KEY}"} for scheme in ("Bearer", "bearer"))
ASKED = {"campaign_id": "c", "decision_id": "known", "context": [0.1, 0.2]}
REPORT = {"campaign_id": "c", "decision_id": "known", "reward": 1, "costs": {"usd": 0.5}}
REQUESTS = {
    "a decision": ("/decide", ASKED),
    "a decision, explained": ("/decide", ASKED | {"explain": True}),
    "another body for a known id": ("/decide", ASKED | {"context": [0, 0]}),
    "an unknown campaign": ("/decide", ASKED | {"campaign_id": "nobody"}),
    "a context of the wrong length": ("/decide", ASKED | {"decision_id": "new", "context": [1]}),
    "a field too many": ("/decide", ASKED | {"more": 1}),
    "no JSON": ("/decide", b"{"),
    "nothing": ("/decide", b""),
    "several decisions, one of them bad": ("/decide/batch", {"campaign_id": "c", "items": [{**ASKED}, {"context": 7}]}),
    "several decisions": (
        "/decide/batch",
        {"campaign_id": "c", "items": [{"decision_id": "known", "context": [0.1, 0.2]}]},
    ),
    "no decisions": ("/decide/batch", {"campaign_id": "c", "items": []}),
    "too many decisions": ("/decide/batch", {"campaign_id": "c", "items": [{"context": [0, 0]}] * 1001}),
    "an outcome": ("/feedback", REPORT),
    "another outcome": ("/feedback", REPORT | {"reward": 0.5}),
    "an outcome of nothing": ("/feedback", REPORT | {"decision_id": "nobody"}),
    "several outcomes": ("/feedback/batch", {"items": [REPORT, REPORT | {"decision_id": "nobody"}, {"reward": 1}]}),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('express')}/cbwk.db"
    with (
        running_server(database_url=url, request_deadline_ms=700, statement_timeout_ms=60_000) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client,
    ):
        client.post("/campaigns", json=config(), headers=SHORT).raise_for_status()
        client.post("/decide", json=ASKED, headers=SHORT).raise_for_status()
        client.post("/feedback", json=REPORT, headers=SHORT).raise_for_status()
        yield client, url


def _asked(client, path, body, headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post(path, content=content, headers=headers | {"X-Request-Id": "mine"})
    lines = {name: value for name, value in answer.headers.items() if name != "date"}
    return answer.status_code, lines, answer.json()


HINTS = {"the campaign": ("c", 200), "another campaign": ("d", 400), "nothing": ("", 400), "two": ("c, c", 400)}


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize("name", ["a decision", "several decisions", "an outcome", "several outcomes"])
def test_a_header_that_names_another_campaign_than_the_body_is_400_on_both_ways(served, name, hint):
    client, _ = served
    path, body = REQUESTS[name]
    value, status = HINTS[hint]
    short, long = (_asked(client, path, body, headers | {"X-Campaign-Id": value}) for headers in (SHORT, LONG))
    assert short == long
    assert short[0] == status
    assert status == 200 or short[2]["type"] == "urn:cbwk:problem:campaign-differs"


def test_a_batch_of_feedback_without_the_header_may_have_several_campaigns(served):
    client, _ = served
    both = {"items": [REPORT, REPORT | {"campaign_id": "nobody"}]}
    for headers in (SHORT, LONG):
        status, _, answer = _asked(client, "/feedback/batch", both, headers)
        assert status == 200
        assert [item.get("status") for item in answer["results"]] == ["settled", None]
        assert _asked(client, "/feedback/batch", both, headers | {"X-Campaign-Id": "c"})[0] == 400


@pytest.mark.parametrize("name", REQUESTS)
def test_both_ways_give_the_same_answer_with_the_same_headers(served, name):
    client, _ = served
    path, body = REQUESTS[name]
    short, long = (_asked(client, path, body, headers) for headers in (SHORT, LONG))
    assert short == long
    assert short[1]["x-request-id"] == "mine"


def test_a_key_that_is_not_valid_is_refused_on_both_ways(served):
    client, _ = served
    key = "x" * 40
    for _ in range(2):  # the first time nobody remembers it
        answers = [
            _asked(client, "/decide", ASKED, {"Authorization": f"{scheme} {key}"}) for scheme in ("Bearer", "bearer")
        ]
        assert answers[0] == answers[1]
        assert answers[0][0] == 401


def _connected(client):
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=10)


def _raw(body, more="", path="/decide"):
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_KEY}\r\n{more}"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def _answers(connection, count):
    """The bodies of so many answers of 200, in the order they come."""
    found, buffer = [], b""
    while len(found) < count:
        buffer += connection.recv(65536)
        while b"\r\n\r\n" in buffer:
            head, _, rest = buffer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            if len(rest) < size:
                break
            found.append(json.loads(rest[:size]))
            buffer = rest[size:]
    return found


def test_requests_sent_one_behind_the_other_are_answered_in_their_order(served):
    client, _ = served
    ids = [f"piped-{i}" for i in range(20)]
    with _connected(client) as connection:
        connection.sendall(b"".join(_raw(json.dumps(ASKED | {"decision_id": one}).encode()) for one in ids))
        assert [answer["decision_id"] for answer in _answers(connection, len(ids))] == ids


def test_a_body_may_come_byte_by_byte(served):
    client, _ = served
    with _connected(client) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in _raw(json.dumps(ASKED).encode()):
            connection.sendall(bytes([byte]))
        assert _answers(connection, 1)[0]["decision_id"] == "known"


def test_who_asks_to_close_the_connection_is_answered_and_it_is_closed(served):
    client, _ = served
    with _connected(client) as connection:
        connection.sendall(_raw(json.dumps(ASKED).encode(), more="Connection: close\r\n"))
        answer = b""
        while part := connection.recv(65536):
            answer += part
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


def test_what_the_database_does_not_answer_in_time_is_503_and_found_when_it_is_asked_again(served):
    client, url = served
    late = ASKED | {"decision_id": "late"}
    with campaigns_locked(url):
        for headers in (SHORT, LONG):
            status, _, problem = _asked(client, "/decide", late, headers)
            assert (status, problem["type"]) == (503, "urn:cbwk:problem:deadline-passed")
    status, _, answer = _asked(client, "/decide", late, SHORT)
    assert (status, answer["decision_id"]) == (200, "late")
    assert client.get("/admin/campaigns/c/verify", headers=SHORT).json()["ok"]


def test_what_went_either_way_is_counted_once(served):
    client, _ = served

    def count():
        lines = client.get("/metrics", headers=SHORT).text.splitlines()
        return sum(
            float(line.split()[-1]) for line in lines if line.startswith("cbwk_requests_total") and '"/decide"' in line
        )

    before = count()
    for headers in (SHORT, LONG, SHORT):
        _asked(client, "/decide", ASKED, headers)
    assert count() == before + 3


def _decision(name):
    return json.dumps(ASKED | {"decision_id": name}).encode()


def test_the_same_head_again_is_another_request_with_a_name_of_its_own(served):
    client, _ = served
    with _connected(client) as connection:
        heads = []
        for name in ("head-1", "head-2", "head-3"):
            connection.sendall(_raw(_decision(name)))
            head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
            assert json.loads(body)["decision_id"] == name
            heads.append(head)
    assert len({head.split(b"x-request-id: ")[1].split(b"\r\n")[0] for head in heads}) == 3


def test_a_request_whose_head_is_known_may_come_in_any_pieces(served):
    client, _ = served
    with _connected(client) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(3):
            connection.sendall(_raw(_decision(f"whole-{number}")))
            assert _answers(connection, 1)[0]["decision_id"] == f"whole-{number}"
        request = _raw(_decision("whole-3"))
        end = request.index(b"\r\n\r\n") + 4
        for cut in (1, end - 2, end, end + 1, len(request) - 1):
            connection.sendall(request[:cut])
            time.sleep(0.05)
            connection.sendall(request[cut:])
            assert _answers(connection, 1)[0]["decision_id"] == "whole-3"
        several = [f"whole-{number}" for number in range(4, 8)]
        connection.sendall(b"".join(_raw(_decision(name)) for name in several))
        assert [answer["decision_id"] for answer in _answers(connection, 4)] == several


def test_a_body_shorter_or_longer_than_a_known_head_says_is_read_as_the_head_says(served):
    client, _ = served
    with _connected(client) as connection:
        for _ in range(2):
            connection.sendall(_raw(_decision("exact")))
            assert _answers(connection, 1)[0]["decision_id"] == "exact"
        connection.sendall(_raw(_decision("exact")) + b"nonsense")
        answer = connection.recv(65536)
        assert answer.startswith((b"HTTP/1.1 200 OK", b"HTTP/1.1 400 Bad Request"))


def test_what_makes_a_request_another_is_not_forgotten_with_its_head(served):
    client, _ = served
    with _connected(client) as connection:
        for _ in range(2):
            connection.sendall(_raw(_decision("named"), more="X-Request-Id: mine\r\n"))
            assert b"x-request-id: mine\r\n" in connection.recv(65536)
        connection.sendall(_raw(_decision("named")))
        assert b"x-request-id: mine\r\n" not in connection.recv(65536)
    for _ in range(2):
        with _connected(client) as connection:
            connection.sendall(_raw(_decision("named"), more="Connection: close\r\n"))
            answer = b""
            while part := connection.recv(65536):
                answer += part
            assert b"connection: close\r\n" in answer


def test_a_key_that_is_revoked_is_refused_however_often_its_head_was_seen(served):
    client, _ = served
    made = client.post("/admin/keys", json={"name": "passing", "role": "decider"}, headers=SHORT).json()
    headers = {"Authorization": f"Bearer {made['key']}"}
    statuses = [client.post("/decide", json=ASKED, headers=headers).status_code for _ in range(4)]
    client.delete(f"/admin/keys/{made['id']}", headers=SHORT).raise_for_status()
    statuses += [client.post("/decide", json=ASKED, headers=headers).status_code for _ in range(2)]
    assert statuses == [200] * 4 + [401] * 2
