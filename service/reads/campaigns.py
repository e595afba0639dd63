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
from service.reads.shared import CampaignView, Row, campaign_view, fetch, last_prices, number_cursor, page, prices
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
    view = campaign_view(connection, campaign_id)
    last = last_prices(connection, [view.campaign.number])
    return {
        **_summary(view.state),
        # Outcomes learnt, by the policy's books.
        "policy_version": int(np.frombuffer(view.state["books"], dtype="<f8")[LEARNT]),
        "rules": view.campaign.rules,
        "config": view.campaign.public_config,
        "accounts": _accounts(connection, [view], last)[view.campaign.number],
        "prices": prices(view.campaign, last[view.campaign.number]),
    }


def budget(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """The accounts of one campaign."""
    (item,) = _budgets(connection, [campaign_view(connection, campaign_id)])
    return item


def budgets(
    connection: Connection, *, visible: Collection[str] | None = None, limit: int, cursor: str | None = None
) -> dict[str, Any]:
    """The accounts of all campaigns, in the order of creation."""
    rows = fetch(connection, _restricted(states(with_config=True), visible, limit, cursor))
    found = page(rows, limit, lambda row: row["campaign"], dict)
    return {**found, "items": _budgets(connection, [CampaignView.of(row) for row in found["items"]])}


def _budgets(connection: Connection, views: Sequence[CampaignView]) -> list[dict[str, Any]]:
    accounts = _accounts(connection, views, last_prices(connection, [view.campaign.number for view in views]))
    return [_budget(view, accounts[view.campaign.number]) for view in views]


def _budget(view: CampaignView, accounts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "campaign_id": view.campaign.id,
        "status": view.state["status"],
        "round": view.state["round"],
        "flight": round(_flight_share(view), 6),
        "last_event_at": moment_text(view.state["last_event_at"]),
        "exhausted": _is_exhausted(view.campaign, [micros(account["free"]) for account in accounts]),
        "resources": accounts,
    }


def _is_exhausted(campaign: Campaign, free: Sequence[int]) -> bool:
    """Whether no arm of the campaign can be paid, so that every request gets the null arm."""
    if all(left >= most for left, most in zip(free, campaign.max_costs, strict=True)):
        return False  # the usual case, without a look at the arms, of which there may be many
    playable = [hold for arm, hold in enumerate(campaign.holds) if arm not in campaign.retired]
    return bool(playable) and not any(
        all(needed <= left for needed, left in zip(hold, free, strict=True)) for hold in playable
    )


def _accounts(
    connection: Connection, views: Sequence[CampaignView], last: dict[int, bytes | None]
) -> dict[int, list[dict[str, Any]]]:
    """The accounts by the number of the campaign, in the order of its resources."""
    account = tables.account
    by_number = {view.campaign.number: view for view in views}
    values = {number: _marginal_values(view.campaign, last[number]) for number, view in by_number.items()}
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


def _account(view: CampaignView, row: Row, values: dict[str, float]) -> dict[str, Any]:
    share, resource = _flight_share(view), view.campaign.resources[row["resource"]]
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


def _flight_share(view: CampaignView) -> float:
    """The finished share of the flight: of its decisions, or of its time if only its end is declared."""
    config, state = view.campaign.config, view.state
    if config["ends_at"] is not None:
        start, end = state["created_at"], moment_microseconds(config["ends_at"])
        return min(1.0, float(state["last_event_at"] - start) / (end - start)) if end > start else 1.0
    return min(1.0, float(state["round"] / config["horizon"]))
