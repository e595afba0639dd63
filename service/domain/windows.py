"""Windows: limits of what a campaign may spend in every hour, day, week or month of its time zone's calendar.

A decision belongs to the period in which it was made, and what becomes of it is booked there whenever it comes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from cbwk_core import NULL_ARM, Choice
from cbwk_core.rules.pace import window_pace_of_one
from cbwk_core.ticket import BUDGET_EXHAUSTED
from service.domain.ledger import Account, Limit
from service.domain.traffic import Counts, expected_rounds
from service.times import datetime_of, microseconds_of

# The kind of the change that begins an account of a window, sets its limit, or removes the window.
WINDOW = "window"
# The reason of a decision for null where some arm could be paid without windows.
WINDOW_EXHAUSTED = "window_exhausted"


class Window(NamedTuple):
    """At most `limit` millionths of a resource, by its index, in every period."""

    resource: int
    period: str
    limit: int

    @property
    def key(self) -> tuple[int, str]:
        """What distinguishes the windows of a campaign."""
        return self.resource, self.period


def most_payable(budgets: Sequence[int], windows: Collection[Window]) -> list[int]:
    """Returns the most that one decision can hold of each resource, whatever was spent before.

    >>> most_payable([50, 70], [Window(1, "day", 20), Window(1, "week", 90)])
    [50, 20]
    """
    return [min([budget, *(w.limit for w in windows if w.resource == at)]) for at, budget in enumerate(budgets)]


def bounds(period: str, now: int, zone: ZoneInfo) -> tuple[int, int]:
    """Returns the start and the end of the period that contains `now`, in microseconds since 1970.

    A day begins at midnight, or at the first moment after it that the clocks show, and has 23, 24 or 25 hours; a week
    begins on Monday. The hour that the clocks show twice is two periods.

    >>> start, end = bounds("day", microseconds_of(datetime(2026, 3, 29, 12, tzinfo=UTC)), ZoneInfo("Europe/Berlin"))
    >>> (end - start) // 3_600_000_000
    23
    """
    local = datetime_of(now).astimezone(zone)
    if period == "hour":
        start, step = _hour(local), timedelta(hours=1)
        end = _hour((start + step).astimezone(zone))
        if end <= start:  # clocks that go back by half an hour make an hour longer
            end = _hour((start + 2 * step).astimezone(zone))
        return microseconds_of(start), microseconds_of(end)
    first = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0, tzinfo=None)
    if period == "week":
        first -= timedelta(days=first.weekday())
        after = first + timedelta(days=7)
    elif period == "month":
        first = first.replace(day=1)
        after = (first + timedelta(days=31)).replace(day=1)
    else:
        after = first + timedelta(days=1)
    return microseconds_of(first.replace(tzinfo=zone)), microseconds_of(after.replace(tzinfo=zone))


def _hour(local: datetime) -> datetime:
    """Returns the start of a local hour, in UTC."""
    return local.replace(minute=0, second=0, microsecond=0).astimezone(UTC)


def due(windows: Collection[Window], limits: Sequence[Limit], now: int) -> list[Window]:
    """Returns the windows whose present period has no account yet."""
    begun = {limit.key for limit in limits if limit.covers(now)}
    return [window for window in windows if window.key not in begun]


def changed(limits: Sequence[Limit], change: Mapping[str, Any]) -> list[Limit]:
    """Returns the present limits after a change of kind WINDOW: the only road of a window into a ledger.

    It begins the account of a period, with what earlier decisions of the period hold and have spent; or sets the limit
    of a period that has begun; or, where the limit is null, removes the window.
    """
    key = change["resource"], change["period"]
    others = [limit for limit in limits if limit.key != key]
    if change["limit"] is None:
        return others
    for limit in limits:
        if limit.key == key and limit.starts_at == change["starts_at"]:
            return [*others, limit.moved(granted=change["limit"] - limit.account.granted, reported=True)]
    account = Account(change["limit"]).moved(held=change.get("held", 0), spent=change.get("spent", 0), reported=True)
    return [*others, Limit(*key, change["starts_at"], change["ends_at"], account)]


def reasons(
    choice: Choice,
    holds: NDArray[Any],
    excluded: NDArray[np.bool_],
    free: Sequence[int],
    exits_at: Sequence[int] | None = None,
) -> tuple[str, ...]:
    """Returns the reasons of n decisions, WINDOW_EXHAUSTED where limits alone make every arm too dear.

    holds: (arms, d) or (n, arms, d). excluded: (n, arms), by the request or inactive. free: what could be held before
    the first of them without limits. exits_at: with no more than that left the policy plays nothing any more.
    """
    amounts = np.broadcast_to(holds, (*excluded.shape, len(free)))
    rest, found = np.array(free), []
    for row, (reason, arm) in enumerate(zip(choice.reason, choice.arm.tolist(), strict=True)):
        payable = (amounts[row] <= rest).all(axis=1) if exits_at is None else (rest > exits_at).all()
        if reason == BUDGET_EXHAUSTED and (~excluded[row] & payable).any():
            reason = WINDOW_EXHAUSTED
        if arm != NULL_ARM:
            rest = rest - amounts[row, arm]
        found.append(reason)
    return tuple(found)


def rounds_until(
    limits: Sequence[Limit], traffic: Counts, since: int, now: int, ends_at: int | None
) -> dict[int, float]:
    """Returns the decisions to expect until the end of each period, by these ends, none after `ends_at`."""
    found = dict[int, float]()
    for end in {limit.ends_at for limit in limits}:
        until = end if ends_at is None else min(end, ends_at)
        found[end] = float(expected_rounds(traffic, since, now, until))
    return found


def paces(
    limits: Sequence[Limit],
    shares: Sequence[float],
    traffic: Counts,
    since: int,
    now: int,
    rest: float,
    ends_at: int | None = None,
) -> list[float]:
    """Returns what a decision may cost for every window to last to its end, in millionths; infinite without one.

    shares: of what is held, by resource, that open decisions are predicted to cost. Decisions come at the rate of the
    traffic since `since`, but at most `rest` of them and none after `ends_at`.
    """
    pace, rounds = [inf] * len(shares), rounds_until(limits, traffic, since, now, ends_at)
    for limit in limits:
        account, resource, length = limit.account, limit.resource, limit.ends_at - limit.starts_at
        unspent = account.granted - account.spent - account.held * shares[resource]
        rate = window_pace_of_one(account.granted, unspent, (limit.ends_at - now) / length, rounds[limit.ends_at], rest)
        pace[resource] = min(pace[resource], rate)
    return pace
