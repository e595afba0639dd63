"""Feedback that waits for delivery: what to send when, and what to keep how long.

The outbox keeps a report until the service accepts or refuses it. The service identifies a report by its decision, so
it counts a repeated one once; after a failure the outbox sends the same reports again, in order. A batch is of one
campaign: it goes to the replica that the campaign prefers, and a campaign that fails holds up no other one.

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
from dataclasses import dataclass, field
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
    TooManyRequestsError,
    UndeliveredError,
    UnexpectedAnswerError,
)
from cbwk_client.replicas import Replicas
from cbwk_client.reports import Report
from cbwk_client.steps import (
    Chance,
    Clock,
    Reply,
    Result,
    Steps,
    TimeLeft,
    Wait,
    answer_of,
    is_well,
    pause_seconds,
    send_step,
)
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


@dataclass(slots=True)
class _Lane:
    """What waits of one campaign."""

    urls: Sequence[str]  # of the replicas, the preferred one first
    items_max: int
    reports: deque[_Entry] = field(default_factory=deque)
    voids: deque[_Entry] = field(default_factory=deque)  # that are due
    due_at: float = math.inf  # of the oldest report
    resume_at: float = -math.inf  # after a failure
    failures: int = 0
    asked: list[str] = field(default_factory=list)  # since the last pause, without success


def log_refused(report: Report, error: CbwkError) -> None:
    """Log a refused report: the default of `on_refused`."""
    log.warning("feedback on %s of %s was refused: %s", report.decision_id, report.campaign_id, error)


class Outbox:
    """Reports and voids, and the steps that deliver them; several threads may use it."""

    def __init__(
        self, terms: Terms, clock: Clock, chance: Chance, replicas: Replicas, on_refused: OnRefused = log_refused
    ) -> None:
        self._terms, self._clock, self._chance, self._on_refused = terms, clock, chance, on_refused
        self._replicas = replicas
        self._lock = Lock()
        self._lanes: dict[str, _Lane] = {}  # by campaign, those in which something waits
        self._voids: list[tuple[float, int, _Entry]] = []  # a heap by due time
        self._order = count()
        self._in_flight: Sequence[_Entry] = ()
        self._close_at: float | None = None
        self.reports_waiting = 0  # that the service has neither accepted nor refused
        self.voids_waiting = 0  # of late decisions, that are not delivered
        self.last_failure: str | None = None

    @property
    def is_closed(self) -> bool:
        """Whether `close` has been called."""
        return self._close_at is not None

    def add(self, report: Report) -> bool:
        """Keep a report until it is delivered; return whether the delivery must be woken."""
        with self._lock:
            if self._close_at is not None:
                raise ValueError("the client is closed and accepts no more reports")
            if self.reports_waiting >= self._terms.reports_max:
                raise BufferFullError(f"{self._terms.reports_max} reports wait already: {self.last_failure}")
            lane = self._lane(report.campaign_id)
            if not lane.reports:
                lane.due_at = self._clock() + self._terms.linger_seconds
            lane.reports.append(_Entry(report))
            self.reports_waiting += 1
            return len(lane.reports) in (1, lane.items_max)

    def void_later(self, campaign_id: str, decision_ids: Iterable[str]) -> None:
        """Void decisions whose answers came too late, if the service made them."""
        with self._lock:
            for decision_id in decision_ids:
                if self.voids_waiting >= self._terms.reports_max:
                    log.warning("too many late decisions wait to be voided; their holds stay until they expire")
                    return
                self._push_void(_Entry(Report(campaign_id, decision_id, void=True), late=True))
                self.voids_waiting += 1

    def close(self) -> None:
        """Accept no more reports; the delivery ends when all are delivered or `close_seconds` are over."""
        with self._lock:
            if self._close_at is None:
                self._close_at = self._clock() + self._terms.close_seconds

    def undelivered(self) -> UndeliveredError | None:
        """Return an error with everything that is not delivered, or None."""
        with self._lock:
            entries = [*self._in_flight, *(entry for lane in self._lanes.values() for entry in lane.reports)]
            reports = [entry.report for entry in entries if not entry.late]
            if not reports and not self.voids_waiting:
                return None
            return UndeliveredError(reports, self.voids_waiting, self.last_failure)

    def delivery(self) -> Steps[None]:
        """Return the steps that send what is due, until the outbox is closed and empty."""
        while not self._is_over():
            lane, batch = self._next_batch()
            if lane is None:
                yield Wait(self._wait_seconds())
                continue
            call = calls.feedback_batch([entry.report.body() for entry in batch])
            began_at = self._clock()
            several = len(lane.urls) > 1
            seconds = min(self._terms.feedback_seconds, self._terms.try_seconds if several else math.inf)
            until = min(began_at + seconds, self._close_at or math.inf)
            url = self._replicas.choose(lane.urls, lane.asked)
            result = yield send_step(call, TimeLeft(self._clock, until), url)
            self._replicas.note(url, began_at, is_well=is_well(result))
            lane.asked.append(url)
            for entry, error in self._refused(lane, batch, call, result):
                self._notify(entry, error)

    def _is_over(self) -> bool:
        with self._lock:
            if self._close_at is None:
                return False
            return not (self._lanes or self._voids) or self._clock() >= self._close_at

    def _lane(self, campaign_id: str) -> _Lane:
        lane = self._lanes.get(campaign_id)
        if lane is None:
            lane = self._lanes[campaign_id] = _Lane(self._replicas.of(campaign_id), self._terms.batch_items_max)
        return lane

    def _push_void(self, entry: _Entry) -> None:
        due_at = self._clock() + self._terms.server_deadline_seconds
        heapq.heappush(self._voids, (due_at, next(self._order), entry))

    def _ready_at(self, lane: _Lane, now: float) -> float:
        """Return when a batch of the lane may be sent; what is overdue has a time in the past, the oldest first."""
        if lane.voids or len(lane.reports) >= lane.items_max or self._close_at is not None:
            return max(min(lane.due_at, now), lane.resume_at)
        return max(lane.due_at, lane.resume_at)

    def _next_batch(self) -> tuple[_Lane | None, Sequence[_Entry]]:
        """Return what to send now, and its lane; None if nothing is to be sent."""
        with self._lock:
            now = self._clock()
            while self._voids and self._voids[0][0] <= now:
                entry = heapq.heappop(self._voids)[2]
                self._lane(entry.report.campaign_id).voids.append(entry)
            lane = min(self._lanes.values(), key=lambda each: self._ready_at(each, now), default=None)
            if lane is None or self._ready_at(lane, now) > now:
                return None, ()
            batch: list[_Entry] = []
            for waiting in (lane.voids, lane.reports):
                while waiting and len(batch) < lane.items_max:
                    batch.append(waiting.popleft())
            # The rest is due already: it has waited during the last delivery.
            lane.due_at = now if lane.reports else math.inf
            self._in_flight = batch
            return lane, batch

    def _wait_seconds(self) -> float | None:
        with self._lock:
            now = self._clock()
            times = [self._ready_at(lane, now) for lane in self._lanes.values()]
            due_at = min(*times, self._voids[0][0] if self._voids else math.inf, self._close_at or math.inf, math.inf)
            return None if due_at == math.inf else max(due_at - now, 0.0)

    def _refused(
        self,
        lane: _Lane,
        batch: Sequence[_Entry],
        call: calls.Call[list[FeedbackResult | RefusedError]],
        result: Result,
    ) -> list[tuple[_Entry, CbwkError]]:
        """Return the reports that the service refused; queue again what it did not process."""
        with self._lock:
            self._in_flight = ()
            try:
                items = answer_of(call, result)
                if len(items) != len(batch):
                    raise UnexpectedAnswerError(f"{len(batch)} reports have {len(items)} answers")
            except CbwkError as error:
                refused = self._failed(lane, batch, result, error)
            else:
                lane.failures, lane.items_max = 0, self._terms.batch_items_max
                lane.asked.clear()
                answered = zip(batch, items, strict=True)
                refused = [(entry, item) for entry, item in answered if isinstance(item, RefusedError)]
                self._count_done(batch)
                for entry, problem in refused:
                    if entry.late and not entry.repeated and isinstance(problem, DecisionNotFoundError):
                        self._push_void(_Entry(entry.report, late=True, repeated=True))
                        self.voids_waiting += 1
            if not lane.reports and not lane.voids:
                del self._lanes[batch[0].report.campaign_id]
            return [(entry, problem) for entry, problem in refused if not entry.late]

    def _count_done(self, batch: Sequence[_Entry]) -> None:
        late = sum(entry.late for entry in batch)
        self.voids_waiting -= late
        self.reports_waiting -= len(batch) - late

    def _failed(
        self, lane: _Lane, batch: Sequence[_Entry], result: Result, error: CbwkError
    ) -> Sequence[tuple[_Entry, CbwkError]]:
        self.last_failure = str(error)
        caused_by_item = isinstance(result, Reply) and result.status in _CAUSED_BY_ITEM
        if caused_by_item and len(batch) == 1:
            self._count_done(batch)
            return [(batch[0], error)]
        now = self._clock()
        for entry in reversed(batch):
            (lane.voids if entry.late else lane.reports).appendleft(entry)
        lane.due_at = now if lane.reports else math.inf
        if caused_by_item:
            lane.items_max = len(batch) // 2
            lane.asked.clear()
        elif isinstance(error, TooManyRequestsError) or len(lane.asked) >= len(lane.urls):
            lane.failures += 1
            lane.asked.clear()
            after = error.retry_after_seconds if isinstance(error, NoAnswerError) else 0.0
            lane.resume_at = now + max(pause_seconds(lane.failures + _ATTEMPTS_SKIPPED, self._chance), after)
        return []

    def _notify(self, entry: _Entry, error: CbwkError) -> None:
        try:
            self._on_refused(entry.report, error)
        except Exception:  # an error of the caller's function must not end the delivery
            log.exception("on_refused failed")
