"""The rules of money, in whole millionths; the database says the same rules again as CHECKs.

free = max(0, granted - spent - held). A hold needs as much free; only reported costs and adjustments may raise the
overrun, and every movement lowers it to max(0, spent + held - granted).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Amounts = Sequence[int]


@dataclass(slots=True)
class Account:
    """One resource of one campaign."""

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

    def move(self, *, held: int = 0, spent: int = 0, granted: int = 0, reported: bool = False) -> None:
        """Apply one movement; `reported` is what may raise the overrun: a cost someone reported, an adjustment."""
        self.held += held
        self.spent += spent
        self.granted += granted
        short = max(0, self.spent + self.held - self.granted)
        assert min(self.held, self.spent, self.granted) >= 0, "an account has no negative part"
        assert reported or short <= self.overrun, "only a reported cost may raise the overrun"
        self.overrun = short


@dataclass(slots=True)
class Ledger:
    """The accounts of one campaign, in the order of its resources."""

    accounts: list[Account]

    def free(self) -> list[int]:
        """What may still be held of each resource."""
        # `Account.free` in place: this is asked for every decision.
        return [max(0, account.granted - account.spent - account.held) for account in self.accounts]

    def hold(self, amounts: Amounts) -> None:
        """A decision was made: its amounts must be free."""
        for account, amount in zip(self.accounts, amounts, strict=True):
            if amount:
                # `free` in place: this is asked for every decision.
                assert 0 < amount <= account.granted - account.spent - account.held, "a hold needs as much free"
                account.held += amount  # what is free has no overrun

    def settle(self, held: Amounts, costs: Amounts) -> None:
        """Costs were reported: the hold ends, they are booked in full."""
        for account, amount, cost in zip(self.accounts, held, costs, strict=True):
            account.move(held=-amount, spent=cost, reported=True)

    def release(self, held: Amounts) -> None:
        """The decision was void, or nothing is charged for it."""
        for account, amount in zip(self.accounts, held, strict=True):
            account.move(held=-amount)

    def charge(self, held: Amounts) -> None:
        """No costs came: the hold itself is booked."""
        for account, amount in zip(self.accounts, held, strict=True):
            account.move(held=-amount, spent=amount)

    def correct(self, differences: Amounts) -> None:
        """What was booked turned out otherwise."""
        for account, difference in zip(self.accounts, differences, strict=True):
            account.move(spent=difference, reported=True)
