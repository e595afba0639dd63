"""A portfolio in a transaction, and the part that one of its campaigns has in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cbwk_core import Ticket
from cbwk_core.shared_prices import SharedState, called, settled
from service.domain.budget_holder import BudgetHolder
from service.domain.campaign import Campaign
from service.domain.decision_rows import predicted
from service.domain.ledger import Ledger, Share
from service.domain.portfolio import Call, Portfolio, moved
from service.domain.status import Effect, Movement
from service.domain.traffic import Counts, encoded, plus
from service.domain.windows import paces
from service.times import MICROS_PER_HOUR


class Numbered:
    """A campaign or a portfolio: the log of both is numbered alike."""

    campaign: BudgetHolder
    ledger: Ledger
    sequence: int
    now: int
    rows: dict[str, list[dict[str, Any]]]

    def append(self, table: str, **columns: Any) -> int:
        """Give a row the next number of the log and keep it for writing."""
        self.sequence += 1
        row = {"campaign": self.campaign.number, "sequence": self.sequence, **columns}
        self.rows.setdefault(table, []).append(row)
        return self.sequence


class LockedPortfolio(Numbered):
    """A portfolio locked by a transaction; its campaigns move its state and its ledger."""

    def __init__(
        self,
        portfolio: Portfolio,
        state: SharedState,
        ledger: Ledger,
        row: Mapping[str, Any],
        traffic: Counts,
        now: int,
        created_at: int,
    ) -> None:
        # Under the name that the configuration of a locked campaign has: windows serve both.
        self.campaign, self.state, self.ledger, self.traffic = portfolio, state, ledger, traffic
        self.sequence, self.call = row["sequence"], row["call"]
        self.expected, self.expected_at = row["expected"], row["expected_at"]  # as in `portfolio_state`
        self.now, self.created_at = max(now, row["last_event_at"]), created_at
        self.rows: dict[str, list[dict[str, Any]]] = {}  # new rows of grant, change and window_account

    campaign: Portfolio

    def row(self) -> dict[str, Any]:
        """The row of `portfolio_state`."""
        return {
            "config_version": self.campaign.version,
            "sequence": self.sequence,
            "call": self.call,
            "numbers": self.state.numbers().astype("<f8").tobytes(),
            "expected": self.expected,
            "expected_at": self.expected_at,
            "last_event_at": self.now,
            "traffic": encoded(self.traffic),
        }

    def begun_call(self) -> Call:
        """Returns what the portfolio contributes to a call of the policy now; the state moves with its decisions."""
        ledger, now = self.ledger, self.now
        rest = max(1.0, self.expected - self.state.rounds)
        granted = [max(1, account.granted) for account in ledger.accounts]
        state = called(self.state, granted, rest)
        left = np.array([account.granted - account.spent for account in ledger.accounts]) - state.predicted
        pace = np.maximum(left, 0.0) / rest
        if ledger.limits:
            held = [account.held for account in ledger.accounts]
            shares = [
                min(1.0, guess / hold) if hold else 0.0 for guess, hold in zip(state.predicted, held, strict=True)
            ]
            since = self.created_at - MICROS_PER_HOUR
            windowed = paces(ledger.limits, shares, self.traffic, since, now, rest)
            pace = np.minimum(pace, windowed)
        free = np.array(ledger.free(), dtype=np.float64)
        return Call(self.call + 1, state, pace, free, self.state.surprise, bool(ledger.limits))


class Membership:
    """The part of a locked campaign in its portfolio: what every call of its policy gets, and what it moves there.

    A replay has no portfolio but the stored calls: `of_call`.
    """

    def __init__(
        self, places: Sequence[int | None], portfolio: LockedPortfolio | None, call: Call | None = None
    ) -> None:
        self.places, self.portfolio, self._call = places, portfolio, call

    @classmethod
    def of_call(cls, places: Sequence[int | None], call: Call) -> Membership:
        """The membership of a campaign whose only call is this one."""
        return cls(places, None, call)

    def share(self) -> Share:
        """What the campaign's ledger also books in."""
        if self.portfolio is not None:
            return Share(self.portfolio.ledger, self.places)
        assert self._call is not None, "a replay has a call"
        return self._call.share(self.places)

    def prices(self, campaign: Campaign) -> list[float]:
        """What a call of the policy adds to its prices; the call begins."""
        if self.portfolio is not None:
            self._call = self.portfolio.begun_call()
        assert self._call is not None, "a replay has a call"
        return self._call.prices(campaign, self.places)

    def decided(self, campaign: Campaign, ticket: Ticket, first: int, now: int) -> dict[str, Any] | None:
        """Moves the portfolio by the decisions of the call; returns the row of `portfolio_call`, None in a replay.

        first: the sequence number of the first decision.
        """
        portfolio, call = self.portfolio, self._call
        if portfolio is None:
            return None
        assert call is not None, "the decisions are those of a call"
        portfolio.state = moved(call, campaign, self.places, ticket)
        portfolio.call, portfolio.now = call.call, now
        portfolio.traffic = plus(portfolio.traffic, len(ticket.arm), now)
        numbers = call._replace(decisions=len(ticket.arm)).stored()
        return {"campaign": campaign.number, "sequence": first, "call": call.call, "numbers": numbers}

    def settled(self, campaign: Campaign, row: Any, effect: Effect) -> None:
        """Replaces the predicted costs of a decision, a row of its table, by what it has cost."""
        assert self.portfolio is not None, "a replay settles nothing"
        guess, paid = (np.zeros(len(self.portfolio.ledger.accounts)) for _ in range(2))
        costs = predicted(row["numbers"])[1:]
        for at, place in enumerate(self.places):
            if place is not None:
                if effect.transition.movement is not Movement.CORRECT:
                    guess[place] = costs[at] * campaign.units[at]
                paid[place] = 0 if effect.spent is None else effect.spent[at]
        self.portfolio.state = settled(self.portfolio.state, guess, paid)

    def expects_again(self) -> None:
        """Has the expected decisions counted again before the next call: the campaign has changed."""
        if self.portfolio is not None:
            self.portfolio.expected_at = 0
