"""Times several contenders alternately, so that a slower machine slows all of them.

One *slice* is a stretch of calls of one contender. Slices of all contenders alternate, and what is compared is one
contender's slice with the other's slice of the same turn. The clock is the process's own processor time, over all its
threads: nothing here waits for anything, and time given to other processes is none of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from time import process_time
from typing import TypeVar

Item = TypeVar("Item")

# A slice has about this many parts, so that it is not much longer than necessary.
PARTS = 4


@dataclass(frozen=True)
class Contender:
    """Something to time: `run(count)` makes that many calls, each for `decisions` decisions."""

    name: str
    run: Callable[[int], object]
    decisions: int = 1


@dataclass(frozen=True)
class Pace:
    """The number of slices and the least duration of each in seconds."""

    slices: int
    slice_seconds: float


@dataclass(frozen=True)
class Timing:
    """Seconds per decision, one figure per slice."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds per decision."""
        return median(self.seconds)

    def ratio(self, other: Timing) -> float:
        """Return the ratio to the other timing: the median over the slices.

        >>> Timing((1.0, 4.0, 3.0)).ratio(Timing((2.0, 2.0, 2.0)))
        1.5
        """
        return median(mine / theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True))


def each(items: Iterable[Item], call: Callable[[Item], object]) -> Callable[[int], None]:
    """Return a `run` that calls the function with the items in a cycle.

    >>> run = each("ab", print)
    >>> run(3)
    a
    b
    a
    """
    endless = cycle(items)

    def run(count: int) -> None:
        for item in islice(endless, count):
            call(item)

    return run


def measure(contenders: Sequence[Contender], pace: Pace, on_slice: Callable[[], object]) -> dict[str, Timing]:
    """Time all contenders alternately, slice by slice; `on_slice` is called after each, outside the clock."""
    counts = [_calls_per_part(contender, pace.slice_seconds) for contender in contenders]
    seconds: list[list[float]] = [[] for _ in contenders]
    for _ in range(pace.slices):
        for contender, count, found in zip(contenders, counts, seconds, strict=True):
            found.append(_slice(contender, count, pace.slice_seconds))
            on_slice()
    return {contender.name: Timing(tuple(found)) for contender, found in zip(contenders, seconds, strict=True)}


def _calls_per_part(contender: Contender, slice_seconds: float) -> int:
    """Return the number of calls in one part of a slice; this also warms up the contender."""
    part_seconds, count = slice_seconds / PARTS, 1
    while True:
        elapsed = _seconds_of(contender, count)
        if elapsed >= part_seconds / 4:
            return max(1, round(count * part_seconds / elapsed))
        count *= 2


def _slice(contender: Contender, count: int, slice_seconds: float) -> float:
    elapsed, calls = 0.0, 0
    while elapsed < slice_seconds:
        elapsed += _seconds_of(contender, count)
        calls += count
    return elapsed / (calls * contender.decisions)


def _seconds_of(contender: Contender, count: int) -> float:
    start = process_time()
    contender.run(count)
    return process_time() - start
