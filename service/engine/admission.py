"""How many requests may be under way: as many as can be answered in time at the speed of the last batches."""

from __future__ import annotations

# The most commands of one transaction. The more, the less each costs; a command that comes in the meantime would have
# waited for them in any case, one batch or four.
BATCH_MAX = 1024
# This many may always be under way, unless a batch must be smaller.
ALWAYS_UNDER_WAY = 256
# The share of its deadline that a request is expected to take; the rest is for surprises.
EXPECTED_SHARE = 0.5
# A batch of this many commands, or of this share of a full one, shows the time per command; a smaller batch is mostly
# the commit, which all commands share.
MEASURED_COUNT = 128
MEASURED_SHARE = 1 / 2
# The assumed time of a command before the first such batch.
SECONDS_EACH = 0.0005
# The weight of the newest batch: a single slow commit is not yet a slow database.
NEWEST_SHARE = 0.3
# A smaller lag of the event loop counts as none; a small batch without lag changes nothing.
LAG_SECONDS_MIN = 0.001


class Admission:
    """The limits that follow from the time per command of large batches and from the lag of the event loop; frozen."""

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
        # The most commands of a batch that ends in time by itself; at least one.
        self.batch_max = max(1, min(BATCH_MAX, queue_max, int(self._expected_seconds / seconds_each)))
        # The most commands under way of which the last is still answered in time. The event loop handles each of them
        # twice, to read and to answer. Some may always be under way: a service that refuses everything because refusing
        # takes long would do nothing else any more.
        most = int((self._expected_seconds - 2 * lag_seconds) / seconds_each)
        self.under_way_max = min(queue_max, max(min(ALWAYS_UNDER_WAY, self.batch_max), most))

    def answer_seconds(self, waiting: int) -> float:
        """The time until the next batch is answered, if that many commands wait."""
        # A new request is not refused however slow the last batches were: otherwise nothing would run any more, and no
        # batch could show that the database is fast again.
        return min(self._expected_seconds, self.seconds_each * min(waiting, self.batch_max) + self.lag_seconds)

    def after(self, commands: int, seconds: float, lag_seconds: float = 0.0) -> Admission:
        """The limits after another batch; lag_seconds: the time that the event loop took to get to the last answers.

        >>> Admission(1.0, 10_000, seconds_each=0.00025).after(256, 256 * 0.00025).under_way_max
        2000
        """
        each = self.seconds_each
        if commands >= min(MEASURED_COUNT, MEASURED_SHARE * self.batch_max):
            each = (1 - NEWEST_SHARE) * each + NEWEST_SHARE * seconds / commands
        elif max(lag_seconds, self.lag_seconds) < LAG_SECONDS_MIN:
            return self
        lag = (1 - NEWEST_SHARE) * self.lag_seconds + NEWEST_SHARE * lag_seconds
        return Admission(self.deadline_seconds, self.queue_max, each, lag)
