"""What keeps requests out that could not be answered in time: under overload refusals are most of the work."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any

from service.answers import problem_answer
from service.engine import FULL
from service.envelope import CAUTIONS
from service.ids import RequestIds
from service.metrics import Metrics
from service.problems import Unavailable

# The engine's thread gives up the interpreter's lock with every statement and gets it back from a busy event loop only
# after this long; the same holds for the event loop and every socket. Python's own 5 ms cost less as long as neither is
# always busy.
OVERLOADED_SWITCH_SECONDS = 0.00005


class Gate:
    """Refuses requests to the hot endpoints as bytes, before they are an ASGI request: for a fraction of its cost."""

    def __init__(self, state: Any, paths: Collection[str], metrics: Metrics) -> None:
        self._state = state
        self._paths = {path.encode(): path for path in paths}
        self._metrics = metrics
        answer = problem_answer(Unavailable(FULL, kind="queue-full"))
        lines = [b"%b: %b\r\n" % header for header in (*answer.raw_headers, *CAUTIONS)]
        self._head = b"HTTP/1.1 503 Service Unavailable\r\n" + b"".join(lines) + b"x-request-id: "
        self._body = b"\r\n\r\n" + bytes(answer.body)
        self._ids = RequestIds()
        self._calm_switch_seconds = sys.getswitchinterval()
        self._overloaded = False

    def is_shut(self, under_way: int) -> bool:
        """Whether so many requests under way are too many."""
        engine = self._state.engine
        if engine is None:
            return False
        most = engine.under_way_max
        if under_way >= most:
            self._turn(overloaded=True)
        elif 2 * under_way < most:
            self._turn(overloaded=False)
        return bool(under_way >= most)

    def _turn(self, *, overloaded: bool) -> None:
        if overloaded != self._overloaded:
            self._overloaded = overloaded
            sys.setswitchinterval(OVERLOADED_SWITCH_SECONDS if overloaded else self._calm_switch_seconds)

    def refusal(self, method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
        """The whole answer, or None to a request that may come in all the same."""
        path = self._paths.get(target)
        if path is None or method != b"POST":
            return None
        self._metrics.count_request("POST", path, 503)
        more = b"".join(b"\r\n%b: %b" % header for header in headers)
        return self._head + self._ids.next().encode() + more + self._body
