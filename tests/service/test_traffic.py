"""How many decisions a campaign may expect by the traffic it has had."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbwk_core.rules.traffic import DAY_VARIANCE, NOISE, WEEK_VARIANCE
from service.domain import traffic
from service.times import HOURS_PER_WEEK, MICROS_PER_HOUR, hour_of_week

HOUR, DAY, WEEK = MICROS_PER_HOUR, 24 * MICROS_PER_HOUR, 168 * MICROS_PER_HOUR
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = 56 * 365 * DAY + 5 * HOUR  # five o'clock on some day
COUNTS = st.lists(st.integers(0, 100_000), min_size=HOURS_PER_WEEK, max_size=HOURS_PER_WEEK).map(np.array)
SPANS = st.integers(0, 3 * WEEK)


def weekday_and_hour(micros):
    moment = EPOCH + timedelta(microseconds=micros)
    return moment.weekday(), moment.hour


def slow_hours(start, end):
    """The hours of each weekday and hour of the day, one piece after the other."""
    found = dict.fromkeys(((day, hour) for day in range(7) for hour in range(24)), 0.0)
    while start < end:
        stop = min(end, start - start % HOUR + HOUR)
        found[weekday_and_hour(start)] += (stop - start) / HOUR
        start = stop
    return found


def slow_expectation(counts, since, now, until):
    """The sum over the hours to come, by the formula in the module's docstring."""
    made = {weekday_and_hour(hour * HOUR): int(counts[hour]) for hour in range(HOURS_PER_WEEK)}
    seen, ahead = slow_hours(since, max(now, since + 1)), slow_hours(now, until)
    if not sum(made.values()):
        return 0.0

    mean_rate = sum(made.values()) / max((now - since) / HOUR, 1 / HOUR)

    def shrunk(count, hours, fallback, variance):
        k = max((NOISE + 1 / mean_rate) / variance, 1 - hours)
        return (count + k * fallback) / (hours + k)

    a_day = {hour: sum(made[day, hour] / max(seen[day, hour], 1) for day in range(7)) for hour in range(24)}
    days = {hour: sum(min(seen[day, hour], 1) for day in range(7)) for hour in range(24)}
    mean = sum(a_day[hour] / max(days[hour], 1) for hour in range(24)) / sum(min(one, 1) for one in days.values())
    total = 0.0
    for (day, hour), hours in ahead.items():
        daily = shrunk(a_day[hour], days[hour], mean, DAY_VARIANCE)
        total += hours * shrunk(made[day, hour], seen[day, hour], daily, WEEK_VARIANCE)
    return total


@given(COUNTS, st.integers(0, 2 * WEEK), SPANS, SPANS)
def test_the_expectation_is_the_sum_over_all_hours_to_come(counts, since, seen, ahead):
    now = since + seen
    expected = slow_expectation(counts, since, now, now + ahead)
    assert traffic.expected_rounds(counts, since, now, now + ahead) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(COUNTS, SPANS, SPANS, SPANS)
def test_the_expectations_of_two_parts_add_up(counts, seen, first, second):
    now, middle = START + seen, START + seen + first
    rates = traffic.rates(counts, START, now)
    parts = rates @ traffic.hours_between(now, middle) + rates @ traffic.hours_between(middle, middle + second)
    whole = traffic.expected_rounds(counts, START, now, middle + second)
    assert whole == pytest.approx(parts, rel=1e-9, abs=1e-6)


@given(COUNTS, st.integers(1, 60))
def test_after_whole_weeks_a_week_is_expected_to_be_the_mean_week(counts, weeks):
    now = START + weeks * WEEK
    expected = int(counts.sum()) / weeks
    assert traffic.expected_rounds(counts, START, now, now + WEEK) == pytest.approx(expected, rel=1e-9)


@given(st.integers(0, 10**6), st.integers(1, 2 * DAY), SPANS)
def test_before_its_traffic_differs_by_hour_a_campaign_expects_its_mean_rate(rate, seen, ahead):
    counts = rate * traffic.hours_between(START, START + seen)
    expected = rate * ahead / HOUR
    assert traffic.expected_rounds(counts, START, START + seen, START + seen + ahead) == pytest.approx(expected)


def test_nothing_is_expected_of_a_time_that_is_over():
    counts = traffic.plus(traffic.no_traffic(), 100, START)
    assert traffic.expected_rounds(counts, START, START + HOUR, START + HOUR) == 0
    assert traffic.expected_rounds(counts, START, START + 2 * WEEK, START) == 0


def test_counts_are_stored_as_little_endian_numbers_of_four_bytes():
    counts = traffic.plus(traffic.plus(traffic.no_traffic(), 258, 3 * HOUR), 1, WEEK + 3 * HOUR + 5)
    stored = traffic.encoded(counts)
    assert len(stored) == 4 * HOURS_PER_WEEK
    assert stored[12:16] == bytes([3, 1, 0, 0])
    assert (traffic.decoded(stored) == counts).all()


def test_more_decisions_leave_the_counts_before_them_as_they_are():
    before = traffic.no_traffic()
    assert traffic.plus(before, 5, START)[hour_of_week(START)] == 5
    assert not before.any()


def by_day(hour):
    """Decisions per hour of a campaign that sleeps at night: a sine by day, a fiftieth of it at night."""
    return 100 * max(np.sin((hour % 24 - 6) / 12 * np.pi), 0.02)


@pytest.mark.parametrize("start", [0, 6, 12, 18])
@pytest.mark.parametrize("seed", range(3))
def test_after_a_day_and_a_half_the_night_does_not_distort_the_estimate(start, seed):
    """Linear extrapolation is wrong by what the half day has more or less than a mean one."""
    draw = np.random.default_rng(seed)
    since = START - START % DAY + start * HOUR
    now, until = since + 36 * HOUR, since + 30 * DAY
    counts = traffic.no_traffic()
    for at in range(since, now, HOUR):
        counts = traffic.plus(counts, draw.poisson(by_day(at // HOUR)), at)
    truth = sum(by_day(at // HOUR) for at in range(now, until, HOUR))
    linear = counts.sum() * (until - now) / (now - since)
    error = abs(traffic.expected_rounds(counts, since, now, until) / truth - 1)
    assert error < 0.08
    if start in (6, 18):  # the half day is all day, or all night
        assert abs(linear / truth - 1) > max(0.25, 4 * error)


def test_a_batch_at_the_beginning_of_an_hour_does_not_make_the_hour_busy():
    counts = traffic.no_traffic()
    for hour in range(6):
        counts = traffic.plus(counts, 100, START + hour * HOUR)
    now = START + 5 * HOUR + 1
    assert traffic.expected_rounds(counts, START, now, START + 6 * HOUR) < 400
    assert traffic.expected_rounds(counts, START, now, START + WEEK) == pytest.approx(120 * 163, rel=0.1)


def test_weekends_are_expected_as_they_were_and_not_as_the_days_before_them():
    def rate(at):
        return 20 if weekday_and_hour(at)[0] >= 5 else 100

    since = START
    now = since + 2 * WEEK
    while weekday_and_hour(now)[0] != 5:
        now += HOUR
    counts = traffic.no_traffic()
    for at in range(since, now, HOUR):
        counts = traffic.plus(counts, rate(at), at)
    saturday, weekend, until_tuesday = (
        traffic.expected_rounds(counts, since, now, now + days * DAY) for days in (1, 2, 3)
    )
    assert saturday == pytest.approx(24 * 20, rel=0.25)
    assert until_tuesday - weekend == pytest.approx(24 * 100, rel=0.15)
