"""Which bytes the gate refuses by itself, and what it leaves to the parser."""

import pytest

from service.hot.refusal import Refusals
from service.metrics import Metrics

BODY = b'{"campaign_id":"c","context":[0,0]}'
HEAD = b"POST /decide HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


@pytest.fixture
def gate():
    return Refusals(["/decide", "/feedback"], Metrics())


@pytest.mark.parametrize(
    "data",
    [
        HEAD + LENGTH + b"\r\n" + BODY,
        HEAD + LENGTH.lower() + b"Accept: */*\r\n\r\n" + BODY,
        HEAD + b"Content-Length: 0\r\n\r\n",
        HEAD.replace(b"/decide", b"/feedback") + LENGTH + b"\r\n" + BODY,
    ],
)
def test_one_whole_request_is_refused_by_its_bytes(gate, data):
    refusal = gate.refusal_of(data, [(b"date", b"today")])
    assert refusal.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\ndate: today\r\n" in refusal
    assert b"queue-full" in refusal


@pytest.mark.parametrize(
    "data",
    [
        HEAD + LENGTH + b"\r\n" + BODY[:-1],
        HEAD + LENGTH + b"\r\n" + BODY + b"P",
        HEAD + LENGTH + b"\r\n",
        HEAD + LENGTH,
        HEAD + b"\r\n",
        HEAD + b"\r\n" + BODY,
        HEAD + LENGTH + LENGTH + b"\r\n" + BODY,
        HEAD + b"Content-Length: 5\r\n" + LENGTH + b"\r\n" + BODY,
        HEAD + LENGTH + b"content-length:5\r\n\r\n" + BODY,
        HEAD + b"content-length:5\r\n" + LENGTH + b"\r\n" + BODY,
        HEAD + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Connection: close\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Expect: 100-continue\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Upgrade: h2c\r\n\r\n" + BODY,
        HEAD + b"Content-Length: -1\r\n\r\n" + BODY,
        HEAD + b"Content-Length: 35x\r\n\r\n" + BODY,
        HEAD + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n" + BODY,
        HEAD.replace(b"1.1", b"1.0") + LENGTH + b"\r\n" + BODY,
        HEAD.replace(b"POST", b"GET") + LENGTH + b"\r\n" + BODY,
        HEAD.replace(b"/decide", b"/decide/") + LENGTH + b"\r\n" + BODY,
        HEAD.replace(b"/decide", b"/livez") + LENGTH + b"\r\n" + BODY,
        b"",
        b"\r\n",
        BODY,
    ],
)
def test_what_is_less_or_more_or_unusual_is_left_to_the_parser(gate, data):
    assert gate.refusal_of(data, []) is None
