"""The rules of money, in whole millionths. CHECK constraints of the database repeat them.

free = max(0, granted - spent - held). A hold needs that much free. Only reported costs and adjustments may raise the
overrun, and every movement lowers it to max(0, spent + held - granted).
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

        Raises Conflict if the account would exceed TOTAL_MICROS_MAX.

        >>> Account(granted=100, held=30).moved(held=-30, spent=120, reported=True)
        Account(granted=100, held=0, spent=120, overrun=20)
        """
        granted, held, spent = self.granted + granted, self.held + held, self.spent + spent
        short = max(0, spent + held - granted)
        if reported and spent + held > TOTAL_MICROS_MAX:
            raise Conflict("the account of the resource cannot take this amount any more", kind="account-full")
        assert min(held, spent, granted) >= 0, "an account has no negative part"
        assert reported or short <= self.overrun, "only a reported cost may raise the overrun"
        return Account(granted, held, spent, short)


@dataclass(slots=True)
class Ledger:
    """The accounts of one campaign, in the order of its resources. A movement replaces the list: it may be shared."""

    accounts: Sequence[Account]

    def free(self) -> list[int]:
        """Returns the amount of each resource that can still be held."""
        # `Account.free` inline: this runs for every decision.
        return [max(0, granted - spent - held) for granted, held, spent, _ in self.accounts]

    def hold(self, amounts: Amounts) -> None:
        """Holds the amounts of a decision, which must be free."""
        # `Account.moved` inline: this runs for every decision. An account with free money has no overrun.
        accounts = []
        for amount, (granted, held, spent, overrun) in zip(amounts, self.accounts, strict=True):
            assert not amount or 0 < amount <= granted - spent - held, "a hold needs that much free"
            accounts.append(Account(granted, held + amount, spent, overrun))
        self.accounts = accounts

    def move(
        self, resource: int, *, held: int = 0, spent: int = 0, granted: int = 0, reported: bool = False
    ) -> Account:
        """Moves one account and returns it: see `Account.moved`."""
        moved = self.accounts[resource].moved(held=held, spent=spent, granted=granted, reported=reported)
        self.accounts = [*self.accounts[:resource], moved, *self.accounts[resource + 1 :]]
        return moved

    def book(self, *, held: Amounts | None = None, spent: Amounts | None = None, reported: bool = False) -> None:
        """Moves every account by its changes of `held` and `spent`: see `Account.moved`."""
        nothing = [0] * len(self.accounts)
        self.accounts = [
            account.moved(held=of_hold, spent=cost, reported=reported)
            for account, of_hold, cost in zip(self.accounts, held or nothing, spent or nothing, strict=True)
        ]
