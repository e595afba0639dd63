"""Refusals of requests that could not be answered in time: under overload they are most of the work."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from service.access_log import AccessLog
from service.engine import FULL
from service.ids import request_ids
from service.metrics import Metrics
from service.middleware import SECURITY_HEADERS
from service.problems import Unavailable
from service.responses import problem_answer

Headers = Sequence[tuple[bytes, bytes]]


class Refusals:
    """Makes refusals as bytes, before a request becomes an ASGI request: for a fraction of its cost."""

    def __init__(self, paths: Collection[str], metrics: Metrics, access_log: AccessLog | None = None) -> None:
        self._paths = {path.encode(): path for path in paths}
        self._metrics, self._access_log = metrics, access_log
        answer = problem_answer(Unavailable(FULL, kind="queue-full"))
        lines = [b"%b: %b\r\n" % header for header in (*answer.raw_headers, *SECURITY_HEADERS)]
        self._head = b"HTTP/1.1 503 Service Unavailable\r\n" + b"".join(lines) + b"x-request-id: "
        self._body = b"\r\n\r\n" + bytes(answer.body)
        self._ids = request_ids()
        self._common: tuple[Headers, bytes] = ((), self._body)  # uvicorn's own headers, which change every second

    def refusal(self, method: bytes, target: bytes, headers: Headers) -> bytes | None:
        """The whole answer, or None for a request that is not refused."""
        path = self._paths.get(target)
        if path is None or method != b"POST":
            return None
        self._metrics.count_request("POST", path, 503)
        if self._common[0] is not headers:
            self._common = headers, b"".join([b"\r\n%b: %b" % header for header in headers]) + self._body
        identity = next(self._ids)
        if self._access_log is not None:
            self._access_log.add(identity, "POST", path, 503, 0.0)
        return self._head + identity.encode() + self._common[1]
