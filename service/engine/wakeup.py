"""How the engine's thread and the event loop wake each other."""

from __future__ import annotations

import os
import select
from math import ceil

# What adds one to an event counter; in a pipe it is as good as any other bytes.
_STROKE = (1).to_bytes(8, "little")


class Bell:
    """Rung by one thread, heard by another, who looks what there is: a stroke is never lost, and several may be one.

    A lock or condition of `threading` wakes the other thread while its own still holds the interpreter. On one core the
    woken one takes over at once, finds the interpreter taken, sleeps again, and that three times over before it gets to
    work. A system call lets go of the interpreter first, so whoever is woken by it can go on.
    """

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self._ear = self._hand = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._ear, self._hand = os.pipe()
            os.set_blocking(self._ear, False)
            os.set_blocking(self._hand, False)
        self._poll = select.poll()
        self._poll.register(self._ear, select.POLLIN)

    def fileno(self) -> int:
        """What is readable when the bell was rung, for an event loop."""
        return self._ear

    def ring(self) -> None:
        """Wake who waits, or who will wait next."""
        try:  # noqa: SIM105 - `suppress` takes as long as the system call
            os.write(self._hand, _STROKE)
        except BlockingIOError:  # it has been rung often enough
            pass

    def wait(self, seconds: float | None) -> None:
        """Return when it is rung, or was since the last time; after so many seconds at the latest, None being never."""
        if self._poll.poll(None if seconds is None else ceil(seconds * 1000)):
            self.hush()

    def hush(self) -> None:
        """Forget that it was rung."""
        try:  # noqa: SIM105 - as above
            os.read(self._ear, 4096)
        except BlockingIOError:  # it was not
            pass

    def close(self) -> None:
        """Let go of it; nobody may ring or wait any more."""
        for end in {self._ear, self._hand}:
            os.close(end)
