"""One batch of commands: one retry policy around one transaction.

A batch that fails for a reason of its own is tried again in smaller groups, so that a poisonous command fails alone. A
commit that fails means *unknown*: the campaigns are forgotten, and the clients ask again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import structlog

from service.engine.cache import FarBehind
from service.engine.commands import Answer, Expire, Item, Once, PatchPortfolio
from service.engine.settle import Unsound
from service.engine.transaction import Attempt, Transactions
from service.fault import Reached
from service.limits import DECIDE_WORK_MAX
from service.metrics import Metrics
from service.problems import Unavailable
from service.store.database import Database

# No decision is answered while campaigns expire one by one: after this time the rest waits for the next expiry.
EXPIRE_ALONE_SECONDS = 0.1
AWAY = "the database did not answer; try again"
# Without a database every transaction fails within milliseconds: those of a second share one line of the log.
AWAY_LOGGED_SECONDS = 1.0

log = structlog.get_logger(__name__)


class BatchRunner:
    """Runs batches on one database; one thread only."""

    def __init__(
        self,
        database: Database,
        *,
        memory_bytes_max: int,
        lock_timeout_ms: int,
        work_max: int = DECIDE_WORK_MAX,
        metrics: Metrics | None = None,
        reached: Reached | None = None,
    ) -> None:
        self.failed = False  # for good: SQLite's file cannot be trusted any more
        self._tried_alone = 0  # the last campaign whose holds were to expire alone
        self._away = 0  # transactions that failed since the last line about it
        self._away_logged_at = -inf
        self._database = database
        self._transactions = Transactions(
            database,
            memory_bytes_max=memory_bytes_max,
            lock_timeout_ms=lock_timeout_ms,
            work_max=work_max,
            metrics=metrics or Metrics(),
            reached=reached,
        )
        self.due = self._transactions.cache.due  # campaigns that need a snapshot
        self.large_campaigns = self._transactions.cache.large

    def forget_webhooks(self) -> None:
        """Read the webhooks again in the next transaction."""
        self._transactions.notices.forget()

    def run(self, items: Sequence[Item]) -> None:
        """Answer every item; never raises for what an item asked."""
        while self.run_free(items):
            items = [item for item in items if item.answer is None]

    def run_free(self, items: Sequence[Item]) -> int:
        """Answer the items whose campaigns are free; returns how many are left. Never raises for what an item asked."""
        # What locks by itself has a transaction of its own: no lock is taken out of order.
        apart = [item for item in items if isinstance(item.command, Expire | PatchPortfolio | Once)]
        timed = [item for item in apart if isinstance(item.command, Expire)]
        others = [item for item in items if item not in apart] if apart else items
        alone = [[item] for item in apart if not isinstance(item.command, Expire)]
        pending = [group for group in (timed, *alone, others) if group]
        while pending:
            pending[:0] = self._attempt(pending.pop(0))
        if timed and isinstance(timed[0].answer, Answer):
            self._expire_alone(self._transactions.postponed)
        return sum(item.is_blocked for item in items)

    def _attempt(self, items: Sequence[Item]) -> list[Sequence[Item]]:
        """Try one transaction until it ends; return the groups to try separately.

        A campaign far behind the log is first brought up to it without its lock. Where outcomes cannot all be learnt,
        those that can are learnt one by one.
        """
        attempt, behind = Attempt(), None
        while not self.failed:
            try:
                if behind is not None:
                    self._transactions.catch_up(behind)
                    attempt.caught_up.add(behind)
                    behind = None
                self._transactions.run(items, attempt)
            except FarBehind as error:
                self._transactions.take_back(items)
                behind = error.number
            except Unsound:
                self._transactions.forget(items)
                attempt.one_by_one = True
            except Exception as error:  # noqa: BLE001 - every item is answered, whatever failed
                self._transactions.forget(items)
                return self._failed(items, error)
            else:
                return []
        _answer(items, Unavailable(AWAY, kind="database-away"))
        return []

    def _failed(self, items: Sequence[Item], error: Exception) -> list[Sequence[Item]]:
        """Answer the items, or return the groups to try separately."""
        if self._database.is_file_error(error):
            self._fail(error)
        if self._database.is_connection_error(error):
            reason = self._database.away_reason(error)
            self._log_away(error, reason)
            _answer(items, Unavailable(reason, kind="database-away"))
            return []
        groups = _groups(items)
        if len(groups) > 1:
            for item in items:
                item.answer = None  # of the transaction that failed
            return groups
        command = items[0].command
        log.error("command failed", command=type(command).__name__, exc_info=error)
        _answer(items, error)
        if isinstance(command, Expire) and command.number is None:
            expired = self._expire_alone(self._overdue)
            if expired is not None:
                items[0].answer = Answer({"expired": expired})
        return []

    def _log_away(self, error: Exception, reason: str) -> None:
        """Log why the database is away: what clients are told, and the words of the driver, which they are not."""
        self._away += 1
        now = time.monotonic()
        if now - self._away_logged_at >= AWAY_LOGGED_SECONDS:
            words = str(getattr(error, "orig", error)).partition("\n")[0]
            log.warning("database away", reason=reason, error=words, transactions=self._away)
            self._away, self._away_logged_at = 0, now

    def _overdue(self) -> list[int]:
        """The campaigns with overdue holds, those after the last one tried first: each gets its turn."""
        return sorted(self._transactions.overdue(), key=lambda number: (number <= self._tried_alone, number))

    def _expire_alone(self, campaigns: Callable[[], Sequence[int]]) -> int | None:
        """Expire the holds of each campaign in a transaction of its own: one hold that cannot expire stops no other.

        Returns how many have expired, None if the campaigns cannot be read. Ends early, after at least one campaign.
        """
        try:
            numbers = campaigns()
        except Exception as error:
            log.error("the overdue holds cannot be read", exc_info=error)
            return None
        expired, until = 0, time.monotonic() + EXPIRE_ALONE_SECONDS
        for number in numbers:
            one = Item(Expire(number), inf)
            self._attempt([one])
            self._tried_alone = number
            if isinstance(one.answer, Answer):
                expired += one.answer.body["expired"]
                self._transactions.has_expired_alone(number, one.answer.body["expired"])
            elif isinstance(one.answer, Unavailable):
                break  # the database is away: no campaign is at fault
            else:
                log.error("the holds of a campaign cannot expire", campaign=number)
                self._transactions.postpone_expiry(number)
            if time.monotonic() >= until:
                break
        return expired

    def _fail(self, error: BaseException) -> None:
        """Give up: what the disk holds now is unknown; the next process finds what was committed."""
        if not self.failed:
            log.critical("the database's file failed; the process ends", error=str(getattr(error, "orig", error)))
        self.failed = True

    def handed_out(self) -> list[int]:
        """Campaigns whose stage one ends as soon as none of its decisions is open; any thread may call this."""
        return list(self._transactions.handed_out)

    def save_due(self) -> None:
        """Write the states that have learnt enough since their last snapshot, in transactions of their own."""
        self._save(self._transactions.snapshots.save_due)

    def save_all(self) -> None:
        """Write snapshots of all that has learnt since its last one: before the process stops."""
        self._save(self._transactions.snapshots.save_all)

    def _save(self, save: Callable[[object], BaseException | None]) -> None:
        error = None if self.failed else save(self._transactions)
        if error is not None:
            self._fail(error)


def _answer(items: Sequence[Item], answer: BaseException) -> None:
    for item in items:
        item.answer = answer


def _groups(items: Sequence[Item]) -> list[Sequence[Item]]:
    """The items that must stay in one transaction, each group in its order."""
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(item.together or id(item), []).append(item)
    return [*groups.values()]
