"""Portfolios: budgets that several campaigns share.

A portfolio has accounts, windows and prices of its own. A campaign holds in its own accounts and in those of the
resources that its portfolio names alike. What the portfolio contributed to a call of the policy is stored with the
call, so that the log of a campaign can be replayed without those of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import le
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbwk_core import Ticket
from cbwk_core.shared_prices import SharedState, decided, read_state
from service.domain.budget_holder import BudgetHolder
from service.domain.campaign import Campaign
from service.domain.ledger import Account, Ledger, Share
from service.problems import Misfit

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Portfolio(BudgetHolder):
    """One version of a portfolio's configuration."""

    def places(self, resources: Collection[str]) -> list[int | None]:
        """The place in the portfolio of each resource of a campaign; None for one that the portfolio does not have."""
        return [self.resources.index(name) if name in self.resources else None for name in resources]

    def check_campaign(self, campaign: Campaign) -> None:
        """Raises Misfit unless a campaign shares a resource and some arm of it could be paid by the portfolio."""
        places = self.places(campaign.resources)
        if not any(place is not None for place in places):
            raise Misfit("portfolio", "must have a resource that the campaign has too, by its id")
        shared = self.payable
        most = [
            own if place is None else min(own, shared[place])
            for own, place in zip(campaign.payable, places, strict=True)
        ]
        offered = campaign.holds_that_may_return
        if offered and not any(all(map(le, hold, most)) for hold in offered):
            raise Misfit("portfolio", "must have a budget and windows that can pay an arm: every arm may cost more")


class Call(NamedTuple):
    """What a portfolio contributed to one call of the policy: its state then, and what follows from its accounts."""

    call: int  # among those of the portfolio
    state: SharedState
    pace: Numbers  # (d,), what a decision of any of its campaigns may cost, in millionths
    free: Numbers  # (d,), what could be held, in millionths
    surprise: Numbers  # (d,), what moved the prices since the call before
    paced: bool  # whether windows set the pace
    decisions: int = 0  # of the call

    def stored(self) -> bytes:
        """The numbers of the table `portfolio_call`."""
        first = np.array([float(self.paced), float(self.decisions)])
        numbers = np.concatenate([first, self.pace, self.free, self.surprise, self.state.numbers()])
        return numbers.astype("<f8").tobytes()

    @classmethod
    def read(cls, call: int, stored: bytes) -> Call:
        """The call of a stored row."""
        numbers = np.frombuffer(stored, dtype="<f8")
        d = (len(numbers) - 4) // 8
        pace, free, surprise, rest = np.split(numbers[2:], [d, 2 * d, 3 * d])
        return cls(call, read_state(rest), pace, free, surprise, bool(numbers[0]), int(numbers[1]))

    def share(self, places: Sequence[int | None]) -> Share:
        """The share of a campaign in a ledger that has what was free at the call."""
        return Share(Ledger([Account(int(free)) for free in self.free.tolist()]), places)

    def prices(self, campaign: Campaign, places: Sequence[int | None]) -> list[float]:
        """What the portfolio adds to the prices of a campaign: scaled rewards per millionth."""
        shared, span = self.state.prices.tolist(), _reward_span(campaign)
        return [0.0 if place is None else shared[place] / span for place in places]


def _reward_span(campaign: Campaign) -> float:
    """The range of a campaign's rewards as callers report them."""
    low, high = campaign.config["reward"]["min"], campaign.config["reward"]["max"]
    return float(high - low)


def _predicted_costs(campaign: Campaign, places: Sequence[int | None], ticket: Ticket, resources: int) -> Numbers:
    """The predicted costs of n decisions in the portfolio's resources, (n, d), in millionths."""
    result = np.zeros((len(ticket.arm), resources))
    for at, place in enumerate(places):
        if place is not None:
            result[:, place] = ticket.costs[:, at] * campaign.units[at]
    return result


def expected_rounds_left(campaign: Campaign, status: str, rounds: int, now: int) -> int:
    """The decisions to expect of a campaign: those up to its horizon, none if it is paused or has ended."""
    if campaign.status_at(now, status, rounds) not in ("active", "scheduled"):
        return 0
    return max(0, campaign.horizon - rounds)


def moved(call: Call, campaign: Campaign, places: Sequence[int | None], ticket: Ticket) -> SharedState:
    """Returns the state of a portfolio after the decisions of a call."""
    costs = _predicted_costs(campaign, places, ticket, len(call.pace))
    return decided(call.state, costs, ticket.value * _reward_span(campaign), call.pace, paced=call.paced)
