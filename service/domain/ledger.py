"""The rules of money, in whole millionths; the database says the same rules again as CHECKs.

free = max(0, granted - spent - held). A hold needs as much free; only reported costs and adjustments may raise the
overrun, and every movement lowers it to max(0, spent + held - granted).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Amounts = Sequence[int]
_new = tuple.__new__


class Account(NamedTuple):
    """One resource of one campaign. It does not change: who has it may keep it, and a movement makes another."""

    granted: int
    held: int = 0
    spent: int = 0
    overrun: int = 0

    @property
    def free(self) -> int:
        """What may still be held.

        >>> Account(granted=100, held=30, spent=80, overrun=10).free
        0
        """
        return max(0, self.granted - self.spent - self.held)

    def moved(self, *, held: int = 0, spent: int = 0, granted: int = 0, reported: bool = False) -> Account:
        """After one movement; `reported` is what may raise the overrun: a cost someone reported, an adjustment.

        >>> Account(granted=100, held=30).moved(held=-30, spent=120, reported=True)
        Account(granted=100, held=0, spent=120, overrun=20)
        """
        granted, held, spent = self.granted + granted, self.held + held, self.spent + spent
        short = max(0, spent + held - granted)
        assert min(held, spent, granted) >= 0, "an account has no negative part"
        assert reported or short <= self.overrun, "only a reported cost may raise the overrun"
        return Account(granted, held, spent, short)


class Ledger:
    """The accounts of one campaign, in the order of its resources."""

    __slots__ = ("accounts",)

    def __init__(self, accounts: Iterable[Account]) -> None:
        self.accounts = [*accounts]

    def free(self) -> list[int]:
        """What may still be held of each resource."""
        # `Account.free` in place: this is asked for every decision.
        return [max(0, granted - spent - held) for granted, held, spent, _ in self.accounts]

    def hold(self, amounts: Amounts) -> None:
        """A decision was made: its amounts must be free."""
        accounts = self.accounts
        for at, amount in enumerate(amounts):
            if amount:
                # `moved` in place and without a call: this is asked for every decision. What is free has no overrun.
                granted, held, spent, overrun = accounts[at]
                assert 0 < amount <= granted - spent - held, "a hold needs as much free"
                accounts[at] = _new(Account, (granted, held + amount, spent, overrun))

    def move(
        self, resource: int, *, held: int = 0, spent: int = 0, granted: int = 0, reported: bool = False
    ) -> Account:
        """One movement on one account, which it returns: see `Account.moved`."""
        moved = self.accounts[resource].moved(held=held, spent=spent, granted=granted, reported=reported)
        self.accounts[resource] = moved
        return moved

    def settle(self, held: Amounts, costs: Amounts) -> None:
        """Costs were reported: the hold ends, they are booked in full."""
        self.accounts = [
            account.moved(held=-amount, spent=cost, reported=True)
            for account, amount, cost in zip(self.accounts, held, costs, strict=True)
        ]

    def release(self, held: Amounts) -> None:
        """The decision was void, or nothing is charged for it."""
        self.accounts = [account.moved(held=-amount) for account, amount in zip(self.accounts, held, strict=True)]

    def charge(self, held: Amounts) -> None:
        """No costs came: the hold itself is booked."""
        self.accounts = [
            account.moved(held=-amount, spent=amount) for account, amount in zip(self.accounts, held, strict=True)
        ]

    def correct(self, differences: Amounts) -> None:
        """What was booked turned out otherwise."""
        self.accounts = [
            account.moved(spent=difference, reported=True)
            for account, difference in zip(self.accounts, differences, strict=True)
        ]
