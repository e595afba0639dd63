"""Sums over a campaign's log in segments of equal length; the sums of full segments are cached.

The log only grows, so that the sums of a full segment stay true, and a dashboard that reads a campaign again and again
reads only the end of its log. Segments double in length as the log grows, which bounds their number. Pruning deletes
rows, and then all segments are read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Double, Engine, exists, func, select

from service.limits import TIMELINE_POINTS_MAX
from service.reads.shared import StoredCampaign
from service.store import tables
from service.store.log_amounts import element
from service.store.opening_balance import Opening
from service.store.writer import history_of

# One segment for every point of the longest timeline.
SEGMENTS_MAX = TIMELINE_POINTS_MAX
# Numbers of the log that one statement reads: a tenth of a second, far below any timeout.
NUMBERS_PER_STATEMENT = 1 << 16
# Cached sums of arms, of all campaigns together: about 100 MB.
SUMS_MAX = 400_000


class DecisionSums(NamedTuple):
    """Decisions for one arm."""

    total: int
    last: int  # the highest number
    at: int

    def plus(self, other: DecisionSums) -> DecisionSums:
        """The sums of both."""
        return DecisionSums(self.total + other.total, max(self.last, other.last), max(self.at, other.at))


class OutcomeSums(NamedTuple):
    """Outcomes of decisions for one arm."""

    last: int  # the highest number
    at: int
    rewards: int  # the number of rewards learnt
    reward: float  # their sum, in [0, 1] each
    priced: int  # decisions that changed `spent` for the first time
    spent: tuple[int, ...]  # millionths by resource

    def plus(self, other: OutcomeSums) -> OutcomeSums:
        """The sums of both."""
        return OutcomeSums(
            max(self.last, other.last),
            max(self.at, other.at),
            self.rewards + other.rewards,
            self.reward + other.reward,
            self.priced + other.priced,
            tuple(a + b for a, b in zip(self.spent, other.spent, strict=True)),
        )


class Segment(NamedTuple):
    """The sums of a part of the log, by arm; None is the null arm."""

    decisions: dict[str | None, DecisionSums]
    outcomes: dict[str | None, OutcomeSums]

    @property
    def size(self) -> int:
        """The number of sums."""
        return len(self.decisions) + len(self.outcomes)


def merged(segments: Iterable[Segment]) -> Segment:
    """The sums of several segments."""
    decisions: dict[str | None, DecisionSums] = {}
    outcomes: dict[str | None, OutcomeSums] = {}
    for segment in segments:
        for arm, sums in segment.decisions.items():
            decisions[arm] = decisions[arm].plus(sums) if arm in decisions else sums
        for arm, results in segment.outcomes.items():
            outcomes[arm] = outcomes[arm].plus(results) if arm in outcomes else results
    return Segment(decisions, outcomes)


class LogSums(NamedTuple):
    """The sums of a log: segment i begins at number i·2^bits and, except for the last one, has 2^bits numbers."""

    bits: int
    segments: tuple[Segment, ...]

    def coarser(self, bits: int) -> LogSums:
        """The same in longer segments, as far as they are full."""
        if bits == self.bits:
            return self
        size = 1 << (bits - self.bits)
        starts = range(0, len(self.segments) - size + 1, size)
        return LogSums(bits, tuple(merged(self.segments[start : start + size]) for start in starts))


class _Cache:
    """The full segments of the campaigns that were read last, for one database."""

    def __init__(self) -> None:
        self._lock = Lock()
        # By campaign, number of pruned rows and the database's history, oldest first.
        self._logs: dict[tuple[int, int, object], LogSums] = {}
        self._size = 0

    def get(self, key: tuple[int, int, object]) -> LogSums | None:
        with self._lock:
            return self._logs.get(key)

    def put(self, key: tuple[int, int, object], log: LogSums) -> None:
        with self._lock:
            for outdated in [other for other in self._logs if other[0] == key[0]]:
                self._remove(outdated)
            self._logs[key] = log
            self._size += sum(segment.size for segment in log.segments)
            while self._size > SUMS_MAX:
                self._remove(next(iter(self._logs)))

    def _remove(self, key: tuple[int, int, object]) -> None:
        self._size -= sum(segment.size for segment in self._logs.pop(key).segments)


_caches: WeakKeyDictionary[Engine, _Cache] = WeakKeyDictionary()
_caches_lock = Lock()


def log_sums(connection: Connection, stored: StoredCampaign, opening: Opening | None) -> LogSums:
    """The sums of a campaign's log up to its last number at the time of the read."""
    with _caches_lock:
        cache = _caches.setdefault(connection.engine, _Cache())
    key = stored.campaign.number, 0 if opening is None else opening.row_count, history_of(connection)
    bits = (stored.sequence // SEGMENTS_MAX).bit_length()
    full, end = (stored.sequence + 1) >> bits, (stored.sequence >> bits) + 1
    known = cache.get(key)
    # Another reader may have cached more of the log than this read sees.
    cached = known.coarser(bits).segments[:full] if known is not None and known.bits <= bits else ()
    segments = list(cached)
    step = max(1, NUMBERS_PER_STATEMENT >> bits)
    for start in range(len(segments), end, step):
        segments += _read(connection, stored, bits, start, min(start + step, end))
    if full > len(cached):
        cache.put(key, LogSums(bits, tuple(segments[:full])))
    return LogSums(bits, tuple(segments))


def _read(connection: Connection, stored: StoredCampaign, bits: int, start: int, until: int) -> list[Segment]:
    """The segments from `start` to just before `until`."""
    segments = [Segment({}, {}) for _ in range(start, until)]
    first, last, size = start << bits, min((until << bits) - 1, stored.sequence), 1 << bits
    decision, outcome = tables.decision, tables.outcome
    segment = (decision.c.sequence // size).label("segment")
    counts = connection.execute(
        select(segment, decision.c.arm_id, func.count(), func.max(decision.c.sequence), func.max(decision.c.decided_at))
        .where(decision.c.campaign == stored.campaign.number, decision.c.sequence.between(first, last))
        .group_by(segment, decision.c.arm_id)
    )
    for index, arm, *sums in counts:
        segments[index - start].decisions[arm] = DecisionSums(*sums)
    earlier = tables.outcome.alias("earlier")
    priced_earlier = exists().where(
        earlier.c.campaign == outcome.c.campaign,
        earlier.c.decision == outcome.c.decision,
        earlier.c.sequence + 0 < outcome.c.sequence,  # without + 0 SQLite scans all earlier numbers, not the index
        earlier.c.spent.is_not(None),
    )
    segment = (outcome.c.sequence // size).label("segment")
    results = connection.execute(
        select(
            segment,
            decision.c.arm_id,
            func.max(outcome.c.sequence),
            func.max(outcome.c.at),
            func.count().filter(tables.is_learnt),
            func.sum(element(connection, outcome.c.taught, 0, Double)),
            func.count().filter(outcome.c.spent.is_not(None), ~priced_earlier),
            *(func.sum(element(connection, outcome.c.spent, i)) for i in range(len(stored.campaign.resources))),
        )
        .join(decision, tables.decision_of_outcome)
        .where(outcome.c.campaign == stored.campaign.number, outcome.c.sequence.between(first, last))
        .group_by(segment, decision.c.arm_id)
    )
    for index, arm, number, at, rewards, reward, priced, *spent in results:
        amounts = tuple(int(amount or 0) for amount in spent)
        segments[index - start].outcomes[arm] = OutcomeSums(number, at, rewards, reward or 0.0, priced, amounts)
    return segments
