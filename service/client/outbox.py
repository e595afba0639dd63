"""Feedback that waits to be delivered: what is sent when, and what is kept for how long.

A report is kept until the service took or refused it. It can be sent again without being counted again, since the
service knows it by its decision, so after a failure everything is simply sent once more, in order.

A void of a decision that came too late is not due before the service has given up on the request. If the service does
not know the decision by then it is asked once more after another deadline: a process that had been frozen may find the
request in its socket only then.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any

from service.client import calls
from service.client.answers import FeedbackResult
from service.client.conversation import (
    Chance,
    Clock,
    Conversation,
    Reply,
    TimeLeft,
    Told,
    Wait,
    judged,
    pause,
    sent,
)
from service.client.errors import (
    BufferFullError,
    CbwkError,
    DecisionNotFoundError,
    NoAnswerError,
    RefusedError,
    UndeliveredError,
    UnexpectedAnswerError,
)
from service.client.terms import Terms

# Statuses of a whole batch for which one of its items may be to blame: it is sent in halves until that one is alone.
_ITEM_TO_BLAME = frozenset({400, 413, 422, 500})
# Nobody waits for a report, so pauses begin where those of a call have got to after so many attempts.
_ATTEMPTS_AHEAD = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a decision: reward, costs, both, or that it is void."""

    campaign_id: str
    decision_id: str
    reward: float | None = None
    costs: Mapping[str, float] | None = None
    void: bool = False

    def __post_init__(self) -> None:
        said = self.reward is not None or self.costs is not None
        if said == self.void:
            raise ValueError("a report must have reward, costs or both, or else void=True alone")
        # JSON has no NaN: it would arrive as a half that was not reported.
        for number in (self.reward or 0.0, *(self.costs or {}).values()):
            if not math.isfinite(number):
                raise ValueError(f"reward and costs must be finite, got {number}")

    def body(self) -> dict[str, Any]:
        """As it is sent."""
        body: dict[str, Any] = {"campaign_id": self.campaign_id, "decision_id": self.decision_id}
        if self.reward is not None:
            body["reward"] = float(self.reward)
        if self.costs is not None:
            body["costs"] = {resource: float(cost) for resource, cost in self.costs.items()}
        if self.void:
            body["void"] = True
        return body


OnRefused = Callable[[Report, CbwkError], None]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A report that waits; where `late`, the void of a decision that may or may not have been made."""

    report: Report
    late: bool = False
    missed: bool = False  # the service did not know the decision when it was asked first


def log_refused(report: Report, error: CbwkError) -> None:
    """What is done with refused reports unless the caller does something better."""
    log.warning("feedback on %s of %s was refused: %s", report.decision_id, report.campaign_id, error)


class Outbox:
    """Reports and voids, and the conversation that delivers them; safe to use from several threads."""

    def __init__(self, terms: Terms, clock: Clock, chance: Chance, on_refused: OnRefused = log_refused) -> None:
        self._terms, self._clock, self._chance, self._on_refused = terms, clock, chance, on_refused
        self._lock = Lock()
        self._reports: deque[_Entry] = deque()
        self._voids: list[tuple[float, int, _Entry]] = []  # a heap by when they are due
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
        """Whether the end has begun."""
        return self._close_at is not None

    @property
    def reports_waiting(self) -> int:
        """Reports not yet taken or refused."""
        return len(self._reports) + sum(not entry.late for entry in self._in_flight)

    @property
    def voids_waiting(self) -> int:
        """Voids of late decisions not yet settled."""
        return len(self._voids) + sum(entry.late for entry in self._in_flight)

    def add(self, report: Report) -> bool:
        """Keep a report until it is delivered; whether the delivery has to look, since it may be asleep."""
        with self._lock:
            if self._close_at is not None:
                raise ValueError("the client is closed and takes no more reports")
            if self.reports_waiting >= self._terms.reports_max:
                raise BufferFullError(f"{self._terms.reports_max} reports wait already: {self.last_failure}")
            if not self._reports:
                self._due_at = self._clock() + self._terms.linger_seconds
            self._reports.append(_Entry(report))
            return len(self._reports) in (1, self._items_max)

    def void_later(self, campaign_id: str, decision_ids: Iterable[str]) -> None:
        """Free what decisions hold whose answers came too late, if they were made at all."""
        with self._lock:
            due_at = self._clock() + self._terms.server_deadline_seconds
            for decision_id in decision_ids:
                if self.voids_waiting >= self._terms.reports_max:
                    log.warning("too many late decisions wait to be voided: their holds stay until they expire")
                    return
                entry = _Entry(Report(campaign_id, decision_id, void=True), late=True)
                heapq.heappush(self._voids, (due_at, next(self._order), entry))

    def close(self) -> None:
        """Take no more reports, and end the delivery when all are delivered or the time is up."""
        with self._lock:
            if self._close_at is None:
                self._close_at = self._clock() + self._terms.close_seconds

    def left_over(self) -> UndeliveredError | None:
        """What was not delivered, if anything."""
        with self._lock:
            entries = (*self._in_flight, *self._reports)
            reports = [entry.report for entry in entries if not entry.late]
            if not reports and not self.voids_waiting:
                return None
            return UndeliveredError(reports, self.voids_waiting, self.last_failure)

    def delivering(self) -> Conversation[None]:
        """Send what is due, until closed and empty."""
        while not self._is_over():
            batch = self._taken()
            if not batch:
                yield Wait(self._wait_seconds())
                continue
            call = calls.feedback_batch([entry.report.body() for entry in batch])
            until = self._clock() + self._terms.feedback_seconds
            told = yield sent(call, TimeLeft(self._clock, min(until, self._close_at or math.inf)))
            for entry, error in self._noted(batch, call, told):
                self._refuse(entry, error)

    def _is_over(self) -> bool:
        with self._lock:
            if self._close_at is None:
                return False
            return not (self._reports or self._voids) or self._clock() >= self._close_at

    def _taken(self) -> Sequence[_Entry]:
        """The next batch, if anything is due."""
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
                # What is left has waited while the last batch was under way.
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

    def _noted(
        self, batch: Sequence[_Entry], call: calls.Call[list[FeedbackResult | RefusedError]], told: Told
    ) -> list[tuple[_Entry, CbwkError]]:
        """Put back what was not taken; returns what was refused."""
        with self._lock:
            self._in_flight = ()
            try:
                results = judged(call, told)
                if len(results) != len(batch):
                    raise UnexpectedAnswerError(f"{len(batch)} reports have {len(results)} answers")
            except CbwkError as error:
                return self._not_taken(batch, told, error)
            self._failures, self._items_max = 0, self._terms.batch_items_max
            answered = zip(batch, results, strict=True)
            refused = [(entry, result) for entry, result in answered if isinstance(result, RefusedError)]
            for entry, problem in refused:
                if entry.late and not entry.missed and isinstance(problem, DecisionNotFoundError):
                    due_at = self._clock() + self._terms.server_deadline_seconds
                    again = _Entry(entry.report, late=True, missed=True)
                    heapq.heappush(self._voids, (due_at, next(self._order), again))
            return [(entry, problem) for entry, problem in refused if not entry.late]

    def _not_taken(self, batch: Sequence[_Entry], told: Told, error: CbwkError) -> list[tuple[_Entry, CbwkError]]:
        self.last_failure = str(error)
        blamed = isinstance(told, Reply) and told.status in _ITEM_TO_BLAME
        if blamed and len(batch) == 1:
            return [(batch[0], error)]
        now = self._clock()
        for entry in reversed(batch):
            if entry.late:
                heapq.heappush(self._voids, (now, next(self._order), entry))
            else:
                self._reports.appendleft(entry)
        self._due_at = now if self._reports else math.inf
        if blamed:
            self._items_max = len(batch) // 2
        else:
            self._failures += 1
            after = error.retry_after_seconds if isinstance(error, NoAnswerError) else 0.0
            self._resume_at = now + max(pause(self._failures + _ATTEMPTS_AHEAD, self._chance), after)
        return []

    def _refuse(self, entry: _Entry, error: CbwkError) -> None:
        try:
            self._on_refused(entry.report, error)
        except Exception:  # the others are still to be delivered
            log.exception("what is done with refused reports failed")
