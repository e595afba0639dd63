"""What keeps requests out that could not be answered in time: under overload refusals are most of the work."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from itertools import count
from typing import Any

from service.answers import problem_answer
from service.engine import FULL
from service.metrics import Metrics
from service.problems import Unavailable


class Gate:
    """Refuses requests to the hot endpoints as bytes, before they are an ASGI request: for a fraction of its cost."""

    def __init__(self, state: Any, paths: Collection[str], metrics: Metrics) -> None:
        self._state = state
        self._paths = {path.encode(): path for path in paths}
        self._metrics = metrics
        answer = problem_answer(Unavailable(FULL, kind="queue-full"))
        cautions = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
        lines = [b"%b: %b\r\n" % header for header in (*answer.raw_headers, *cautions)]
        self._head = b"HTTP/1.1 503 Service Unavailable\r\n" + b"".join(lines) + b"x-request-id: "
        self._body = b"\r\n\r\n" + bytes(answer.body)
        self._process, self._numbers = secrets.token_hex(6), count(1)

    def is_shut(self, under_way: int) -> bool:
        """Whether so many requests under way are too many."""
        engine = self._state.engine
        return engine is not None and under_way >= engine.under_way_max

    def refusal(self, method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
        """The whole answer, or None to a request that may come in all the same."""
        path = self._paths.get(target)
        if path is None or method != b"POST":
            return None
        self._metrics.count_request("POST", path, 503)
        more = b"".join(b"\r\n%b: %b" % header for header in headers)
        return self._head + f"{self._process}-{next(self._numbers):x}".encode() + more + self._body
