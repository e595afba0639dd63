"""How many may be under way follows from how fast it goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.admission import ALWAYS_UNDER_WAY, BATCH_MAX, MEASURED_COUNT, Admission


def paced(seconds_each, batches=40, **limits):
    """The pace after batches as large as they may be, in which every command took as long."""
    pace = Admission(**({"deadline_seconds": 1.0, "queue_max": 10_000} | limits))
    for _ in range(batches):
        pace = pace.after(pace.batch_max, pace.batch_max * seconds_each)
    return pace


def test_before_any_large_batch_two_thousand_a_second_are_believed_possible_whatever_small_ones_took():
    pace = Admission(deadline_seconds=1.0, queue_max=10_000)
    for commands in range(1, MEASURED_COUNT):
        pace = pace.after(commands, 5.0)
    assert pace.under_way_max == pytest.approx(0.5 * 2_000, abs=1)


@given(seconds_each=st.floats(1e-5, 1e-2), deadline=st.floats(0.1, 60.0))
def test_as_many_may_be_under_way_as_take_half_of_the_deadline(seconds_each, deadline):
    pace = paced(seconds_each, batches=80, deadline_seconds=deadline, queue_max=10**9)
    assert pace.under_way_max * seconds_each <= 0.5 * deadline * (1 + 1e-3)
    assert (pace.under_way_max + 1) * seconds_each > 0.5 * deadline * (1 - 1e-3)
    assert pace.batch_max == min(BATCH_MAX, pace.under_way_max)
    assert pace.answer_seconds(10**9) <= 0.5 * deadline * (1 + 1e-3)


@pytest.mark.parametrize(("queue_max", "under_way_max"), [(10, 10), (100_000, 500)])
def test_never_more_are_under_way_than_the_setting_says(queue_max, under_way_max):
    assert paced(0.001, queue_max=queue_max).under_way_max == pytest.approx(under_way_max, abs=1)


def test_one_may_always_be_under_way_however_slow_it_goes():
    assert paced(100.0).under_way_max == 1


def test_one_slow_batch_is_not_yet_a_slow_database():
    pace = paced(0.001)
    slow = pace.after(pace.batch_max, 10 * pace.batch_max * 0.001)
    assert slow.under_way_max == pytest.approx(pace.under_way_max / (0.7 + 0.3 * 10), rel=0.02)


def test_small_batches_say_nothing_and_those_that_are_large_for_a_slow_spell_end_it():
    slow = paced(0.1)
    assert slow.under_way_max == 5
    assert slow.after(2, 1e-9).seconds_each == slow.seconds_each
    pace = slow
    for _ in range(60):
        pace = pace.after(pace.batch_max, pace.batch_max * 0.001)
    assert pace.under_way_max == pytest.approx(500, rel=0.02)


def test_time_that_the_event_loop_takes_counts_twice_and_never_keeps_all_out():
    pace = paced(0.001)
    for _ in range(60):
        pace = pace.after(1, 0.0, lag_seconds=0.1)
    assert pace.under_way_max == pytest.approx((0.5 - 2 * 0.1) / 0.001, abs=2)
    for _ in range(60):
        pace = pace.after(1, 0.0, lag_seconds=5.0)
    assert pace.under_way_max == ALWAYS_UNDER_WAY <= pace.batch_max


def test_whoever_came_just_now_is_never_too_late_however_slow_it_has_become():
    pace = paced(100.0)
    for _ in range(60):
        pace = pace.after(1, 0.0, lag_seconds=5.0)
    assert pace.answer_seconds(1_000) == 0.5
