"""Portfolios, their accounts, and the movements of these."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Select, select, tuple_

from cbwk_core.shared_prices import read_state
from service.domain.portfolio import Portfolio
from service.ids import is_id
from service.money import ONE, amount
from service.problems import NotFound
from service.reads.log import movements
from service.reads.shared import Row, StoredCampaign, cursor_number, fetch, from_cursor, number_cursor, page
from service.reads.windows import PresentWindows
from service.store import tables
from service.store.campaigns import states
from service.times import moment_microseconds, moment_text
from service.words import no_such


class StoredPortfolio(NamedTuple):
    """A portfolio with its current configuration, and the row of its state with `id` and `created_at`."""

    portfolio: Portfolio
    state: Row

    @classmethod
    def of(cls, row: Row) -> StoredPortfolio:
        """The portfolio of a row of `_stored`."""
        name = row["id"].removeprefix(tables.PORTFOLIO_PREFIX)
        return cls(Portfolio(row["campaign"], name, row["config_version"], json.loads(row["config"])), row)


def _stored() -> Select[Any]:
    campaign, state, config = tables.campaign, tables.portfolio_state, tables.config
    current = (config.c.campaign == state.c.campaign) & (config.c.version == state.c.config_version)
    query = select(state, campaign.c.id, campaign.c.created_at, config.c.body.label("config"))
    return query.join(campaign, campaign.c.number == state.c.campaign).join(config, current).order_by(state.c.campaign)


def stored_portfolio(connection: Connection, portfolio_id: str) -> StoredPortfolio:
    """The portfolio with this id; raises NotFound."""
    query = _stored().where(tables.campaign.c.id == tables.PORTFOLIO_PREFIX + portfolio_id)
    row = connection.execute(query).mappings().first() if is_id(portfolio_id) else None
    if row is None:
        raise NotFound(no_such("portfolio", portfolio_id), kind="portfolio-not-found")
    return StoredPortfolio.of(row)


def members(connection: Connection, number: int) -> list[StoredCampaign]:
    """The campaigns of a portfolio, in the order of their creation."""
    query = states(with_config=True).where(tables.campaign.c.portfolio == number)
    return [StoredCampaign.of(row) for row in fetch(connection, query)]


def portfolios(connection: Connection, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """Portfolios in the order of creation."""
    query, after = _stored().limit(limit + 1), number_cursor(cursor)
    rows = fetch(connection, query if after is None else query.where(tables.campaign.c.number > after))
    campaign, names = tables.campaign, defaultdict[int, list[str]](list)
    wanted = campaign.c.portfolio.in_([row["campaign"] for row in rows])
    found = select(campaign.c.portfolio, campaign.c.id).where(wanted).order_by(campaign.c.number)
    for number, name in connection.execute(found):
        names[number].append(name)
    return page(
        rows, limit, lambda row: row["campaign"], lambda row: _summary(StoredPortfolio.of(row), names[row["campaign"]])
    )


def _summary(stored: StoredPortfolio, campaigns: Sequence[str]) -> dict[str, Any]:
    return {
        "id": stored.portfolio.id,
        "version": stored.portfolio.version,
        "created_at": moment_text(stored.state["created_at"]),
        "config": stored.portfolio.config,
        "campaigns": list(campaigns),
    }


def all_portfolios(connection: Connection) -> list[Portfolio]:
    """All portfolios, in the order of creation."""
    return [StoredPortfolio.of(row).portfolio for row in fetch(connection, _stored())]


def portfolio_ids(connection: Connection) -> list[str]:
    """The ids of all portfolios, in the order of creation."""
    return [portfolio.id for portfolio in all_portfolios(connection)]


def portfolio(connection: Connection, portfolio_id: str) -> dict[str, Any]:
    """One portfolio."""
    stored = stored_portfolio(connection, portfolio_id)
    campaign = tables.campaign
    query = select(campaign.c.id).where(campaign.c.portfolio == stored.portfolio.number).order_by(campaign.c.number)
    return _summary(stored, [*connection.execute(query).scalars()])


def portfolio_budget(connection: Connection, portfolio_id: str) -> dict[str, Any]:
    """The accounts of a portfolio, and what each campaign has of them."""
    stored = stored_portfolio(connection, portfolio_id)
    shared, state = stored.portfolio, read_state(np.frombuffer(stored.state["numbers"], dtype="<f8"))
    windows, account = PresentWindows.of(connection, [shared.number]), tables.account
    rows = fetch(connection, select(account).where(account.c.campaign == shared.number).order_by(account.c.resource))
    prices = (state.prices * ONE).tolist()
    return {
        "portfolio_id": shared.id,
        "rounds": int(state.rounds),
        "expected_rounds": max(stored.state["expected"], int(state.rounds)),
        "resources": [
            {
                "id": shared.resources[row["resource"]],
                **{name: amount(row[name]) for name in ("granted", "held", "spent", "overrun")},
                "free": amount(max(0, row["granted"] - row["spent"] - row["held"])),
                "marginal_value": prices[row["resource"]],
                "windows": windows.shown(shared, row["resource"]),
            }
            for row in rows
        ],
        "campaigns": _parts(connection, stored, windows.now),
    }


def _parts(connection: Connection, stored: StoredPortfolio, now: int) -> list[dict[str, Any]]:
    """What each campaign holds and has spent of the shared resources."""
    account, campaigns = tables.account, members(connection, stored.portfolio.number)
    query = select(account).where(account.c.campaign.in_([each.campaign.number for each in campaigns]))
    rows = {(row["campaign"], row["resource"]): row for row in fetch(connection, query)}
    result = []
    for each in campaigns:
        places = stored.portfolio.places(each.campaign.resources)
        shared = [
            (name, rows[each.campaign.number, at])
            for at, (name, place) in enumerate(zip(each.campaign.resources, places, strict=True))
            if place is not None
        ]
        part = {column: {name: amount(row[column]) for name, row in shared} for column in ("held", "spent")}
        result.append({"campaign_id": each.campaign.id, "status": each.status_at(now), **part})
    return result


def portfolio_ledger(
    connection: Connection, portfolio_id: str, *, limit: int, cursor: str | None = None
) -> dict[str, Any]:
    """Every movement of the accounts, newest first: the sums of all movements are the accounts.

    Movements of one time are ordered by the number of their log, and by their number in it.
    """
    stored = stored_portfolio(connection, portfolio_id)
    until = None if cursor is None else _Place(*map(cursor_number, from_cursor(cursor).split(":")[:3]))
    found = [
        (_Place(row["at"], stored.portfolio.number, row["sequence"]), _granted(stored, row))
        for row in fetch(connection, _own_grants(stored, until, limit))
    ]
    grant = tables.grant
    for each in members(connection, stored.portfolio.number):
        number, resources = each.campaign.number, each.campaign.resources
        shared = [at for at, place in enumerate(stored.portfolio.places(resources)) if place is not None]
        below = each.sequence + 1 if until is None else _below(connection, number, until)
        names = [resources[at] for at in shared]
        for movement in movements(
            connection, each, below, limit, grant.c.kind == "adjust", grant.c.resource.in_(shared)
        ):
            parts = {column: _only(movement[column], names) for column in ("granted", "held", "spent")}
            place = _Place(moment_microseconds(movement["at"]), number, movement["sequence"])
            found.append((place, {**movement, **parts, "campaign_id": each.campaign.id}))
    found.sort(key=lambda pair: pair[0], reverse=True)
    return page(found, limit, lambda pair: ":".join(map(str, pair[0])), lambda pair: pair[1])


class _Place(NamedTuple):
    """Where a movement stands among those of all logs."""

    at: int
    number: int
    sequence: int


def _only(amounts: dict[str, float], names: Sequence[str]) -> dict[str, float]:
    return {name: amounts[name] for name in names if name in amounts}


def _own_grants(stored: StoredPortfolio, until: _Place | None, limit: int) -> Select[Any]:
    grant = tables.grant
    query = select(grant).where(grant.c.campaign == stored.portfolio.number).order_by(grant.c.sequence.desc())
    if until is not None:
        before = tuple_(grant.c.at, grant.c.campaign, grant.c.sequence) < tuple_(*until)
        query = query.where(before)
    return query.limit(limit + 1)


def _granted(stored: StoredPortfolio, row: Row) -> dict[str, Any]:
    granted = {stored.portfolio.resources[row["resource"]]: amount(row["amount"])}
    blank: dict[str, Any] = {"campaign_id": None, "decision_id": None, "held": {}, "spent": {}}
    own = {"sequence": row["sequence"], "at": moment_text(row["at"]), "kind": row["kind"], "reason": row["reason"]}
    return {**blank, **own, "granted": granted}


def _below(connection: Connection, number: int, until: _Place) -> int:
    """The number of a log below which its movements stand before a place among all logs."""
    if number == until.number:
        return until.sequence
    last = 0
    for table, at in ((tables.decision, "decided_at"), (tables.outcome, "at"), (tables.grant, "at")):
        time = table.c[at] <= until.at if number < until.number else table.c[at] < until.at
        query = select(table.c.sequence).where(table.c.campaign == number, time).order_by(table.c.sequence.desc())
        last = max(last, connection.execute(query.limit(1)).scalar() or 0)
    return last + 1
