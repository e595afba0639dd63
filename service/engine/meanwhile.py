"""What can be done while the engine's thread waits for the disk: in a second thread, for the core is free then."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread

import structlog

# What is to be done; at each yield whoever else wants the core may have it.
Steps = Iterator[None]

log = structlog.get_logger(__name__)

_give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Meanwhile:
    """One task at a time; begun by one thread, who comes back for it and does what is left of it.

    On one core whoever is woken takes it at once, and the disk would get its order only after the task. So the second
    thread tells Linux that it is in no hurry (SCHED_BATCH): it takes the core from nobody who is at work. Where that
    cannot be said the task is done a little earlier, and nothing is gained. But who is at work is not interrupted
    either, and a commit has a second order for the disk when the first is carried out: so a task gives up the core at
    every step. Where others keep the core the second thread may not have it for long; that holds nobody up, because
    whoever comes back takes the next step.
    """

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Steps | None] = SimpleQueue()
        self._under_way: Steps | None = None
        self._step = Lock()  # for who takes one
        self._thread = Thread(target=self._work, name="cbwk-meanwhile", daemon=True)

    def start(self) -> None:
        """Be ready for tasks."""
        self._thread.start()

    def begin(self, task: Steps) -> None:
        """Have it done, as far as there is time, whenever this thread waits for something."""
        self._under_way = task
        self._tasks.put(task)

    def finish(self) -> None:
        """See to it that what was begun is done; nothing if there is nothing."""
        task, self._under_way = self._under_way, None
        if task is not None:
            with self._step:
                while _goes_on(task):
                    pass

    def close(self) -> None:
        """End the thread; nothing may be begun any more."""
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        if hasattr(os, "SCHED_BATCH"):
            with suppress(OSError):  # a sandbox may forbid it
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        while (task := self._tasks.get()) is not None:
            while self._has_taken_step(task):
                _give_way()

    def _has_taken_step(self, task: Steps) -> bool:
        with self._step:
            return _goes_on(task)


def _goes_on(task: Steps) -> bool:
    """Take a step; whether there may be more."""
    try:
        next(task)
    except StopIteration:
        return False
    except Exception as error:
        log.error("what was begun meanwhile was not finished", exc_info=error)
        return False
    return True
