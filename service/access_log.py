"""The access log: one line of JSON on stderr for each answered request, with its id, status and duration."""

from __future__ import annotations

import sys
import time
from collections import deque
from threading import Event, Thread
from typing import TextIO

from service.logs import LossyStream

WRITE_EVERY_SECONDS = 0.25
# Lines that wait for a slow reader of stderr; more are dropped and counted, so that the service does not wait for it.
WAITING_LINES_MAX = 100_000


class AccessLog:
    """Lines that the event loop adds and a thread writes, many at once: a system call takes longer than a line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = LossyStream(stream or sys.stderr)
        self._lines: deque[str] = deque()  # both threads use it: no line is lost between two of its operations
        self._second, self._text = -1, ""
        self._dropped = 0
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="cbwk-access-log", daemon=True)
        self._thread.start()

    def add(self, request_id: str, method: str, route: str, status: int, seconds: float) -> None:
        """Add the line of a request that was just answered; none of the texts needs quoting in JSON."""
        if len(self._lines) >= WAITING_LINES_MAX:
            self._dropped += 1
            return
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        self._lines.append(
            f'{{"event":"request","request_id":"{request_id}","method":"{method}","route":"{route}","status":{status},'
            f'"seconds":{seconds:.6f},"level":"info","at":"{self._text}.{int((now - second) * 1e3):03d}Z"}}\n'
        )

    def close(self) -> None:
        """Write what waits and end."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(WRITE_EVERY_SECONDS):
            self._write()
        self._write()

    def _write(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append(f'{{"event":"request lines were dropped","count":{dropped},"level":"warning"}}\n')
        if lines:
            self._stream.write("".join(lines))
            self._stream.flush()
