"""Refusals of requests that could not be answered in time: under overload they are most of the work."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from service.engine import FULL
from service.ids import request_ids
from service.metrics import Metrics
from service.middleware import SECURITY_HEADERS
from service.problems import Unavailable
from service.responses import problem_answer

Headers = Sequence[tuple[bytes, bytes]]

_LENGTH_NAME = b"content-length"
_LENGTH = b"\r\n" + _LENGTH_NAME + b": "
LENGTH_DIGITS_MAX = 9
# Headers that change how a request is read.
_FRAMING_HEADERS = (b"\ntransfer-encoding", b"\nconnection", b"\nexpect", b"\nupgrade")


class Refusals:
    """Makes refusals as bytes, before a request becomes an ASGI request: for a fraction of its cost."""

    def __init__(self, paths: Collection[str], metrics: Metrics) -> None:
        self._paths = {path.encode(): path for path in paths}
        self._metrics = metrics
        answer = problem_answer(Unavailable(FULL, kind="queue-full"))
        lines = [b"%b: %b\r\n" % header for header in (*answer.raw_headers, *SECURITY_HEADERS)]
        self._head = b"HTTP/1.1 503 Service Unavailable\r\n" + b"".join(lines) + b"x-request-id: "
        self._body = b"\r\n\r\n" + bytes(answer.body)
        self._ids = request_ids()
        self._begins = {b"POST %b HTTP/1.1" % path: path for path in self._paths}

    def refusal_of(self, data: bytes, headers: Headers) -> bytes | None:
        """The whole answer to one whole request to a hot endpoint, recognised by its bytes; None if in doubt.

        Nothing of the request is kept, so the parser reads the next one from its beginning.
        """
        target = self._begins.get(data[: data.find(b"\r\n")])
        if target is None:
            return None
        end = data.find(b"\r\n\r\n")
        head = data[: end + 2].lower()
        at = head.find(_LENGTH)
        length = head[at + len(_LENGTH) : head.find(b"\r\n", at + 2)]
        if at < 0 or not length.isdigit() or len(length) > LENGTH_DIGITS_MAX or len(data) != end + 4 + int(length):
            return None
        if head.count(_LENGTH_NAME) > 1 or any(name in head for name in _FRAMING_HEADERS):
            return None
        return self.refusal(b"POST", target, headers)

    def refusal(self, method: bytes, target: bytes, headers: Headers) -> bytes | None:
        """The whole answer, or None for a request that is not refused."""
        path = self._paths.get(target)
        if path is None or method != b"POST":
            return None
        self._metrics.count_request("POST", path, 503)
        more = b"".join(b"\r\n%b: %b" % header for header in headers)
        return self._head + next(self._ids).encode() + more + self._body
