"""Which bytes are read without the parser, and that the parser reads the same in them."""

from types import SimpleNamespace

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.hot.bounds import HEAD_BYTES_MAX, HEADERS_MAX
from service.hot.endpoints import HOT_ROUTES
from service.hot.exchange import HotPath
from service.hot.refusal import Refusals
from service.metrics import Metrics

BODY = b'{"campaign_id":"c","context":[0,0]}'
HEAD = b"POST /decide HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
EVERY_KEY = SimpleNamespace(remembered=lambda key: (True, "holder"))
PATHS = HotPath(SimpleNamespace(engine=None, keyring=EVERY_KEY), HOT_ROUTES, Metrics(), lambda path: len(BODY))


@pytest.mark.parametrize(
    "data",
    [
        HEAD + LENGTH + b"\r\n" + BODY,
        HEAD + LENGTH.lower() + b"Accept: */*\r\n\r\n" + BODY,
        HEAD + b"Content-Length: 0\r\n\r\n",
        HEAD + b"Connection: keep-alive\r\nContent-Type: application/json\r\n" + LENGTH + b"\r\n" + BODY,
        HEAD + LENGTH + b"X-Request-Id: mine\r\n\r\n" + BODY,
        HEAD + LENGTH + b"X-Campaign-Id: c\r\n\r\n" + BODY,
        HEAD.replace(b"/decide", b"/feedback") + LENGTH + b"\r\n" + BODY,
        b"POST /decide HTTP/1.1\r\n" + LENGTH + b"\r\n" + BODY,
        b"POST /decide HTTP/1.1\r\n" + LENGTH + b"a: \r\n" * (HEADERS_MAX - 1) + b"\r\n" + BODY,
    ],
)
def test_one_whole_request_is_read_by_its_bytes(data):
    whole = PATHS.whole(data)
    assert data[whole.end() :] in (BODY, b"")
    assert whole[3] == (b"k" if b"Bearer" in data else None)


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
        HEAD + b"Authorization: Bearer other\r\n" + LENGTH + b"\r\n" + BODY,
        HEAD + b"X-API-Key: other\r\n" + LENGTH + b"\r\n" + BODY,
        HEAD.replace(b"Bearer", b"bearer") + LENGTH + b"\r\n" + BODY,
        HEAD + LENGTH + b"X-Request-Id: a\r\nX-Request-Id: b\r\n\r\n" + BODY,
        HEAD + LENGTH + b"X-Campaign-Id: c\r\nX-Campaign-Id: c\r\n\r\n" + BODY,
        HEAD + LENGTH + b"X-Campaign-Id: \r\n\r\n" + BODY,
        HEAD + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Content-Encoding: gzip\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Connection: close\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Connection: keep-alive, upgrade\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Proxy-Connection: close\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Expect: 100-continue\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Upgrade: h2c\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Folded: line\r\n continued\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Name : value\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Name: a\nContent-Length: 1\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Name: \x00\r\n\r\n" + BODY,
        HEAD + b"Content-Length: -1\r\n\r\n" + BODY,
        HEAD + b"Content-Length: 35x\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Name: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n" + BODY,
        b"POST /decide HTTP/1.1\r\n" + LENGTH + b"a: \r\n" * HEADERS_MAX + b"\r\n" + BODY,
        HEAD + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n" + BODY,
        HEAD.replace(b"1.1", b"1.0") + LENGTH + b"\r\n" + BODY,
        HEAD.replace(b"POST", b"GET") + LENGTH + b"\r\n" + BODY,
        HEAD.replace(b"POST", b"post") + LENGTH + b"\r\n" + BODY,
        HEAD.replace(b"/decide", b"/decide/") + LENGTH + b"\r\n" + BODY,
        HEAD.replace(b"/decide", b"/livez") + LENGTH + b"\r\n" + BODY,
        b"",
        b"\r\n",
        BODY,
    ],
)
def test_what_is_less_or_more_or_unusual_is_left_to_the_parser(data):
    assert PATHS.whole(data) is None


class Parsed:
    """What the parser finds in some data."""

    def __init__(self, data):
        self.headers, self.url, self.body, self.complete = [], b"", b"", 0
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_url(self, url):
        self.url += url

    def on_header(self, name, value):
        self.headers.append((name.lower(), value))

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        self.complete += 1


NAMES = ["Content-Length", "Authorization", "X-Request-Id", "X-API-Key", "Connection", "Transfer-Encoding", "Accept"]
NAMES += ["X-Campaign-Id"]
VALUES = ["0", "2", "02", "2 ", "Bearer  k ", "bearer k", "id", "keep-alive", "close", "chunked", "", "a: b"]
LINES = st.tuples(st.sampled_from(NAMES), st.sampled_from([": ", ":", ":\t", " : "]), st.sampled_from(VALUES))


@given(st.lists(LINES, max_size=6), st.sampled_from(["", "{}", "{}{}"]), st.sampled_from(["\r\n", "\n"]))
@example([("Content-Length", ": ", "2"), ("Authorization", ": ", "Bearer  k ")], "{}", "\r\n")
def test_the_parser_reads_the_same_in_every_request_that_is_read_without_it(lines, body, end):
    text = "".join(f"{name}{colon}{value}{end}" for name, colon, value in lines)
    data = f"POST /decide HTTP/1.1\r\n{text}\r\n{body}".encode()
    whole = PATHS.whole(data)
    if whole is None:
        return
    parsed = Parsed(data)
    assert (parsed.complete, parsed.url, parsed.body) == (1, whole[1], data[whole.end() :])
    assert parsed.parser.should_keep_alive()
    head = PATHS.head(parsed.parser.get_method(), parsed.url, parsed.headers)
    key = (whole[3] or b"").decode().strip()
    assert (head.key if head else "") == key
    assert whole[4] is None or head is None or head.request_id == whole[4].decode()
    assert head is None or head.hint == (None if whole[5] is None else whole[5].decode())


def test_a_refusal_has_the_headers_of_its_second():
    refusals = Refusals(["/decide"], Metrics())
    for day in (b"today", b"tomorrow"):
        refusal = refusals.refusal(b"POST", b"/decide", [(b"date", day)])
        assert refusal.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"\r\ndate: %b\r\n" % day in refusal
        assert b"queue-full" in refusal
    assert refusals.refusal(b"GET", b"/decide", []) is None
