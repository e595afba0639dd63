"""The rules of money, in whole millionths. CHECK constraints of the database repeat them.

free = max(0, granted - spent - held). A hold needs that much free. Only reported costs and adjustments may raise the
overrun, and every movement lowers it to max(0, spent + held - granted).

A limit is a further account that a hold of one resource also takes from, such as that of a window. A campaign of a
portfolio also takes from the ledger of that. What can be held is then the least of what is free in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.problems import Conflict

Amounts = Sequence[int]
# Of an account, spent and held together: the database has 64 bits with a sign, and sums of a log need some of them.
TOTAL_MICROS_MAX = 2**62


class Account(NamedTuple):
    """One resource of one campaign; immutable, a movement returns another account."""

    granted: int
    held: int = 0
    spent: int = 0
    overrun: int = 0

    @property
    def free(self) -> int:
        """The amount that can still be held.

        >>> Account(granted=100, held=30, spent=80, overrun=10).free
        0
        """
        return max(0, self.granted - self.spent - self.held)

    def moved(self, *, held: int = 0, spent: int = 0, granted: int = 0, reported: bool = False) -> Account:
        """Returns the account after one movement. Only a `reported` one (costs, an adjustment) may raise the overrun.

        Raises Conflict if the account would exceed TOTAL_MICROS_MAX, or if a report lowers what an adjustment has
        lowered before, so that less than nothing would be spent.

        >>> Account(granted=100, held=30).moved(held=-30, spent=120, reported=True)
        Account(granted=100, held=0, spent=120, overrun=20)
        """
        granted, held, spent = self.granted + granted, self.held + held, self.spent + spent
        short = max(0, spent + held - granted)
        if reported and spent + held > TOTAL_MICROS_MAX:
            raise Conflict("the account of the resource cannot take this amount any more", kind="account-full")
        if reported and spent < 0:
            raise Conflict("an adjustment has taken away what these costs would lower", kind="negative-spent")
        assert min(held, spent, granted) >= 0, "an account has no negative part"
        assert reported or short <= self.overrun, "only a reported cost may raise the overrun"
        return Account(granted, held, spent, short)


class Limit(NamedTuple):
    """An account that decisions made from `starts_at` until before `ends_at` also take from, of one resource."""

    resource: int
    period: str
    starts_at: int
    ends_at: int
    account: Account

    @property
    def key(self) -> tuple[int, str]:
        """What distinguishes the limits of one time."""
        return self.resource, self.period

    def covers(self, at: int) -> bool:
        """Whether a decision made at that time takes from it."""
        return self.starts_at <= at < self.ends_at

    def moved(self, *, held: int = 0, spent: int = 0, granted: int = 0, reported: bool = False) -> Limit:
        """Returns the limit after one movement: see `Account.moved`."""
        account = self.account.moved(held=held, spent=spent, granted=granted, reported=reported)
        return self._replace(account=account)


@dataclass(slots=True)
class Ledger:
    """The accounts of one campaign, in the order of its resources. A movement replaces the lists: they may be shared.

    `limits` are those of the present, `earlier` those of past periods that this transaction books into. `share` is what
    all movements but grants are booked in, too.
    """

    accounts: Sequence[Account]
    limits: Sequence[Limit] = ()
    earlier: Sequence[Limit] = ()
    share: Share | None = None

    @property
    def is_limited(self) -> bool:
        """Whether a hold takes from more than the accounts."""
        return self.share is not None or bool(self.limits)

    def free(self) -> list[int]:
        """Returns the amount of each resource that can still be held."""
        free = self.free_without_limits()
        for limit in self.limits:
            free[limit.resource] = min(free[limit.resource], limit.account.free)
        return free if self.share is None else self.share.least(free)

    def free_without_limits(self) -> list[int]:
        """Returns what `free` would be without limits and without the share."""
        # `Account.free` inline: this runs for every decision.
        return [max(0, granted - spent - held) for granted, held, spent, _ in self.accounts]

    def hold(self, amounts: Amounts) -> None:
        """Holds the amounts of a decision, which must be free."""
        # `Account.moved` inline: this runs for every decision. An account with free money has no overrun.
        accounts = []
        for amount, (granted, held, spent, overrun) in zip(amounts, self.accounts, strict=True):
            assert not amount or 0 < amount <= granted - spent - held, "a hold needs that much free"
            accounts.append(Account(granted, held + amount, spent, overrun))
        if self.limits:
            self.limits = [limit.moved(held=amounts[limit.resource]) for limit in self.limits]
        if self.share is not None:
            self.share.ledger.hold(self.share.of(amounts))
        self.accounts = accounts

    def move(
        self, resource: int, *, held: int = 0, spent: int = 0, granted: int = 0, reported: bool = False
    ) -> Account:
        """Moves one account and returns it: see `Account.moved`."""
        moved = self.accounts[resource].moved(held=held, spent=spent, granted=granted, reported=reported)
        place = None if self.share is None else self.share.places[resource]
        if self.share is not None and place is not None and (held or spent):
            self.share.ledger.move(place, held=held, spent=spent, reported=reported)
        self.accounts = [*self.accounts[:resource], moved, *self.accounts[resource + 1 :]]
        return moved

    def book(
        self, *, decided_at: int, held: Amounts | None = None, spent: Amounts | None = None, reported: bool = False
    ) -> None:
        """Moves every account by its changes of `held` and `spent`, and the limits of the time of the decision.

        See `Account.moved`. If it raises, nothing has moved.
        """
        nothing = [0] * len(self.accounts)
        held, spent = held or nothing, spent or nothing
        accounts = [
            account.moved(held=of_hold, spent=cost, reported=reported)
            for account, of_hold, cost in zip(self.accounts, held, spent, strict=True)
        ]
        if self.share is not None:
            of = self.share.of
            self.share.ledger.book(decided_at=decided_at, held=of(held), spent=of(spent), reported=reported)
        if self.limits or self.earlier:
            self.limits, self.earlier = (
                [
                    limit.moved(held=held[limit.resource], spent=spent[limit.resource], reported=reported)
                    if limit.covers(decided_at)
                    else limit
                    for limit in limits
                ]
                for limits in (self.limits, self.earlier)
            )
        self.accounts = accounts


class Share(NamedTuple):
    """The ledger of a portfolio, and the place in it of each resource of one of its campaigns; None: not shared.

    >>> share = Share(Ledger([Account(granted=50), Account(granted=70)]), (1, None))
    >>> share.of([30, 5]), share.least([80, 80])
    ([0, 30], [70, 80])
    """

    ledger: Ledger
    places: Sequence[int | None]

    def of(self, amounts: Amounts) -> list[int]:
        """Returns amounts of the campaign in the order of the portfolio's resources."""
        result = [0] * len(self.ledger.accounts)
        for place, amount in zip(self.places, amounts, strict=True):
            if place is not None:
                result[place] = amount
        return result

    def least(self, free: Sequence[int]) -> list[int]:
        """Returns the smaller one of what is free in the campaign and in the portfolio."""
        shared = self.ledger.free()
        pairs = zip(free, self.places, strict=True)
        return [amount if place is None else min(amount, shared[place]) for amount, place in pairs]
