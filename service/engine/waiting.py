"""Requests that wait for their transaction, and the line of those that take long to calculate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.engine.commands import Item

Deliver = Callable[[Sequence[Item]], None]

# The transactions that the line may fill. More would be answered too late, and their clients' connections would count
# as requests under way, for which others are refused.
TRANSACTIONS_MAX = 8


@dataclass(slots=True)
class Waiter:
    """The commands of one request, and the function that the event loop calls once with their answers."""

    items: Sequence[Item]
    deliver: Deliver
    work: int = 0  # multiplications, where its campaigns need many
    gone: bool = False  # the client is gone: a command that has not begun is not carried out


class LargeRequests:
    """The line: its requests are in transactions of their own, between those of all other requests."""

    def __init__(self, work_max: int) -> None:
        self._work_max = work_max  # of one transaction; a single request may need more
        self._line: deque[Waiter] = deque()
        self._work = 0

    def __bool__(self) -> bool:
        return bool(self._line)

    def add(self, waiter: Waiter) -> bool:
        """Put a request into the line; return whether there is room."""
        if self._work >= TRANSACTIONS_MAX * self._work_max:
            return False
        self._line.append(waiter)
        self._work += waiter.work
        return True

    def take(self) -> list[Waiter]:
        """The requests of the next transaction, in order."""
        taken = [self._line.popleft()]
        work = taken[0].work
        while self._line and work + self._line[0].work <= self._work_max:
            taken.append(self._line.popleft())
            work += taken[-1].work
        self._work -= work
        return taken
