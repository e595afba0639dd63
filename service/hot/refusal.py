"""What keeps requests out that could not be answered in time: under overload refusals are most of the work."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from service.components import Parts
from service.engine import FULL
from service.ids import RequestIds
from service.metrics import Metrics
from service.middleware import CAUTIONS
from service.problems import Unavailable
from service.responses import problem_answer

Headers = Sequence[tuple[bytes, bytes]]

_LENGTH_NAME = b"content-length"
_LENGTH = b"\r\n" + _LENGTH_NAME + b": "
LENGTH_DIGITS_MAX = 9
# What makes a request another than it looks at first.
_UNUSUAL = (b"\ntransfer-encoding", b"\nconnection", b"\nexpect", b"\nupgrade")


class Gate:
    """Refuses requests to the hot endpoints as bytes, before they are an ASGI request: for a fraction of its cost."""

    def __init__(self, parts: Parts, paths: Collection[str], metrics: Metrics) -> None:
        self._parts = parts
        self._paths = {path.encode(): path for path in paths}
        self._metrics = metrics
        answer = problem_answer(Unavailable(FULL, kind="queue-full"))
        lines = [b"%b: %b\r\n" % header for header in (*answer.raw_headers, *CAUTIONS)]
        self._head = b"HTTP/1.1 503 Service Unavailable\r\n" + b"".join(lines) + b"x-request-id: "
        self._body = b"\r\n\r\n" + bytes(answer.body)
        self._ids = RequestIds()
        self._begins = {b"POST %b HTTP/1.1" % path: path for path in self._paths}

    def is_shut(self, under_way: int) -> bool:
        """Whether so many requests under way are too many."""
        engine = self._parts.engine
        if engine is None:
            return False
        # What nobody waits for any more is still queued until its turn.
        shut = max(under_way, engine.queued) >= engine.under_way_max
        if shut:
            engine.answer()
        return bool(shut)

    def refusal_of(self, data: bytes, headers: Headers) -> bytes | None:
        """The whole answer to what is one whole request to a hot endpoint, told by its bytes alone; None if unsure.

        Nothing of it is kept, so that what follows on the connection is read by the parser from its beginning.
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
        if head.count(_LENGTH_NAME) > 1 or any(name in head for name in _UNUSUAL):
            return None
        return self.refusal(b"POST", target, headers)

    def refusal(self, method: bytes, target: bytes, headers: Headers) -> bytes | None:
        """The whole answer, or None to a request that may come in all the same."""
        path = self._paths.get(target)
        if path is None or method != b"POST":
            return None
        self._metrics.count_request("POST", path, 503)
        more = b"".join(b"\r\n%b: %b" % header for header in headers)
        return self._head + self._ids.next().encode() + more + self._body
