"""Sums of the amounts in a campaign's log by the time of the decision."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, Double, Text, cast, exists, func, select
from sqlalchemy.dialects import postgresql

from service.store import tables
from service.times import MICROS_PER_SECOND

# Periods of all time zones begin and end at a quarter of an hour in UTC.
QUARTER = 900 * MICROS_PER_SECOND


class QuarterSums(NamedTuple):
    """What decisions hold and have spent by resource, by the quarter of an hour in which they were made."""

    starts: list[int]  # of the quarters that have decisions, in order
    held: list[list[int]]
    spent: list[list[int]]

    def within(self, resource: int, starts_at: int, ends_at: int) -> tuple[int, int]:
        """What the decisions of a period hold and have spent of one resource."""
        inside = slice(bisect_left(self.starts, starts_at), bisect_left(self.starts, ends_at))
        return sum(each[resource] for each in self.held[inside]), sum(each[resource] for each in self.spent[inside])


def sums_by_quarter(connection: Connection, number: int, resources: int, *, since: int = 0) -> QuarterSums:
    """The sums of all decisions that were made at `since` or later."""
    outcome, decision = tables.outcome, tables.decision
    first = _first_since(connection, number, since) if since else 0
    quarter = (decision.c.decided_at // QUARTER).label("quarter")
    released = exists().where(
        outcome.c.campaign == decision.c.campaign, outcome.c.decision == decision.c.sequence, outcome.c.released
    )
    of_log = (decision.c.campaign == number, decision.c.sequence >= first)
    held = select(quarter, *_sums(connection, decision.c.hold, resources)).where(*of_log, ~released)
    spent = select(quarter, *_sums(connection, outcome.c.spent, resources)).join(decision, tables.decision_of_outcome)
    spent = spent.where(outcome.c.campaign == number, outcome.c.decision >= first, outcome.c.spent.is_not(None))
    found: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([0] * resources, [0] * resources))
    for column, query in enumerate((held, spent)):
        for at, *amounts in connection.execute(query.group_by(quarter)):
            found[at * QUARTER][column][:] = map(int, amounts)
    starts = sorted(found)
    return QuarterSums(starts, [found[at][0] for at in starts], [found[at][1] for at in starts])


def element(
    connection: Connection, column: ColumnElement[Any], index: int, kind: type[BigInteger | Double[float]] = BigInteger
) -> ColumnElement[Any]:
    """One number of a JSON array that is stored as text; an integer if `kind` is not Double."""
    if connection.dialect.name == "postgresql":
        return cast(cast(column, postgresql.JSON)[index].astext, kind)
    return cast(func.json_extract(column, f"$[{index}]", type_=Text), kind)


def _sums(connection: Connection, column: ColumnElement[Any], resources: int) -> Sequence[ColumnElement[Any]]:
    return [func.coalesce(func.sum(element(connection, column, index)), 0) for index in range(resources)]


def _first_since(connection: Connection, number: int, since: int) -> int:
    """The number from which decisions were made at `since` or later: times never decrease along the log."""
    decision, state = tables.decision, tables.campaign_state
    last = select(state.c.sequence).where(state.c.campaign == number)
    low, high = 0, connection.execute(last).scalar_one() + 1
    while low < high:
        middle = (low + high) // 2
        later = select(decision.c.decided_at).where(decision.c.campaign == number, decision.c.sequence >= middle)
        at = connection.execute(later.order_by(decision.c.sequence).limit(1)).scalar()
        low, high = (low, middle) if at is None or at >= since else (middle + 1, high)
    return low
