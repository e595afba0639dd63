"""What campaigns have earned: the rewards that they have learnt, summed over their logs.

The sum up to a number of the log stays true, whatever is pruned later, so a process remembers it, and the next read
adds what came since.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Double, Engine, func, select

from service.domain.campaign import Campaign
from service.reads.log_sums import NUMBERS_PER_STATEMENT
from service.reads.shared import StoredCampaign
from service.store import tables
from service.store.log_amounts import element
from service.store.opening_balance import opening_of
from service.store.writer import history_of

# Numbers of logs that a list of campaigns counts: about two seconds. What is left is counted by the next one.
LIST_NUMBERS_MAX = 1_000_000


class Earned(NamedTuple):
    """Rewards learnt up to a number of the log."""

    history: object  # of the database
    through: int
    rewards: int = 0
    scaled: float = 0.0  # their sum, in [0, 1] each

    def reward(self, campaign: Campaign) -> float:
        """Their sum in the declared range.

        >>> Earned(None, 9, rewards=4, scaled=1.5).reward(Campaign(1, "c", 1, {"reward": {"min": -1, "max": 3}}))
        2.0
        """
        low, high = campaign.config["reward"]["min"], campaign.config["reward"]["max"]
        return float(self.rewards * low + self.scaled * (high - low))


_known: WeakKeyDictionary[Engine, dict[int, Earned]] = WeakKeyDictionary()
_lock = Lock()


class Earnings:
    """The rewards of campaigns in one read, which counts at most `numbers_max` numbers of their logs."""

    def __init__(self, connection: Connection, numbers_max: float = float("inf")) -> None:
        self._connection, self._left = connection, numbers_max
        with _lock:
            self._known = _known.setdefault(connection.engine, {})

    def of(self, stored: StoredCampaign) -> float | None:
        """The sum of the rewards of a campaign; None if a part of its log is left for the next read."""
        number, history = stored.campaign.number, history_of(self._connection)
        earned = self._known.get(number)
        if earned is None or earned.history != history:
            earned = self._pruned(number, history)
        while earned.through < stored.sequence and self._left > 0:
            earned = self._added(earned, number, min(stored.sequence, earned.through + NUMBERS_PER_STATEMENT))
            self._known[number] = earned
        return None if earned.through < stored.sequence else earned.reward(stored.campaign)

    def _pruned(self, number: int, history: object) -> Earned:
        opening = opening_of(self._connection, number)
        arms = () if opening is None else opening.arms.values()
        return Earned(history, 0, sum(sums.rewards for sums in arms), sum(sums.reward for sums in arms))

    def _added(self, earned: Earned, number: int, through: int) -> Earned:
        outcome = tables.outcome
        scaled = func.coalesce(func.sum(element(self._connection, outcome.c.taught, 0, Double)), 0.0)
        of_log = (outcome.c.campaign == number, outcome.c.sequence > earned.through, outcome.c.sequence <= through)
        count, more = self._connection.execute(select(func.count(), scaled).where(*of_log, tables.is_learnt)).one()
        self._left -= through - earned.through
        return Earned(earned.history, through, earned.rewards + count, earned.scaled + more)
