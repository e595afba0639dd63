"""How the engine's thread and the event loop wake each other."""

from __future__ import annotations

import os
import select
from math import ceil

# The bytes that add one to an event counter; a pipe takes them as well.
_SIGNAL = (1).to_bytes(8, "little")


class Wakeup:
    """One thread sets it, another waits for it. A signal is never lost, and several may count as one.

    A lock or condition of `threading` wakes the other thread while its own still holds the interpreter. On one core the
    woken thread takes over at once, finds the interpreter taken and sleeps again, three times over before it runs. A
    system call releases the interpreter first, so the woken thread can go on.
    """

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self._reader = self._writer = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def fileno(self) -> int:
        """The descriptor that is readable while it is set, for an event loop."""
        return self._reader

    def set(self) -> None:
        """Wake the thread that waits, or the next one that will."""
        try:  # noqa: SIM105 - `suppress` takes as long as the system call
            os.write(self._writer, _SIGNAL)
        except BlockingIOError:  # it is set
            pass

    def wait(self, seconds: float | None) -> None:
        """Return when it is set, or was since the last time, and clear it; at the latest after `seconds`."""
        if self._poll.poll(None if seconds is None else ceil(seconds * 1000)):
            self.clear()

    def clear(self) -> None:
        """Clear it."""
        try:  # noqa: SIM105 - as above
            os.read(self._reader, 4096)
        except BlockingIOError:  # it is not set
            pass

    def close(self) -> None:
        """Close it; no thread may use it any more."""
        for end in {self._reader, self._writer}:
            os.close(end)
