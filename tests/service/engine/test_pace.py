"""How many may wait follows from how fast it goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.pace import BATCH_MAX, Pace

fast_enough = st.floats(1e-5, 1e-2)  # seconds a command takes


def paced(seconds_each, batches=30, **limits):
    pace = Pace(**({"deadline_seconds": 1.0, "queue_max": 10_000} | limits))
    for _ in range(batches):
        pace = pace.after(pace.batch_max, pace.batch_max * seconds_each)
    return pace


def test_before_any_large_batch_as_many_may_wait_as_the_setting_says():
    pace = Pace(deadline_seconds=1.0, queue_max=321)
    for commands in range(1, BATCH_MAX // 2):
        pace = pace.after(commands, 5.0)
    assert pace.waiting_max == 321
    assert pace.batch_seconds(1000) == 0.0


@given(seconds_each=fast_enough, deadline=st.floats(0.1, 60.0))
def test_the_last_that_may_wait_has_half_of_its_time_left_when_its_turn_comes(seconds_each, deadline):
    pace = paced(seconds_each, deadline_seconds=deadline, queue_max=10**9)
    waiting = pace.waiting_max
    assert waiting * seconds_each <= deadline / 2 * (1 + 1e-6)
    assert (waiting + 1) * seconds_each > deadline / 2 * (1 - 1e-6)
    assert pace.batch_max == min(BATCH_MAX, waiting)
    assert pace.batch_seconds(waiting) <= deadline / 2 * (1 + 1e-6)


@pytest.mark.parametrize(("queue_max", "waiting_max"), [(10, 10), (100_000, 500)])
def test_never_more_wait_than_the_setting_says(queue_max, waiting_max):
    assert paced(0.001, queue_max=queue_max).waiting_max == pytest.approx(waiting_max, abs=1)


def test_one_may_always_wait_however_slow_it_goes():
    assert paced(100.0).waiting_max == 1


def test_one_slow_batch_is_not_yet_a_slow_database():
    pace = paced(0.001)
    slow = pace.after(pace.batch_max, 10 * pace.batch_max * 0.001)
    assert slow.waiting_max == pytest.approx(pace.waiting_max / (0.7 + 0.3 * 10), rel=0.02)


def test_small_batches_say_nothing_and_those_that_are_large_for_a_slow_spell_end_it():
    slow = paced(0.1)
    assert slow.waiting_max == 5
    assert slow.after(2, 1e-9) == slow
    pace = slow
    for _ in range(40):
        pace = pace.after(pace.batch_max, pace.batch_max * 0.001)
    assert pace.waiting_max == pytest.approx(500, rel=0.02)
