"""Bugs that tests plant into the service to show that the suite finds them.

`planted` plants a bug into the current process; the variable `SEEDED_BUG` plants one into the server processes that
`zygote.py` forks. Each bug is a mistake that a programmer could make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, text

from service.auth import Principal
from service.domain.campaign import Campaign
from service.domain.ledger import Account, Ledger
from service.engine import cache, settle, transaction, windows
from service.engine import decide as decide_module
from service.engine.batch import BatchRunner
from service.store import locking, sqlite, statements
from service.store.database import Database
from service.store.writer import Writer

VARIABLE = "SEEDED_BUG"

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Bug:
    """A mistake: its name, its effect, and the function that plants it."""

    name: str
    what: str
    plant: Callable[[Patch], None]


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug into this process for the duration of the block."""
    with Patch.context() as patch:
        BUGS[name].plant(patch)
        yield


def plant(name: str) -> None:
    """Plant a bug into this process and the processes it forks."""
    BUGS[name].plant(Patch())


def _answer_before_commit(patch: Patch) -> None:
    """Commit a batch when the next one begins, so that its clients are answered too early."""
    left_open: list[Any] = []
    serving: list[bool] = []
    right_run = BatchRunner.run_free

    def run(self: BatchRunner, items: Sequence[Any]) -> int:
        serving.append(True)
        try:
            return right_run(self, items)
        finally:
            serving.clear()

    def late(right: Callable[..., Any]) -> Any:
        @contextmanager
        def write(self: Database | Writer, *owner: object) -> Iterator[Connection]:
            while left_open:
                left_open.pop().__exit__(None, None, None)
            begun = right(self, *owner)
            connection = begun.__enter__()
            try:
                yield connection
            except BaseException as error:
                begun.__exit__(type(error), error, error.__traceback__)
                raise
            if serving:
                left_open.append(begun)
            else:
                begun.__exit__(None, None, None)

        return write

    patch.setattr(BatchRunner, "run_free", run)
    patch.setattr(Database, "write", late(Database.write))
    patch.setattr(Writer, "begin", late(Writer.begin))


def _no_row_lock(patch: Patch) -> None:
    patch.setattr(locking, "_STATES", (locking._STATES[0],) * 3)
    patch.setattr(locking, "lock_free_rows", partial(locking.states, lock=False))


def _portfolio_outside_lock(patch: Patch) -> None:
    """Read the portfolio without its lock: its campaigns are locked one by one."""
    patch.setattr(locking, "_PORTFOLIOS", (locking._PORTFOLIOS[0],) * 3)


def _deferred_begin(patch: Patch) -> None:
    def execute(connection: Any, statement: str, *parameters: Any, **options: Any) -> Any:
        deferred = statement.replace("BEGIN IMMEDIATE", "BEGIN DEFERRED")
        return statements.execute(connection, deferred, *parameters, **options)

    patch.setattr(sqlite, "execute", execute)


def _float_money(patch: Patch) -> None:
    def rounded_up(value: float) -> tuple[int, bool]:
        exact = value * 1e6
        return math.ceil(exact), math.ceil(exact) != exact

    patch.setattr(settle, "micros_rounded_up", rounded_up)


def _released_twice(patch: Patch) -> None:
    """Release the hold of a charged decision again at its expiry."""
    right = settle.expire

    def expire(locked: Any, record: Any) -> None:
        if record.status == "charged":
            for resource, amount in enumerate(record.hold):
                locked.ledger.move(resource, held=-min(amount, locked.ledger.accounts[resource].held))
        right(locked, record)

    patch.setattr(settle, "expire", expire)


def _expiry_keeps_hold(patch: Patch) -> None:
    right = settle.expire

    def expire(locked: Any, record: Any) -> None:
        held = locked.ledger
        locked.ledger = deepcopy(held)
        right(locked, record)
        locked.ledger = held

    patch.setattr(settle, "expire", expire)


def _remembered_ids(patch: Patch) -> None:
    """Look for earlier decisions in memory only, which is empty after a start."""
    right_decide, right_run = decide_module.decide, BatchRunner.run_free
    serving: list[Any] = []

    def run(self: BatchRunner, items: Sequence[Any]) -> int:
        serving.append(self)
        try:
            return right_run(self, items)
        finally:
            serving.clear()

    def decide(work: Any, requests: Sequence[Any], existing: dict[str, Any], vectors: Any = None) -> Any:
        if not serving:  # a replay has no engine
            return right_decide(work, requests, existing, vectors)
        known = serving[0].__dict__.setdefault("known_decisions", {})
        return right_decide(work, requests, known.setdefault(work.campaign.id, {}), vectors)

    patch.setattr(BatchRunner, "run_free", run)
    patch.setattr(decide_module, "decide", decide)


def _folded_twice(patch: Patch) -> None:
    """Fold the last row that a state contains once more."""
    right = cache._folded

    def folded(connection: Any, campaign: Any, state: Any, after: int, until: int) -> Any:
        return right(connection, campaign, state, after - 1, until)

    right_between = cache.taught_between

    def taught_between(connection: Connection, parts: Sequence[tuple[int, int, int]]) -> Any:
        return right_between(connection, [(number, after - 1, until) for number, after, until in parts])

    patch.setattr(cache, "_folded", folded)
    patch.setattr(cache, "taught_between", taught_between)


def _accounts_with_lock(patch: Patch) -> None:
    """Read accounts in the locking statement: if it waits for the lock, it returns the rows from before the wait."""
    joined = text(
        "SELECT s.*, a.resource, a.granted, a.held, a.spent, a.overrun FROM campaign_state s"
        " JOIN account a ON a.campaign = s.campaign WHERE s.campaign = ANY(:numbers)"
        " ORDER BY s.campaign, a.resource FOR UPDATE OF s"
    )
    right_states, right_accounts = locking.states, cache.accounts
    read: dict[int, list[Any]] = {}

    def states(connection: Connection, numbers: Sequence[int], *, lock: bool, portfolios: bool = False) -> Any:
        if portfolios or not lock:
            return right_states(connection, numbers, lock=lock, portfolios=portfolios)
        found = connection.execute(joined, {"numbers": sorted(set(numbers))}).mappings().all()
        read[id(connection)] = list(found)
        return [row for row in found if row["resource"] == 0]

    def accounts(connection: Connection, numbers: Sequence[int]) -> Any:
        kept = read.pop(id(connection), None)
        if kept is None:
            return right_accounts(connection, numbers)
        found: dict[int, list[Account]] = {}
        for row in kept:
            account = Account(row["granted"], row["held"], row["spent"], row["overrun"])
            found.setdefault(row["campaign"], []).append(account)
        return found

    patch.setattr(locking, "states", states)
    patch.setattr(locking, "lock_free_rows", partial(states, lock=True))
    patch.setattr(transaction, "accounts", accounts)


def _stale_snapshot(patch: Patch) -> None:
    """Take a snapshot for the newest state, whatever its number is."""
    right = cache._from_snapshot

    def from_snapshot(connection: Connection, row: Any) -> Any:
        found = right(connection, row)
        return found._replace(sequence=row["sequence"]) if found.sequence else found

    patch.setattr(cache, "_from_snapshot", from_snapshot)


def _any_campaign(patch: Patch) -> None:
    patch.setattr(Principal, "check_campaign", lambda self, campaign_id: None)


def _overlooked_patch(patch: Patch) -> None:
    """Keep the configuration of a cached campaign, whatever version its row names."""
    right = cache.current

    def current(connection: Connection, cached: cache.Cache, row: Any) -> Any:
        known = cached.get(row["campaign"])
        return right(connection, cached, row if known is None else {**row, "config_version": known.campaign.version})

    patch.setattr(transaction, "current", current)


def _overlooked_arm(patch: Patch) -> None:
    """Take the configuration that the row names, but the arms' statuses of the cached one."""
    right = cache.current

    def current(connection: Connection, cached: cache.Cache, row: Any) -> Any:
        known, found = cached.get(row["campaign"]), right(connection, cached, row)
        if known is None:
            return found
        before = {arm["id"]: arm.get("status") for arm in known.campaign.config["arms"]}
        arms = [arm | {"status": before.get(arm["id"])} for arm in found.campaign.config["arms"]]
        campaign = replace(found.campaign, config=found.campaign.config | {"arms": arms})
        return found._replace(campaign=campaign)

    patch.setattr(transaction, "current", current)


def _hold_on_wrong_day(patch: Patch) -> None:
    """Choose a decision's periods by the time at which its transaction began, before it waited for the lock."""
    right = windows.roll_over

    def roll_over(connection: Connection, locked: Any) -> None:
        ended = {limit.key: limit for limit in locked.ledger.limits if not limit.covers(locked.now)}
        begun = {limit.key for limit in locked.ledger.limits if limit.covers(locked.now)}
        right(connection, locked)
        ledger = locked.ledger
        later = [limit for limit in ledger.limits if limit.key in ended.keys() & begun]
        if later:
            before = [ended[limit.key] for limit in later]
            ledger.limits = [*(limit for limit in ledger.limits if limit not in later), *before]
            ledger.earlier = [*(limit for limit in ledger.earlier if limit not in before), *later]

    patch.setattr(windows, "roll_over", roll_over)


def _cost_on_report_day(patch: Patch) -> None:
    """Book costs in the periods in which they are reported; the hold is released where it was made."""
    right = Ledger.book

    def book(self: Ledger, *, decided_at: int, held: Any = None, spent: Any = None, reported: bool = False) -> None:
        right(self, decided_at=decided_at, held=held, reported=reported)
        begun = max((limit.starts_at for limit in self.limits), default=decided_at)
        right(self, decided_at=max(begun, decided_at), spent=spent, reported=True)

    patch.setattr(Ledger, "book", book)


def _rolled_once(patch: Patch) -> None:
    """Begin the periods of a campaign once in the life of a process."""
    right_roll_over, right_run = windows.roll_over, BatchRunner.run_free
    serving: list[Any] = []

    def run(self: BatchRunner, items: Sequence[Any]) -> int:
        serving.append(self)
        try:
            return right_run(self, items)
        finally:
            serving.clear()

    def roll_over(connection: Connection, locked: Any) -> None:
        rolled = serving[0].__dict__.setdefault("rolled_over", set())
        if (name := locked.campaign.id) not in rolled:
            rolled.add(name)
            right_roll_over(connection, locked)

    patch.setattr(BatchRunner, "run_free", run)
    patch.setattr(windows, "roll_over", roll_over)


def _floor_forgotten(patch: Patch) -> None:
    """Decide as if null were allowed; what is refused and shown stays."""
    patch.setattr(Campaign, "floor", property(lambda self: None))


def _portfolio_keeps_hold(patch: Patch) -> None:
    """Release holds in the campaign's accounts and not in the portfolio's."""
    right = Ledger.book

    def book(self: Ledger, *, decided_at: int, held: Any = None, spent: Any = None, reported: bool = False) -> None:
        share, self.share = self.share, None
        right(self, decided_at=decided_at, held=held, spent=spent, reported=reported)
        self.share = share
        if share is not None and spent is not None:
            share.ledger.book(decided_at=decided_at, spent=share.of(spent), reported=True)

    patch.setattr(Ledger, "book", book)


def _remembering(patch: Patch, outdated: Callable[[Connection, Any, Any], dict[str, Any]]) -> None:
    """Replace what was read about a cached campaign by `outdated(connection, cached, read)`."""
    right = transaction.Transactions._read

    def read(self: transaction.Transactions, connection: Connection, *rest: Any, **options: Any) -> Iterator[Any]:
        for found in right(self, connection, *rest, **options):
            known = self.cache.get(found.campaign.number)
            if known is not None and known.remainder is not None:
                old = outdated(connection, known, found)
                yield found._replace(remainder=found.remainder._replace(**old))
            else:
                yield found

    patch.setattr(transaction.Transactions, "_read", read)


def _overlooked_status(patch: Patch) -> None:
    _remembering(patch, lambda connection, known, found: {"status": known.remainder.status})


def _overlooked_adjustment(patch: Patch) -> None:
    """Leave the adjustments that other processes have made out of the accounts."""
    grants = text(
        "SELECT resource, amount FROM \"grant\" WHERE campaign = :number AND kind = 'adjust' AND sequence > :after"
    )

    def outdated(connection: Connection, known: Any, found: Any) -> dict[str, Any]:
        accounts = list(found.remainder.accounts)
        rows = connection.execute(grants, {"number": known.campaign.number, "after": known.sequence})
        for resource, amount in rows:
            account = accounts[resource]
            accounts[resource] = account._replace(spent=account.spent - amount)
        return {"accounts": accounts}

    _remembering(patch, outdated)


BUGS = {
    bug.name: bug
    for bug in (
        Bug("answer-before-commit", "an answer is sent before its transaction is committed", _answer_before_commit),
        Bug("no-row-lock", "a campaign's row is read without FOR UPDATE", _no_row_lock),
        Bug("deferred-begin", "SQLite's transactions begin DEFERRED", _deferred_begin),
        Bug("float-money", "reported costs are turned into millionths by a float's product", _float_money),
        Bug("hold-released-twice", "the expiry of a charged decision releases its hold again", _released_twice),
        Bug("expiry-keeps-hold", "an expiry is logged and moves no account", _expiry_keeps_hold),
        Bug("ids-in-memory", "a repeated decision_id is known only to the process that made it", _remembered_ids),
        Bug("outcome-folded-twice", "a process that catches up learns its last known outcome again", _folded_twice),
        Bug("accounts-with-lock", "accounts are read in the statement that waits for the lock", _accounts_with_lock),
        Bug("stale-snapshot", "a snapshot counts as the newest state, whatever rows follow it", _stale_snapshot),
        Bug("patch-overlooked", "a process keeps the configuration it has cached after a PATCH", _overlooked_patch),
        Bug("paused-arm-cached", "a process plays an arm that was active when it cached the campaign", _overlooked_arm),
        Bug("pause-overlooked", "a process keeps the status it has cached after a pause", _overlooked_status),
        Bug("adjust-overlooked", "a process leaves out the adjustments of others", _overlooked_adjustment),
        Bug("portfolio-outside-lock", "a portfolio's account is read without its lock", _portfolio_outside_lock),
        Bug("hold-on-wrong-day", "a decision that waits over midnight holds in the day before", _hold_on_wrong_day),
        Bug("cost-on-report-day", "costs are booked in the day on which they are reported", _cost_on_report_day),
        Bug("window-not-rolled", "a process begins the periods of a campaign only once", _rolled_once),
        Bug("portfolio-keeps-hold", "a portfolio keeps the holds that its campaigns release", _portfolio_keeps_hold),
        Bug("floor-forgotten", "a campaign plays null though its null arm is the last resort", _floor_forgotten),
        Bug("key-without-scope", "a key limited to some campaigns may use all campaigns", _any_campaign),
    )
}
