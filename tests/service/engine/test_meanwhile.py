"""Tasks of a second thread: each is done before whoever began it goes on, and none ends the thread."""

import os
import threading

import pytest
from structlog.testing import capture_logs

from service.engine import meanwhile as module
from service.engine.meanwhile import Meanwhile


@pytest.fixture
def meanwhile():
    made = Meanwhile()
    made.start()
    yield made
    made.close()


def steps(*functions):
    for function in functions:
        function()
        yield


def test_a_task_is_done_by_another_thread_while_this_one_waits(meanwhile):
    for _ in range(3):
        done, by = threading.Event(), []
        meanwhile.begin(steps(lambda by=by: by.append(threading.get_ident()), done.set))
        assert done.wait(20)
        meanwhile.finish()
        assert by == [meanwhile._thread.ident]


def test_who_comes_back_does_what_is_left_and_every_step_is_taken_once(monkeypatch, meanwhile):
    """The second thread loses the core after its first step, as it may where others keep it."""
    lost, found, taken = threading.Event(), threading.Event(), []

    def give_way():
        lost.set()
        assert found.wait(20)

    monkeypatch.setattr(module, "_give_way", give_way)
    meanwhile.begin(steps(*(lambda each=each: taken.append((each, threading.get_ident())) for each in range(4))))
    assert lost.wait(20)
    meanwhile.finish()
    found.set()
    here, there = threading.get_ident(), meanwhile._thread.ident
    assert taken == [(0, there), (1, here), (2, here), (3, here)]
    meanwhile.begin(steps(lambda: taken.append("next")))
    meanwhile.finish()
    assert taken[4:] == ["next"]


def test_what_the_second_thread_never_came_to_is_done_all_the_same():
    never_started, done = Meanwhile(), []
    never_started.begin(steps(lambda: done.append(True)))
    never_started.finish()
    never_started.finish()
    assert done == [True]


def test_a_task_that_fails_is_told_of_and_the_next_is_done(meanwhile):
    done = []
    with capture_logs() as logs:
        meanwhile.begin(steps(lambda: 1 / 0, lambda: done.append(0)))
        meanwhile.finish()
    meanwhile.begin(steps(lambda: done.append(1), lambda: done.append(2)))
    meanwhile.finish()
    assert [line["event"] for line in logs] == ["what was begun meanwhile was not finished"]
    assert done == [1, 2]


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux can be told")
def test_it_takes_the_core_from_nobody_who_is_at_work(meanwhile):
    said, done = [], threading.Event()
    meanwhile.begin(steps(lambda: said.append(os.sched_getscheduler(0)), done.set))
    assert done.wait(20)
    assert said == [os.SCHED_BATCH] != [os.sched_getscheduler(0)]
