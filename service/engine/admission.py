"""How many requests may be under way: as many as can be answered in time at the pace of the last batches."""

from __future__ import annotations

# How many commands one transaction takes at the most. The more, the less each costs; who comes meanwhile would have
# waited for them in any case, one batch or four.
BATCH_MAX = 1024
# So many may be under way whatever else is slow, unless a batch cannot be as large.
ALWAYS_UNDER_WAY = 256
# The part of its time that a request may be expected to take; the rest is for what is not expected.
EXPECTED_SHARE = 0.5
# From how many commands on a batch tells the pace, or from which part of a full one; a smaller one is mostly the
# commit, which all share.
TELLING_COUNT = 128
TELLING_SHARE = 1 / 2
# What a command is taken to need before there was such a batch.
SECONDS_EACH = 0.0005
# What the newest batch counts for: a single slow commit is not yet a slow database.
NEWEST_SHARE = 0.3
# A lag below this is none, and a small batch that has met no other says nothing new.
LAG_SECONDS_MIN = 0.001


class Pace:
    """What a command of a large batch has taken of late and what the event loop takes to get to anything, and what
    follows; it does not change."""

    __slots__ = (
        "_expected_seconds",
        "batch_max",
        "deadline_seconds",
        "lag_seconds",
        "queue_max",
        "seconds_each",
        "under_way_max",
    )

    def __init__(
        self, deadline_seconds: float, queue_max: int, seconds_each: float = SECONDS_EACH, lag_seconds: float = 0.0
    ) -> None:
        self.deadline_seconds, self.queue_max = deadline_seconds, queue_max
        self.seconds_each, self.lag_seconds = seconds_each, lag_seconds
        self._expected_seconds = EXPECTED_SHARE * deadline_seconds
        # How many commands a batch may take so that it ends in time by itself; always one.
        self.batch_max = max(1, min(BATCH_MAX, queue_max, int(self._expected_seconds / seconds_each)))
        # How many may be under way so that the last of them is still answered in time. The event loop has to get to
        # each of them twice, to read and to answer. But some may always be under way: who refuses everything because
        # refusing takes long does nothing else any more.
        most = int((self._expected_seconds - 2 * lag_seconds) / seconds_each)
        self.under_way_max = min(queue_max, max(min(ALWAYS_UNDER_WAY, self.batch_max), most))

    def answer_seconds(self, waiting: int) -> float:
        """How long it will take until the next batch is answered, if so many commands wait."""
        # However slow it has become, whoever came just now is not refused: nothing would be done any more, and nobody
        # would find out that it is no longer slow.
        return min(self._expected_seconds, self.seconds_each * min(waiting, self.batch_max) + self.lag_seconds)

    def after(self, commands: int, seconds: float, lag_seconds: float = 0.0) -> Pace:
        """The pace when another batch has ended, and the event loop took so long to get to the answers before.

        >>> Pace(1.0, 10_000, seconds_each=0.00025).after(256, 256 * 0.00025).under_way_max
        2000
        """
        each = self.seconds_each
        if commands >= min(TELLING_COUNT, TELLING_SHARE * self.batch_max):
            each = (1 - NEWEST_SHARE) * each + NEWEST_SHARE * seconds / commands
        elif max(lag_seconds, self.lag_seconds) < LAG_SECONDS_MIN:
            return self
        lag = (1 - NEWEST_SHARE) * self.lag_seconds + NEWEST_SHARE * lag_seconds
        return Pace(self.deadline_seconds, self.queue_max, each, lag)
