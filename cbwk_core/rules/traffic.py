"""The traffic of a campaign: decisions by hour of the week, and how many more to expect from them.

Times are whole microseconds since a moment at which an hour began.

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

from cbwk_core.arrays import Array, Integers

# The variances are large, so that an hour soon speaks for itself: who believes in too even a day takes the night for a
# part of it. 2: all decisions of a day are made in a third of its hours; 1: an hour has traffic on every other day.
NOISE, DAY_VARIANCE, WEEK_VARIANCE = 0.1, 2.0, 1.0
MICROS_PER_HOUR, HOURS_PER_DAY, HOURS_PER_WEEK = 3_600_000_000, 24, 168

_HOUR_STARTS = np.arange(HOURS_PER_WEEK) * MICROS_PER_HOUR

Counts = Integers  # by hour of the week, (168,) or (n, 168)
Hours = Array  # by hour of the week, of the same shape


def no_traffic() -> Counts:
    """The counts before the first decision."""
    return np.zeros(HOURS_PER_WEEK, dtype=np.int64)


def plus(counts: Counts, decisions: int, at: int) -> Counts:
    """The counts with more decisions, all made at one time."""
    result = counts.copy()
    result[at // MICROS_PER_HOUR % HOURS_PER_WEEK] += decisions
    return result


def expected_rounds(counts: Counts, since: Any, now: Any, until: Any) -> Any:
    """The decisions to expect from `now` to `until`, by the counts from `since` to `now`; with times (n,), of n lanes.

    It takes the same time for an hour and for a year. While all hours seen have one rate, it continues that rate.

    >>> float(expected_rounds(plus(no_traffic(), 100, at=0), since=0, now=10, until=40))
    300.0
    """
    return np.vecdot(rates(counts, since, now), hours_between(now, until))


def rates(counts: Counts, since: Any, now: Any) -> Hours:
    """The decisions per hour to expect in each hour of the week; it changes little within minutes."""
    by_day = (*counts.shape[:-1], -1, HOURS_PER_DAY)
    k = NOISE + np.maximum(now - since, 1) / MICROS_PER_HOUR / np.maximum(counts.sum(axis=-1), 1.0)
    made, seen = counts.reshape(by_day), hours_between(since, np.maximum(now, since + 1)).reshape(by_day)
    made_a_day, days = (made / np.maximum(seen, 1.0)).sum(axis=-2), np.minimum(seen, 1.0).sum(axis=-2)
    mean = (made_a_day / np.maximum(days, 1.0)).sum(axis=-1) / np.minimum(days, 1.0).sum(axis=-1)
    daily = _shrunk(made_a_day, days, mean[..., None], k[..., None] / DAY_VARIANCE)
    weekly = _shrunk(made, seen, daily[..., None, :], k[..., None, None] / WEEK_VARIANCE)
    return weekly.reshape(counts.shape)


def _shrunk(made: Any, seen: Hours, fallback: Any, least: Any) -> Hours:
    k = np.maximum(least, 1.0 - seen)
    return np.asarray((made + k * fallback) / (seen + k))


def hours_between(start: Any, end: Any) -> Hours:
    """The time from `start` to `end` by hour of the week, in hours; none if it ends before it starts."""
    return np.asarray((_micros_until(np.maximum(end, start)) - _micros_until(start)) / MICROS_PER_HOUR)


def _micros_until(moment: Any) -> Integers:
    """The time before a moment by hour of the week, since a week began."""
    weeks, rest = np.divmod(moment, HOURS_PER_WEEK * MICROS_PER_HOUR)
    of_week = np.minimum(np.maximum(np.subtract.outer(rest, _HOUR_STARTS), 0), MICROS_PER_HOUR)
    return np.asarray(of_week + np.multiply(weeks, MICROS_PER_HOUR)[..., None])
