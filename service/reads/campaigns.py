"""Campaigns and their accounts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, Select, select

from cbwk_core.state import LEARNT
from service.domain.campaign import Campaign
from service.money import amount, micros
from service.reads.shared import Row, StoredCampaign, fetch, last_prices, number_cursor, page, prices, stored_campaign
from service.store import tables
from service.store.campaigns import states
from service.times import moment_microseconds, moment_text


def campaigns(
    connection: Connection,
    *,
    visible: Collection[str] | None = None,
    status: str | None = None,
    limit: int,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Campaigns in the order of creation; `visible` limits them to those that a key may see."""
    query = states() if status is None else states().where(tables.campaign_state.c.status == status)
    rows = fetch(connection, _restricted(query, visible, limit, cursor))
    return page(rows, limit, lambda row: row["campaign"], _summary)


def _restricted(query: Select[Any], visible: Collection[str] | None, limit: int, cursor: str | None) -> Select[Any]:
    """The rows of one page, and one more."""
    campaign, after = tables.campaign, number_cursor(cursor)
    if visible is not None:
        query = query.where(campaign.c.id.in_(sorted(visible)))
    if after is not None:
        query = query.where(campaign.c.number > after)
    return query.limit(limit + 1)


def _summary(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "status": row["status"],
        "version": row["config_version"],
        "round": row["round"],
        "created_at": moment_text(row["created_at"]),
    }


def campaign(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """One campaign: configuration and its version, status, round, accounts, prices."""
    stored = stored_campaign(connection, campaign_id)
    last = last_prices(connection, [stored.campaign.number])
    return {
        **_summary(stored.state),
        # Outcomes learnt, by the policy's books.
        "policy_version": int(np.frombuffer(stored.state["books"], dtype="<f8")[LEARNT]),
        "rules": stored.campaign.rules,
        "config": stored.campaign.public_config,
        "accounts": _accounts(connection, [stored], last)[stored.campaign.number],
        "prices": prices(stored.campaign, last[stored.campaign.number]),
    }


def budget(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """The accounts of one campaign."""
    (item,) = _budgets(connection, [stored_campaign(connection, campaign_id)])
    return item


def budgets(
    connection: Connection, *, visible: Collection[str] | None = None, limit: int, cursor: str | None = None
) -> dict[str, Any]:
    """The accounts of all campaigns, in the order of creation."""
    rows = fetch(connection, _restricted(states(with_config=True), visible, limit, cursor))
    found = page(rows, limit, lambda row: row["campaign"], dict)
    return {**found, "items": _budgets(connection, [StoredCampaign.of(row) for row in found["items"]])}


def _budgets(connection: Connection, several: Sequence[StoredCampaign]) -> list[dict[str, Any]]:
    accounts = _accounts(connection, several, last_prices(connection, [stored.campaign.number for stored in several]))
    return [
        {
            "campaign_id": stored.campaign.id,
            "status": stored.state["status"],
            "round": stored.state["round"],
            "flight": round(_flight_share(stored), 6),
            "last_event_at": moment_text(stored.state["last_event_at"]),
            "exhausted": _is_exhausted(stored.campaign, accounts[stored.campaign.number]),
            "resources": accounts[stored.campaign.number],
        }
        for stored in several
    ]


def _is_exhausted(campaign: Campaign, accounts: list[dict[str, Any]]) -> bool:
    """Whether no arm of the campaign can be paid, so that every request gets the null arm."""
    free = [micros(account["free"]) for account in accounts]
    if all(left >= most for left, most in zip(free, campaign.max_costs, strict=True)):
        return False  # the usual case, without a look at the arms, of which there may be many
    playable = [hold for arm, hold in enumerate(campaign.holds) if arm not in campaign.retired]
    return bool(playable) and not any(
        all(needed <= left for needed, left in zip(hold, free, strict=True)) for hold in playable
    )


def _accounts(
    connection: Connection, several: Sequence[StoredCampaign], last: dict[int, bytes | None]
) -> dict[int, list[dict[str, Any]]]:
    """The accounts by the number of the campaign, in the order of its resources."""
    account = tables.account
    by_number = {stored.campaign.number: stored for stored in several}
    values = {number: _marginal_values(stored.campaign, last[number]) for number, stored in by_number.items()}
    query = select(account).where(account.c.campaign.in_(by_number)).order_by(account.c.campaign, account.c.resource)
    accounts: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in fetch(connection, query):
        number = row["campaign"]
        accounts[number].append(_account(by_number[number], row, values[number]))
    return accounts


def _marginal_values(campaign: Campaign, stored: bytes | None) -> dict[str, float]:
    """The value of one more unit of each resource, in rewards as callers report them."""
    span = campaign.config["reward"]["max"] - campaign.config["reward"]["min"]
    return {name: price * span for name, price in prices(campaign, stored).items()}


def _account(stored: StoredCampaign, row: Row, values: dict[str, float]) -> dict[str, Any]:
    share, resource = _flight_share(stored), stored.campaign.resources[row["resource"]]
    return {
        "id": resource,
        "granted": amount(row["granted"]),
        "held": amount(row["held"]),
        "spent": amount(row["spent"]),
        "overrun": amount(row["overrun"]),
        "free": amount(max(0, row["granted"] - row["spent"] - row["held"])),
        "pace": round(row["spent"] / row["granted"] / share, 6) if share and row["granted"] else None,
        "marginal_value": values.get(resource),
    }


def _flight_share(stored: StoredCampaign) -> float:
    """The finished share of the flight: of its decisions, or of its time if only its end is declared."""
    config, state = stored.campaign.config, stored.state
    if config["ends_at"] is not None:
        start, end = state["created_at"], moment_microseconds(config["ends_at"])
        return min(1.0, float(state["last_event_at"] - start) / (end - start)) if end > start else 1.0
    return min(1.0, float(state["round"] / config["horizon"]))
