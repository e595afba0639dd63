"""Points at which tests end or freeze the process, set by `CBWK_FAULT_POINT`.

`POINT:N:exit` ends the process, as kill -9 does, when it reaches the point for the N-th time. `POINT:N:stop` freezes
it there, as SIGSTOP does, with its transaction open, until it receives SIGCONT.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Literal

Point = Literal["before-insert", "after-insert", "before-commit", "after-commit", "before-answer"]
Reached = Callable[[Point], None]

PATTERN = r"(before-insert|after-insert|before-commit|after-commit|before-answer):[1-9][0-9]*:(exit|stop)"
EXIT_CODE = 86


def fault_at(text: str | None) -> Reached | None:
    """Return the hook that is called at every point; None without a fault point.

    >>> fault_at(None) is None
    True
    """
    if text is None:
        return None
    fault_point, number, action = text.split(":")
    remaining = int(number)

    def reached(point: Point) -> None:
        nonlocal remaining
        if point != fault_point:
            return
        remaining -= 1
        if remaining == 0 and action == "stop":
            # Sent to the process, the signal would stop this thread only some statements later.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        elif remaining == 0:
            os._exit(EXIT_CODE)

    return reached
