"""Two threads wake each other, and no stroke is lost."""

import asyncio
import os
import threading
import time

import pytest

from service.engine.engine import Wakeup


@pytest.fixture(params=["event", "pipe"])
def bell(request, monkeypatch):
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("this system has pipes only")
    made = Wakeup()
    yield made
    made.close()


def waited(bell, seconds):
    since = time.monotonic()
    bell.wait(seconds)
    return time.monotonic() - since


def test_who_waits_later_hears_it_too_and_once(bell):
    for _ in range(3):
        bell.set()
    assert waited(bell, 5) < 1
    assert waited(bell, 0.05) >= 0.05


def test_nobody_rings_and_the_time_is_up(bell):
    assert 0.02 <= waited(bell, 0.02) < 1
    assert waited(bell, 0.0) < 1


def test_another_thread_is_woken_however_long_it_would_wait(bell):
    heard = threading.Event()
    thread = threading.Thread(target=lambda: (bell.wait(None), heard.set()), daemon=True)
    thread.start()
    assert not heard.wait(0.05)
    bell.set()
    assert heard.wait(5)


def test_what_is_hushed_was_not_rung(bell):
    bell.set()
    bell.clear()
    bell.clear()
    assert waited(bell, 0.02) >= 0.02


def test_it_is_rung_more_often_than_anybody_listens(bell):
    for _ in range(100_000):
        bell.set()
    assert waited(bell, 5) < 1


def test_an_event_loop_hears_every_stroke_that_comes_after_it_was_hushed(bell):
    async def play():
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(bell.fileno(), lambda: (bell.clear(), heard.set()))
        for _ in range(20):
            threading.Thread(target=bell.set).start()
            await asyncio.wait_for(heard.wait(), 5)
            heard.clear()
        loop.remove_reader(bell.fileno())

    asyncio.run(play())


def test_closing_leaves_nothing_open(monkeypatch):
    def open_files():
        return set(os.listdir("/dev/fd"))

    before = open_files()
    bells = [Wakeup() for _ in range(4)]
    monkeypatch.delattr(os, "eventfd", raising=False)
    bells += [Wakeup() for _ in range(4)]
    assert len(open_files()) >= len(before) + 12
    for bell in bells:
        bell.close()
    assert len(open_files()) == len(before)
