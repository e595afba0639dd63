"""What can be done while the engine's thread waits for the disk: in a second thread, for the core is free then."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

import structlog

log = structlog.get_logger(__name__)

_give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: None)

# In steps: at each yield whoever else wants the core may have it.
Task = Callable[[], Iterator[None]]


class Meanwhile:
    """One task at a time; begun by one thread, who waits for its end before going on with what it has made.

    On one core whoever is woken takes it at once, and the disk would get its order only after the task. So the second
    thread tells Linux that it is in no hurry (SCHED_BATCH): it has the same share of the core, but it takes it from
    nobody who is at work. Where that cannot be said the task is done a little earlier, and nothing is gained. But who
    is at work is not interrupted either, and a commit has a second order for the disk when the first is carried out: so
    a task gives up the core at every step.
    """

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._ends: SimpleQueue[None] = SimpleQueue()
        self._under_way = False
        self._thread = Thread(target=self._work, name="cbwk-meanwhile", daemon=True)

    def start(self) -> None:
        """Be ready for tasks."""
        self._thread.start()

    def begin(self, task: Task) -> None:
        """Have it done as soon as this thread waits for something."""
        self._under_way = True
        self._tasks.put(task)

    def wait(self) -> None:
        """Until what was begun has ended; at once if there is nothing."""
        if self._under_way:
            self._under_way = False
            self._ends.get()

    def close(self) -> None:
        """End the thread; nothing may be begun any more."""
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        if hasattr(os, "SCHED_BATCH"):
            with suppress(OSError):  # a sandbox may forbid it
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        while (task := self._tasks.get()) is not None:
            try:
                for _ in task():
                    _give_way()
            except Exception as error:  # whoever waits would wait for ever
                log.error("what was begun meanwhile was not finished", exc_info=error)
            self._ends.put(None)
