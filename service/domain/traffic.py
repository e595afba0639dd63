"""The traffic of a campaign: decisions by hour of the week in UTC, and how many more to expect from them.

An hour of the week is expected to have the rate that it had, shrunk to that of the same hour of the day, which is
shrunk to the mean over the day:

    rate = (count + k·fallback) / (hours seen + k),    k = (NOISE + 1/m) / variance, at least 1 − hours seen

The first k minimises the expected squared error where rates differ from their fallback by `variance` and one hour shows
a rate with the variance NOISE (from one week to the next) + 1/m (counting m decisions), all relative to the square of
the mean rate m. The second one completes an hour that was not seen to its end: a batch of decisions at its beginning
does not make it busy. Each day seen counts once in the rate of an hour of the day, and each hour of the day once in the
mean, so that half a day more does not count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.times import HOURS_PER_WEEK, MICROS_PER_HOUR, hour_of_week

# The variances are large, so that an hour soon speaks for itself: who believes in too even a day takes the night for a
# part of it. 2: all decisions of a day are made in a third of its hours; 1: an hour has traffic on every other day.
NOISE, DAY_VARIANCE, WEEK_VARIANCE = 0.1, 2.0, 1.0
HOURS_PER_DAY = 24
COUNT_MAX = 2**32 - 1

Counts = NDArray[np.int64]  # by hour of the week
Hours = NDArray[np.float64]  # by hour of the week


def no_traffic() -> Counts:
    """Returns the counts before the first decision."""
    return np.zeros(HOURS_PER_WEEK, dtype=np.int64)


def plus(counts: Counts, decisions: int, at: int) -> Counts:
    """Returns the counts with more decisions, all made at one time, in microseconds since 1970."""
    result = counts.copy()
    result[hour_of_week(at)] += decisions
    return result


def encoded(counts: Counts) -> bytes:
    """Returns the counts as they are stored: little-endian uint32."""
    return np.minimum(counts, COUNT_MAX).astype("<u4").tobytes()


def decoded(stored: bytes) -> Counts:
    """Returns stored counts.

    >>> bool((decoded(encoded(plus(no_traffic(), 3, at=0))) == plus(no_traffic(), 3, at=0)).all())
    True
    """
    return np.frombuffer(stored, dtype="<u4").astype(np.int64)


def expected_rounds(counts: Counts, since: int, now: int, until: int) -> float:
    """Returns the decisions to expect from `now` to `until`, by the counts from `since` to `now`.

    It takes the same time for an hour and for a year. While all hours seen have one rate, it continues that rate.

    >>> expected_rounds(plus(no_traffic(), 100, at=0), since=0, now=10, until=40)
    300.0
    """
    return float(rates(counts, since, now) @ hours_between(now, until))


def rates(counts: Counts, since: int, now: int) -> Hours:
    """Returns the decisions per hour to expect in each hour of the week; it changes little within minutes."""
    total = float(counts.sum())
    if total == 0:
        return np.zeros(HOURS_PER_WEEK)
    k = NOISE + max(now - since, 1) / MICROS_PER_HOUR / total
    made, seen = counts.reshape(-1, HOURS_PER_DAY), hours_between(since, max(now, since + 1)).reshape(-1, HOURS_PER_DAY)
    made_a_day, days = (made / np.maximum(seen, 1.0)).sum(axis=0), np.minimum(seen, 1.0).sum(axis=0)
    mean = float((made_a_day / np.maximum(days, 1.0)).sum() / np.minimum(days, 1.0).sum())
    daily = _shrunk(made_a_day, days, mean, k / DAY_VARIANCE)
    return _shrunk(made, seen, daily, k / WEEK_VARIANCE).ravel()


def _shrunk(made: Any, seen: Hours, fallback: Any, least: float) -> Hours:
    k = np.maximum(least, 1.0 - seen)
    return np.asarray((made + k * fallback) / (seen + k))


def hours_between(start: int, end: int) -> Hours:
    """Returns the time from `start` to `end` by hour of the week, in hours; none if it ends before it starts."""
    first, last = start // MICROS_PER_HOUR, end // MICROS_PER_HOUR
    weeks, rest = divmod(max(last - first, 0), HOURS_PER_WEEK)
    micros = np.full(HOURS_PER_WEEK, weeks * MICROS_PER_HOUR)
    begin = first % HOURS_PER_WEEK
    micros[begin : begin + rest] += MICROS_PER_HOUR
    micros[: max(begin + rest - HOURS_PER_WEEK, 0)] += MICROS_PER_HOUR
    if end > start:
        micros[begin] -= start % MICROS_PER_HOUR
        micros[last % HOURS_PER_WEEK] += end % MICROS_PER_HOUR
    return micros / MICROS_PER_HOUR
