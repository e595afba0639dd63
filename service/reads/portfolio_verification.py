"""Verifies a portfolio: its accounts from the logs of its campaigns, its prices from the order of their calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from cbwk_core import Ticket
from cbwk_core.shared_prices import SharedState, at_even, read_state
from service.domain.campaign import Campaign
from service.domain.portfolio import Call, moved
from service.domain.traffic import decoded
from service.reads.portfolios import StoredPortfolio, members, stored_portfolio
from service.reads.shared import StoredCampaign, fetch
from service.reads.verification import (
    Within,
    account_checks,
    accounts_of,
    booked,
    check,
    granted,
    pruned_part,
    window_checks,
)
from service.store import tables
from service.store.log_amounts import sums_by_quarter
from service.store.opening_balance import decisions_by_hour, opening_of

CALLS_AT_ONCE = 1_000
# Another machine may round the last bits differently.
TOLERANCE = 1e-9


def verify_portfolio(connection: Connection, portfolio_id: str) -> dict[str, Any]:
    """Every check with the expected and the found value. The connection must see one snapshot."""
    stored = stored_portfolio(connection, portfolio_id)
    shared, campaigns = stored.portfolio, members(connection, stored.portfolio.number)
    checks = [*_account_checks(connection, stored, campaigns)]
    checks += window_checks(connection, shared.number, shared.resources, lambda: _within(connection, stored, campaigns))
    checks += _log_checks(connection, stored, campaigns)
    checks += _call_checks(connection, stored, campaigns)
    return {"portfolio_id": shared.id, "ok": all(each["ok"] for each in checks), "checks": checks}


def _account_checks(
    connection: Connection, stored: StoredPortfolio, campaigns: Sequence[StoredCampaign]
) -> list[dict[str, Any]]:
    shared, rows = stored.portfolio, accounts_of(connection, stored.portfolio.number)
    sums = [[0, 0] for _ in shared.resources]
    for each in campaigns:
        pruned = pruned_part(connection, each)
        for index, place in enumerate(shared.places(each.campaign.resources)):
            if place is not None:
                held, spent = booked(connection, each, pruned, index)
                sums[place] = [sums[place][0] + held, sums[place][1] + spent]
    checks = [check("accounts", len(shared.resources), len(rows))]
    for row in rows:
        index = row["resource"]
        limit = granted(connection, shared.number, index)
        checks += account_checks(shared.resources[index], row, limit, *sums[index])
    return checks


def _within(connection: Connection, stored: StoredPortfolio, campaigns: Sequence[StoredCampaign]) -> Within:
    """The sums of the decisions of all campaigns in a period."""
    parts = [
        (
            stored.portfolio.places(each.campaign.resources),
            sums_by_quarter(connection, each.campaign.number, len(each.campaign.resources)),
        )
        for each in campaigns
    ]

    def within(resource: int, starts_at: int, ends_at: int) -> tuple[int, int]:
        found = [
            sums.within(places.index(resource), starts_at, ends_at) for places, sums in parts if resource in places
        ]
        return sum(held for held, _ in found), sum(spent for _, spent in found)

    return within


def _log_checks(
    connection: Connection, stored: StoredPortfolio, campaigns: Sequence[StoredCampaign]
) -> list[dict[str, Any]]:
    number, count = stored.portfolio.number, 0
    for table in (tables.grant, tables.change):
        count += connection.execute(select(func.count()).where(table.c.campaign == number)).scalar_one()
    rounds = sum(each.state["round"] for each in campaigns)
    traffic = sum((np.array(decisions_by_hour(connection, each.campaign.number)) for each in campaigns), np.zeros(168))
    return [
        check("rows of the log", stored.state["sequence"], count),
        check("rounds", rounds, int(read_state(_floats(stored.state["numbers"])).rounds)),
        check("hours of other traffic", 0, int((decoded(stored.state["traffic"]) != traffic).sum())),
    ]


def _call_checks(
    connection: Connection, stored: StoredPortfolio, campaigns: Sequence[StoredCampaign]
) -> list[dict[str, Any]]:
    """Each call must follow from the one before it, and the state of the portfolio from the last one.

    Calls of pruned decisions are gone, except for the newest one of all; what follows a gap is not checked.
    """
    by_number = {each.campaign.number: each.campaign for each in campaigns}
    has_gaps = any(opening_of(connection, number) is not None for number in by_number)
    count, wrong, last, after = 0, 0, 0, None
    for call, campaign, ticket in _calls(connection, stored, by_number):
        if after is not None and call.call == last + 1:
            derived = at_even(after._replace(surprise=call.surprise), call.state.even)
            wrong += not _is_same(derived, call.state)
        is_pruned = has_gaps and len(ticket.arm) < call.decisions
        after = None if is_pruned else moved(call, campaign, stored.portfolio.places(campaign.resources), ticket)
        count, last = count + 1, call.call
    checks = [check("calls", stored.state["call"], last if has_gaps else count)]
    checks.append(check("calls that do not follow from the one before", 0, wrong))
    if after is not None and last == stored.state["call"]:
        now = read_state(_floats(stored.state["numbers"]))
        checks.append(check("prices after the last call", True, _is_same(after, now)))
    return checks


def _is_same(derived: SharedState, stored: SharedState) -> bool:
    """Whether a derived state is the stored one, but for open decisions and what is known of their costs."""
    mine, other = (np.concatenate([[each.rounds, each.value], *each[2:5]]) for each in (derived, stored))
    return np.allclose(mine, other, rtol=TOLERANCE, atol=TOLERANCE)


def _calls(
    connection: Connection, stored: StoredPortfolio, campaigns: dict[int, Campaign]
) -> Iterator[tuple[Call, Campaign, Ticket]]:
    """The calls of all campaigns in their order, with the tickets of their decisions."""
    call, campaign, after = tables.portfolio_call, tables.campaign, 0
    query = select(call).join(campaign, campaign.c.number == call.c.campaign)
    query = query.where(campaign.c.portfolio == stored.portfolio.number).order_by(call.c.call).limit(CALLS_AT_ONCE)
    while rows := fetch(connection, query.where(call.c.call > after)):
        calls = [(row["campaign"], row["sequence"], Call.read(row["call"], row["numbers"])) for row in rows]
        decisions = _decisions(connection, calls)
        for number, first, one in calls:
            yield one, campaigns[number], _ticket(campaigns[number], decisions[number, first])
        after = rows[-1]["call"]


def _decisions(connection: Connection, calls: Sequence[tuple[int, int, Call]]) -> dict[tuple[int, int], list[Any]]:
    """The decisions of calls by the campaign and the number of the first of them."""
    decision, found = tables.decision, {(number, first): list[Any]() for number, first, _ in calls}
    for number in {number for number, _, _ in calls}:
        ends = [(first, first + one.decisions) for of, first, one in calls if of == number]
        query = select(decision.c.sequence, decision.c.place, decision.c.arm, decision.c.numbers)
        query = query.where(decision.c.campaign == number)
        query = query.where(decision.c.sequence >= ends[0][0], decision.c.sequence < ends[-1][1])
        for row in connection.execute(query.order_by(decision.c.sequence)):
            found.get((number, row.sequence - row.place), []).append(row)
    return found


def _ticket(campaign: Campaign, rows: Sequence[Any]) -> Ticket:
    """What the prices need of the tickets of a call."""
    d, n = len(campaign.resources), len(rows)
    numbers = _floats(b"".join(row.numbers for row in rows)).reshape(n, 2 + 2 * d)
    arms = [row.arm for row in rows]
    return Ticket.from_store(arms, np.zeros((n, 0)), numbers, np.zeros(n), np.zeros((n, d)))


def _floats(stored: bytes) -> NDArray[np.float64]:
    return np.frombuffer(stored, dtype="<f8")
