"""Selects decisions of a campaign's log by arm, status, time and number.

No index holds arm or status: it would make every decision dearer. A page therefore reads a bounded part of the log and
may have fewer items than asked for, with a cursor that goes on. Times never fall along the log, so that a range of time
is a range of its numbers, found by bisection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, select

from service.reads.shared import Row, StoredCampaign, fetch
from service.store import tables

# Numbers of the log that one statement looks at, and those of one page.
NUMBERS_PER_STATEMENT = 1 << 14
NUMBERS_PER_PAGE = 1 << 17


class Selection(NamedTuple):
    """Which decisions are wanted; all of them by default."""

    arm: str | None = None
    status: str | None = None  # as the interface names it; "null" is the null arm
    start: int | None = None  # the earliest time, in microseconds
    end: int | None = None  # the time before which all are
    after: int = 0  # the number after which all are

    @property
    def is_sparse(self) -> bool:
        """Whether it can leave out decisions between two that it wants."""
        return self.arm is not None or self.status is not None

    @property
    def conditions(self) -> tuple[ColumnElement[bool], ...]:
        """What a row of table decision meets, except for its number."""
        decision = tables.decision
        found: list[ColumnElement[bool]] = []
        if self.arm is not None:
            found.append(decision.c.arm_id == self.arm)
        if self.status == "null":
            found.append(decision.c.arm_id.is_(None))
        elif self.status is not None:
            found.append(decision.c.arm_id.is_not(None))
            found.append(_last_status().is_(None) if self.status == "held" else _last_status() == self.status)
        return tuple(found)

    def numbers(self, connection: Connection, stored: StoredCampaign) -> range:
        """The numbers of the log that decisions of these times can have."""
        first = max(self.after + 1, 1 if self.start is None else _first_at(connection, stored, self.start))
        end = stored.sequence + 1 if self.end is None else _first_at(connection, stored, self.end)
        return range(first, max(first, end))


ALL = Selection()


def _last_status() -> Any:
    """The status after the last outcome of a decision; NULL without one."""
    last = tables.outcome.alias("last")
    of_decision = (last.c.campaign == tables.decision.c.campaign) & (last.c.decision == tables.decision.c.sequence)
    # With `sequence` alone, SQLite would go through the whole log of the campaign instead of the index.
    query = select(last.c.status).where(of_decision).order_by((last.c.sequence + 0).desc()).limit(1)
    return query.correlate(tables.decision).scalar_subquery()


def _first_at(connection: Connection, stored: StoredCampaign, moment: int) -> int:
    """The number from which on no decision is earlier than a moment."""
    decision = tables.decision
    low, high = 1, stored.sequence + 1
    while low < high:
        middle = (low + high) // 2
        of_campaign = decision.c.campaign == stored.campaign.number
        query = select(decision.c.sequence, decision.c.decided_at).where(of_campaign, decision.c.sequence >= middle)
        row = connection.execute(query.order_by(decision.c.sequence).limit(1)).one_or_none()
        if row is None or row.sequence >= high or row.decided_at >= moment:
            high = middle
        else:
            low = row.sequence + 1
    return low


def newest(
    connection: Connection, stored: StoredCampaign, selection: Selection, below: int | None, limit: int
) -> tuple[list[Row], int | None]:
    """The newest selected decisions with a number below `below`, and the number below which the next page goes on."""
    wanted = selection.numbers(connection, stored)
    end = wanted.stop if below is None else min(below, wanted.stop)
    step = NUMBERS_PER_STATEMENT if selection.is_sparse else max(1, end)
    rows, least = list[Row](), max(wanted.start, end - NUMBERS_PER_PAGE) if selection.is_sparse else wanted.start
    while end > least and len(rows) <= limit:
        start = max(least, end - step)
        number = tables.decision.c.sequence
        query = _of(stored, selection).where(number >= start, number < end).order_by(number.desc())
        rows += fetch(connection, query.limit(limit + 1 - len(rows)))
        end = start
    if len(rows) > limit:
        return rows[:limit], rows[limit - 1]["sequence"]
    return rows, end if end > wanted.start else None


def oldest(
    connection: Connection, stored: StoredCampaign, selection: Selection, wanted: range, limit: int
) -> tuple[list[Row], int | None]:
    """The oldest selected decisions among these numbers, and the number after which the next page goes on."""
    if not wanted:
        return [], None
    number = tables.decision.c.sequence
    stop = min(wanted.stop, wanted.start + NUMBERS_PER_STATEMENT) if selection.is_sparse else wanted.stop
    query = _of(stored, selection).where(number >= wanted.start, number < stop).order_by(number)
    rows = [*fetch(connection, query.limit(limit))]
    if len(rows) == limit:
        return rows, rows[-1]["sequence"]
    return rows, stop - 1 if stop < wanted.stop else None


def _of(stored: StoredCampaign, selection: Selection) -> Any:
    decision = tables.decision
    return select(decision).where(decision.c.campaign == stored.campaign.number, *selection.conditions)
