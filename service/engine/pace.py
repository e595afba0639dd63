"""How many commands may wait: as many as can be answered in time at the pace of the last batches."""

from __future__ import annotations

from dataclasses import dataclass, replace

# How many commands one transaction takes at the most.
BATCH_MAX = 256
# The part of its time that a request may spend in the queue; the rest is for its batch, and for the one under way.
WAITING_SHARE = 0.5
# What the newest batch counts for: a single slow commit is not yet a slow database.
NEWEST_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Pace:
    """What one command of a large batch has taken of late, and what follows from it."""

    deadline_seconds: float
    queue_max: int
    seconds_each: float = 0.0  # 0 until there was a large batch

    @property
    def waiting_max(self) -> int:
        """How many commands may wait so that the last of them is still answered in time; always one."""
        if not self.seconds_each:
            return self.queue_max
        return max(1, min(self.queue_max, int(WAITING_SHARE * self.deadline_seconds / self.seconds_each)))

    @property
    def batch_max(self) -> int:
        """How many commands a batch may take so that it ends in time by itself."""
        return min(BATCH_MAX, self.waiting_max)

    def batch_seconds(self, waiting: int) -> float:
        """How long the next batch will take, if so many commands wait."""
        return self.seconds_each * min(waiting, self.batch_max)

    def after(self, commands: int, seconds: float) -> Pace:
        """The pace when another batch has ended. A small one tells nothing: it is mostly the commit, which all share.

        >>> Pace(1.0, 10_000).after(256, 0.064).waiting_max
        2000
        """
        if 2 * commands < self.batch_max:
            return self
        newest = seconds / commands
        share = NEWEST_SHARE if self.seconds_each else 1.0
        return replace(self, seconds_each=(1 - share) * self.seconds_each + share * newest)
