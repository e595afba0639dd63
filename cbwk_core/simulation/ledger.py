"""The ledger in front of the policies of a run: accounts that lanes book in, and what is free before each round.

The budget of each lane is an account. `Limits` are more of them: the periods of a window (`calendar.py`), one account
for several lanes, or others. Each has a price in the dual bound of `dual_regret.py`, so that T·OPT is that of the
program with all accounts as constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array, Integers


class Limits(NamedTuple):
    """Accounts of one resource. In round t lane l books in the account number[t, l].

    >>> shared = Limits(resource=0, amount=np.array([30.0]), number=np.zeros((100, 2), dtype=np.int64))
    >>> ledger = Ledger(np.array([20.0]), 2, [shared])
    >>> ledger.offer(0)["free"]  # two lanes may not hold more than the account has
    array([[15.],
           [15.]])
    """

    resource: int
    amount: Array  # (accounts,)
    number: Integers  # (horizon, lanes)


class Prices(NamedTuple):
    """Prices per unit of cost of a run with limits."""

    budget: Array  # (lanes, d)
    limits: Sequence[Array]  # of the accounts of each of the limits, (accounts,)

    def of_rounds(self, limits: Sequence[Limits]) -> Array:
        """Return what a unit of cost is worth in each round, in all its accounts: (horizon, lanes, d)."""
        horizon = len(limits[0].number)
        found = np.repeat(self.budget[None], horizon, axis=0)
        for each, prices in zip(limits, self.limits, strict=True):
            found[:, :, each.resource] += prices[each.number]
        return found


class Ledger:
    """The accounts of a run, without open decisions: outcomes are known in the round of their decision."""

    def __init__(self, budget: Array, lanes: int, limits: Sequence[Limits] = ()) -> None:
        self.limits = limits
        self.left = np.repeat(budget[None], lanes, axis=0)  # (lanes, d)
        self.left_of_limits = [each.amount.copy() for each in limits]

    def offer(self, number: int) -> dict[str, Array]:
        """Return the arguments of `decide` for a round: what each lane is free to hold. Lanes share an account evenly.

        A subclass adds others, as the pace of windows.
        """
        free = self.left.copy()
        for each, left in zip(self.limits, self.left_of_limits, strict=True):
            accounts = each.number[number]
            share = left[accounts] / np.bincount(accounts)[accounts]
            np.minimum(free[:, each.resource], share, out=free[:, each.resource])
        return {"free": free}

    def book(self, number: int, costs: Array) -> None:
        """Book the costs of a round, (lanes, d)."""
        self.left -= costs
        for each, left in zip(self.limits, self.left_of_limits, strict=True):
            np.subtract.at(left, each.number[number], costs[:, each.resource])

    @property
    def overrun(self) -> float:
        """The most that an account has spent above its amount, 0 if none has."""
        return max(0.0, *(-float(left.min()) for left in (self.left, *self.left_of_limits)))

    def total_worth(self, prices: Prices, budget: Array) -> Array:
        """Return Σ λ·amount over the accounts of each lane, (lanes,): the first part of the dual bound."""
        return self._worth(prices, np.broadcast_to(budget, self.left.shape), [each.amount for each in self.limits])

    def worth_of_rest(self, prices: Prices) -> Array:
        """Return Σ λ·left over the accounts of each lane, (lanes,): the second part of the regret."""
        return self._worth(prices, self.left, self.left_of_limits)

    def _worth(self, prices: Prices, of_budget: Array, of_limits: Sequence[Array]) -> Array:
        found = np.vecdot(prices.budget, of_budget)
        for each, price, amount in zip(self.limits, prices.limits, of_limits, strict=True):
            lanes = np.broadcast_to(np.arange(each.number.shape[1]), each.number.shape)
            account, lane = np.unique(np.stack([each.number.ravel(), lanes.ravel()]), axis=1)
            owners = np.bincount(account, minlength=len(amount))
            np.add.at(found, lane, (price * amount)[account] / owners[account])
        return np.asarray(found)
