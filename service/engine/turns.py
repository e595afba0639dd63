"""Which commands a transaction serves, and which campaigns it waits for, where replicas share campaigns.

A transaction takes the campaigns that are free, and the commands for the others are in the next one. It waits only for
the command that waits longest: if nothing is free, or if that command has waited for too long. So replicas do not queue
behind each other, and a frozen one stops the campaigns that it has locked and no other. A campaign whose portfolio is
locked is not free. Expiry takes what is free, too, and waits for one campaign at most.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection

from service.engine.commands import Item
from service.problems import Unavailable
from service.store.database import Database
from service.store.statements import Row

# A command whose campaigns were not free for longer is waited for before others are served.
PATIENCE_SECONDS = 0.05
# One wait takes at most this share of the lock timeout, and no longer than this, so that commands that came since get
# their turn.
WAIT_SHARE = 1 / 4
WAIT_MS_MAX = 250
BUSY = "another process keeps the campaign locked; try again"


class Turns:
    """The waits of one engine; one thread only."""

    def __init__(self, database: Database, lock_timeout_ms: int) -> None:
        self._database = database
        self._wait_ms = max(1, min(WAIT_MS_MAX, int(lock_timeout_ms * WAIT_SHARE)))
        self._timeout_seconds = lock_timeout_ms / 1000
        self._patience_seconds = min(PATIENCE_SECONDS, self._timeout_seconds * WAIT_SHARE)
        self._pause_until = 0.0
        self._comes_first = False  # nothing was free for the last transaction: the next one begins with a wait
        self._left_out = 0  # a campaign with due holds that was not free
        self.has_waited = False  # in this transaction: what was read before is of an earlier time

    def wait_first(
        self,
        connection: Connection,
        items: Sequence[Item],
        named: Mapping[str, int],
        members: Mapping[int, int],
        awaited: set[int],
        *,
        fresh: bool,
    ) -> bool:
        """Wait for the command that has waited for too long, before anything is locked; returns whether there is one.

        `named` are the numbers of campaigns by their ids, `members` those of portfolios by those of their campaigns. To
        `awaited` it adds the campaigns that it waited for until they were free. `fresh`: see `Database.lock_rows`.
        """
        self.has_waited = False
        if not items or not (self._comes_first or self._is_overdue(items)):
            return False
        self._comes_first = False
        longest = _longest(items, named)
        if longest:
            self._wait(connection, longest, members, awaited, fresh=fresh)
        return True

    def lock(
        self,
        connection: Connection,
        numbers: Sequence[int],
        items: Sequence[Item],
        named: Mapping[str, int],
        members: Mapping[int, int],
        awaited: set[int],
        *,
        fresh: bool,
    ) -> list[Row]:
        """Lock those of the campaigns that are free for these items; returns their states. See `wait_first`.

        If nothing is free it waits: at once, or first in the next transaction if this one may have locked a portfolio.
        """
        database = self._database
        rows = database.lock_free_rows(connection, numbers)
        longest = [] if rows else _longest(items, named)
        if not longest:
            return rows
        if not members.keys().isdisjoint({*numbers, *longest}):
            self._comes_first = True
            return []
        self._wait(connection, longest, members, awaited, fresh=fresh)
        return database.lock_free_rows(connection, numbers)

    def wait_for_due(self, connection: Connection, numbers: Collection[int], members: Mapping[int, int]) -> None:
        """Before an expiry locks what is free of these campaigns: wait for one that the last expiry found locked."""
        first = self._left_out if len(numbers) > 1 else min(numbers)
        if first in numbers:
            self._wait(connection, [first], members, set(), fresh=False)

    def leave_out_due(self, numbers: Collection[int]) -> None:
        """Take in which campaigns an expiry has found locked: each gets its turn."""
        self._left_out = min(numbers, key=lambda number: (number <= self._left_out, number), default=0)

    def _wait(
        self,
        connection: Connection,
        numbers: Sequence[int],
        members: Mapping[int, int],
        awaited: set[int],
        *,
        fresh: bool,
    ) -> None:
        self.has_waited, began = True, time.monotonic()
        portfolios = {members[number] for number in numbers if number in members}
        if self._database.wait_for_rows(
            connection, numbers, portfolios=portfolios, timeout_ms=self._wait_ms, fresh=fresh
        ):
            awaited.update(numbers)
        else:  # what has locked the campaign may be frozen: the same time is for others
            self._pause_until = 2 * time.monotonic() - began

    def _is_overdue(self, items: Sequence[Item]) -> bool:
        """Whether a command has waited for too long, so that its campaigns come before all others."""
        since = min((item.blocked_at for item in items if item.blocked_at), default=None)
        if since is None:
            return False
        now = time.monotonic()
        return now - since >= self._patience_seconds and now >= self._pause_until

    def leave(self, by_campaign: Mapping[str, list[Item]], blocked: Collection[str]) -> None:
        """Take the commands for these campaigns out of the lists, with those that must be in one transaction with them.

        They get no answer and wait for the next transaction, or are answered if the lock timeout is over.
        """
        groups = {item.together for name in blocked for item in by_campaign[name] if item.together}
        now = time.monotonic()
        for name, items in by_campaign.items():
            left = items if name in blocked else [item for item in items if groups and item.together in groups]
            for item in left:
                item.blocked_at = item.blocked_at or now
                if now - item.blocked_at >= self._timeout_seconds:
                    item.answer = Unavailable(BUSY, kind="campaign-busy")
            if left:
                items[:] = [] if name in blocked else [item for item in items if item.together not in groups]


def _longest(items: Sequence[Item], numbers: Mapping[str, int]) -> list[int]:
    """The campaigns of the command that waits longest, and of those that must be in one transaction with it."""
    now, known = time.monotonic(), [item for item in items if _campaign_of(item) in numbers]
    if not known:
        return []
    first = min(known, key=lambda item: item.blocked_at or now)
    group = [item for item in known if item.together == first.together] if first.together else [first]
    return sorted({numbers[_campaign_of(item)] for item in group})


def _campaign_of(item: Item) -> str:
    return getattr(item.command, "campaign_id", "")
