"""Which requests may be under way: as many as can be answered in time at the speed of the last batches.

A request of a large campaign needs many multiplications. It has a bound, and it waits in a line of its own.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.domain.campaign import Campaign
from service.engine.commands import Command, Decide, Feedback, Item
from service.problems import Invalid
from service.settings import environment_variable
from service.words import error_at

Deliver = Callable[[Sequence[Item]], None]

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
# The transactions that the line may fill. More would be answered too late, and their clients' connections would count
# as requests under way, for which others are refused.
TRANSACTIONS_MAX = 8


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

    def put_back(self, waiter: Waiter) -> None:
        """Put a request before all others: its campaign was not free."""
        self._line.appendleft(waiter)
        self._work += waiter.work

    def take(self) -> list[Waiter]:
        """The requests of the next transaction, in order."""
        taken = [self._line.popleft()]
        work = taken[0].work
        while self._line and work + self._line[0].work <= self._work_max:
            taken.append(self._line.popleft())
            work += taken[-1].work
        self._work -= work
        return taken


def is_large(campaign: Campaign, work_max: int) -> bool:
    """Whether a full batch of decisions of the campaign may need more than one transaction may take."""
    return BATCH_MAX * campaign.decision_work_max > work_max


class LargeCampaign(NamedTuple):
    """What the work of its requests depends on."""

    arm_work: int
    arms: int


def work_of(commands: Sequence[Command], large: Mapping[str, LargeCampaign], work_max: int) -> int:
    """The work of a request that is large: a full batch of such requests would need more than one transaction may take.

    It is 0 for other requests, also for those of a large campaign that bring few actions.
    """
    work = 0
    for command in commands:
        if isinstance(command, Decide | Feedback) and (campaign := large.get(command.campaign_id)) is not None:
            work += campaign.arm_work * (_candidates(campaign.arms, command) if isinstance(command, Decide) else 1)
    return work if work > len(commands) * (work_max // BATCH_MAX) else 0


def within_bounds(campaign: Campaign, items: Sequence[Item], stored: Collection[str], work_max: int) -> Sequence[Item]:
    """The items of decide requests that need no more work than is allowed; the other requests are answered.

    A decision that is stored needs none, and one decision among the campaign's own arms is always made.
    """
    if len(items) * campaign.decision_work_max <= work_max:
        return items
    groups: dict[int, list[tuple[Item, Decide]]] = defaultdict(list)
    for item in items:
        command = item.command
        if isinstance(command, Decide) and command.decision_id not in stored:
            groups[item.together or id(item)].append((item, command))
    refused: set[int] = set()
    for group in groups.values():
        arms = sum(_candidates(len(campaign.arms), command) for _, command in group)
        if arms * campaign.arm_work > work_max and (len(group) > 1 or group[0][1].actions is not None):
            problem = _excess(campaign, len(group), arms, work_max)
            for item, _ in group:
                item.answer = problem
                refused.add(id(item))
    return [item for item in items if id(item) not in refused] if refused else items


def _candidates(arms: int, command: Decide) -> int:
    return arms if command.actions is None else len(command.actions)


def _excess(campaign: Campaign, items: int, arms: int, work_max: int) -> Invalid:
    message = (
        f"{items} decisions among {arms} arms in all, of {campaign.dimension} features, are "
        f"{arms * campaign.arm_work} multiplications; one request may need at most {work_max}"
    )
    detail = f"{message} ({environment_variable('decide_work_max')}): send fewer at once"
    return Invalid(detail, kind="too-much-work", errors=[error_at((), message)])
