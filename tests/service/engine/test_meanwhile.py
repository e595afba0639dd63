"""Tasks of a second thread: each ends before whoever began it goes on, and none ends the thread."""

import os
import threading

import pytest
from structlog.testing import capture_logs

from service.engine.meanwhile import Meanwhile


@pytest.fixture
def meanwhile():
    made = Meanwhile()
    made.start()
    yield made
    made.close()


def steps(*functions):
    """A task that does these one after the other."""

    def task():
        for function in functions:
            function()
            yield

    return task


def test_a_task_is_done_by_another_thread_and_can_be_waited_for_once(meanwhile):
    done = []
    for _ in range(3):
        meanwhile.begin(steps(lambda: done.append(threading.get_ident())))
        meanwhile.wait()
        meanwhile.wait()
    assert len(done) == 3
    assert set(done) == {meanwhile._thread.ident} != {threading.get_ident()}


def test_a_task_that_fails_is_told_of_and_the_next_is_done(meanwhile):
    done = []
    with capture_logs() as logs:
        meanwhile.begin(steps(lambda: 1 / 0))
        meanwhile.wait()
    meanwhile.begin(steps(lambda: done.append(1), lambda: done.append(2)))
    meanwhile.wait()
    assert [line["event"] for line in logs] == ["what was begun meanwhile was not finished"]
    assert done == [1, 2]


def test_nothing_begun_is_nothing_to_wait_for(meanwhile):
    meanwhile.wait()


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux can be told")
def test_it_takes_the_core_from_nobody_who_is_at_work(meanwhile):
    said = []
    meanwhile.begin(steps(lambda: said.append(os.sched_getscheduler(0))))
    meanwhile.wait()
    assert said == [os.SCHED_BATCH] != [os.sched_getscheduler(0)]
