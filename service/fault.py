"""Points at which a test ends or freezes the process; nobody else sets `CBWK_FAULT_POINT`, and then nothing happens.

`POINT:N:exit` ends the process without a word when the point is reached for the N-th time, as kill -9 would;
`POINT:N:stop` freezes it there as SIGSTOP does, with its transaction open, until somebody sends SIGCONT.
"""

from __future__ import annotations

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
    """What happens at the points: nothing, or what the setting says.

    >>> fault_at(None) is None
    True
    """
    if text is None:
        return None
    wanted, number, action = text.split(":")
    left = int(number)

    def reached(point: Point) -> None:
        nonlocal left
        if point != wanted:
            return
        left -= 1
        if left == 0 and action == "stop":
            # To this thread, which goes no further: sent to the process it would stop here some statements later.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        elif left == 0:
            os._exit(EXIT_CODE)

    return reached
