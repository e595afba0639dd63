"""Feedback that waits for delivery: what to send when, and what to keep how long.

The outbox keeps a report until the service accepts or refuses it. The service identifies a report by its decision, so
it counts a repeated one once; after a failure the outbox sends the same reports again, in order.

The void of a late decision is sent after the service's deadline, when the service has made or dropped the decision. If
the service does not know the decision, the outbox sends the void once more after another deadline: a frozen process
may read the request from its socket only after it wakes up.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock

from cbwk_client import calls
from cbwk_client.answers import FeedbackResult
from cbwk_client.errors import (
    BufferFullError,
    CbwkError,
    DecisionNotFoundError,
    NoAnswerError,
    RefusedError,
    UndeliveredError,
    UnexpectedAnswerError,
)
from cbwk_client.reports import Report
from cbwk_client.steps import Chance, Clock, Reply, Result, Steps, TimeLeft, Wait, answer_of, pause_seconds, send_step
from cbwk_client.terms import Terms

# Statuses of a whole batch that one of its items may cause: the batch is halved until that item is alone.
_CAUSED_BY_ITEM = frozenset({400, 413, 422, 500})
# No caller waits for a report, so the pauses start at the length that those of a call have after three attempts.
_ATTEMPTS_SKIPPED = 3

log = logging.getLogger(__name__)

OnRefused = Callable[[Report, CbwkError], None]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A waiting report; if `late`, the void of a decision that the service may or may not have made."""

    report: Report
    late: bool = False
    repeated: bool = False  # the service did not know the decision at the first delivery


def log_refused(report: Report, error: CbwkError) -> None:
    """Log a refused report: the default of `on_refused`."""
    log.warning("feedback on %s of %s was refused: %s", report.decision_id, report.campaign_id, error)


class Outbox:
    """Reports and voids, and the steps that deliver them; several threads may use it."""

    def __init__(self, terms: Terms, clock: Clock, chance: Chance, on_refused: OnRefused = log_refused) -> None:
        self._terms, self._clock, self._chance, self._on_refused = terms, clock, chance, on_refused
        self._lock = Lock()
        self._reports: deque[_Entry] = deque()
        self._voids: list[tuple[float, int, _Entry]] = []  # a heap by due time
        self._order = count()
        self._in_flight: Sequence[_Entry] = ()
        self._due_at = math.inf  # of the oldest report
        self._resume_at = -math.inf  # after a failure
        self._failures = 0
        self._items_max = terms.batch_items_max
        self._close_at: float | None = None
        self.last_failure: str | None = None

    @property
    def is_closed(self) -> bool:
        """Whether `close` has been called."""
        return self._close_at is not None

    @property
    def reports_waiting(self) -> int:
        """Number of reports that the service has neither accepted nor refused."""
        return len(self._reports) + sum(not entry.late for entry in self._in_flight)

    @property
    def voids_waiting(self) -> int:
        """Number of voids of late decisions that are not delivered."""
        return len(self._voids) + sum(entry.late for entry in self._in_flight)

    def add(self, report: Report) -> bool:
        """Keep a report until it is delivered; return whether the delivery must be woken."""
        with self._lock:
            if self._close_at is not None:
                raise ValueError("the client is closed and accepts no more reports")
            if self.reports_waiting >= self._terms.reports_max:
                raise BufferFullError(f"{self._terms.reports_max} reports wait already: {self.last_failure}")
            if not self._reports:
                self._due_at = self._clock() + self._terms.linger_seconds
            self._reports.append(_Entry(report))
            return len(self._reports) in (1, self._items_max)

    def void_later(self, campaign_id: str, decision_ids: Iterable[str]) -> None:
        """Void decisions whose answers came too late, if the service made them."""
        with self._lock:
            due_at = self._clock() + self._terms.server_deadline_seconds
            for decision_id in decision_ids:
                if self.voids_waiting >= self._terms.reports_max:
                    log.warning("too many late decisions wait to be voided; their holds stay until they expire")
                    return
                entry = _Entry(Report(campaign_id, decision_id, void=True), late=True)
                heapq.heappush(self._voids, (due_at, next(self._order), entry))

    def close(self) -> None:
        """Accept no more reports; the delivery ends when all are delivered or `close_seconds` are over."""
        with self._lock:
            if self._close_at is None:
                self._close_at = self._clock() + self._terms.close_seconds

    def undelivered(self) -> UndeliveredError | None:
        """Return an error with everything that is not delivered, or None."""
        with self._lock:
            entries = (*self._in_flight, *self._reports)
            reports = [entry.report for entry in entries if not entry.late]
            if not reports and not self.voids_waiting:
                return None
            return UndeliveredError(reports, self.voids_waiting, self.last_failure)

    def delivery(self) -> Steps[None]:
        """Return the steps that send what is due, until the outbox is closed and empty."""
        while not self._is_over():
            batch = self._next_batch()
            if not batch:
                yield Wait(self._wait_seconds())
                continue
            call = calls.feedback_batch([entry.report.body() for entry in batch])
            until = self._clock() + self._terms.feedback_seconds
            result = yield send_step(call, TimeLeft(self._clock, min(until, self._close_at or math.inf)))
            for entry, error in self._refused(batch, call, result):
                self._notify(entry, error)

    def _is_over(self) -> bool:
        with self._lock:
            if self._close_at is None:
                return False
            return not (self._reports or self._voids) or self._clock() >= self._close_at

    def _next_batch(self) -> Sequence[_Entry]:
        """Return the entries to send now, which may be none."""
        with self._lock:
            now = self._clock()
            batch: list[_Entry] = []
            if now < self._resume_at:
                return batch
            while self._voids and self._voids[0][0] <= now and len(batch) < self._items_max:
                batch.append(heapq.heappop(self._voids)[2])
            if now >= self._due_at or len(self._reports) >= self._items_max or self._close_at is not None:
                while self._reports and len(batch) < self._items_max:
                    batch.append(self._reports.popleft())
                # The rest is due already: it has waited during the last delivery.
                self._due_at = now if self._reports else math.inf
            self._in_flight = batch
            return batch

    def _wait_seconds(self) -> float | None:
        with self._lock:
            now = self._clock()
            due_at = self._voids[0][0] if self._voids else math.inf
            if self._reports:
                full = len(self._reports) >= self._items_max or self._close_at is not None
                due_at = min(due_at, now if full else self._due_at)
            due_at = min(max(due_at, self._resume_at), self._close_at or math.inf)
            return None if due_at == math.inf else max(due_at - now, 0.0)

    def _refused(
        self, batch: Sequence[_Entry], call: calls.Call[list[FeedbackResult | RefusedError]], result: Result
    ) -> list[tuple[_Entry, CbwkError]]:
        """Return the reports that the service refused; queue again what it did not process."""
        with self._lock:
            self._in_flight = ()
            try:
                items = answer_of(call, result)
                if len(items) != len(batch):
                    raise UnexpectedAnswerError(f"{len(batch)} reports have {len(items)} answers")
            except CbwkError as error:
                return self._failed(batch, result, error)
            self._failures, self._items_max = 0, self._terms.batch_items_max
            answered = zip(batch, items, strict=True)
            refused = [(entry, item) for entry, item in answered if isinstance(item, RefusedError)]
            for entry, problem in refused:
                if entry.late and not entry.repeated and isinstance(problem, DecisionNotFoundError):
                    due_at = self._clock() + self._terms.server_deadline_seconds
                    again = _Entry(entry.report, late=True, repeated=True)
                    heapq.heappush(self._voids, (due_at, next(self._order), again))
            return [(entry, problem) for entry, problem in refused if not entry.late]

    def _failed(self, batch: Sequence[_Entry], result: Result, error: CbwkError) -> list[tuple[_Entry, CbwkError]]:
        self.last_failure = str(error)
        caused_by_item = isinstance(result, Reply) and result.status in _CAUSED_BY_ITEM
        if caused_by_item and len(batch) == 1:
            return [(batch[0], error)]
        now = self._clock()
        for entry in reversed(batch):
            if entry.late:
                heapq.heappush(self._voids, (now, next(self._order), entry))
            else:
                self._reports.appendleft(entry)
        self._due_at = now if self._reports else math.inf
        if caused_by_item:
            self._items_max = len(batch) // 2
        else:
            self._failures += 1
            after = error.retry_after_seconds if isinstance(error, NoAnswerError) else 0.0
            self._resume_at = now + max(pause_seconds(self._failures + _ATTEMPTS_SKIPPED, self._chance), after)
        return []

    def _notify(self, entry: _Entry, error: CbwkError) -> None:
        try:
            self._on_refused(entry.report, error)
        except Exception:  # an error of the caller's function must not end the delivery
            log.exception("on_refused failed")
