"""Campaigns as they stand, and their accounts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, Select, select

from cbwk_core.state import LEARNT
from service.domain.campaign import Campaign
from service.money import amount, micros
from service.reads.shared import Row, Seen, number_cursor, page, prices, seen
from service.store import tables
from service.times import moment_microseconds, moment_text


def campaigns(
    connection: Connection,
    *,
    visible: Collection[str] | None = None,
    status: str | None = None,
    limit: int,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Campaigns in the order they were made; `visible` limits them to what a key may see."""
    rows = connection.execute(_listed(visible, status, limit, cursor)).mappings().all()
    numbers = {row["id"]: row["campaign"] for row in rows}
    return page([_summary(row) for row in rows], limit, lambda item: numbers[item["id"]])


def _listed(visible: Collection[str] | None, status: str | None, limit: int, cursor: str | None) -> Select[Any]:
    campaign, state = tables.campaign, tables.campaign_state
    after = number_cursor(cursor)
    query = (
        select(state, campaign.c.id, campaign.c.created_at)
        .join(campaign, campaign.c.number == state.c.campaign)
        .order_by(campaign.c.number)
        .limit(limit + 1)
    )
    if visible is not None:
        query = query.where(campaign.c.id.in_(sorted(visible)))
    if status is not None:
        query = query.where(state.c.status == status)
    if after is not None:
        query = query.where(campaign.c.number > after)
    return query


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
    one = seen(connection, campaign_id)
    decision = tables.decision
    last = connection.execute(
        select(decision.c.prices)
        .where(decision.c.campaign == one.campaign.number, decision.c.sequence <= one.sequence)
        .order_by(decision.c.sequence.desc())
        .limit(1)
    ).scalar()
    return {
        **_summary({**one.state, "id": one.campaign.id}),
        "policy_version": _learnt(one),
        "rules": one.campaign.rules,
        "config": one.campaign.public_config,
        "accounts": _accounts(connection, [one])[one.campaign.number],
        "prices": prices(one.campaign, last),
    }


def _learnt(one: Seen) -> int:
    """Outcomes learnt, by the policy's books."""
    return int(np.frombuffer(one.state["books"], dtype="<f8")[LEARNT])


def budget(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """The accounts of one campaign."""
    one = seen(connection, campaign_id)
    return _budget(one, _accounts(connection, [one])[one.campaign.number])


def budgets(
    connection: Connection, *, visible: Collection[str] | None = None, limit: int, cursor: str | None = None
) -> dict[str, Any]:
    """The accounts of every campaign, in the order they were made."""
    rows = connection.execute(_listed(visible, None, limit, cursor)).mappings().all()
    found = _with_configs(connection, rows)
    accounts = _accounts(connection, found)
    items = [_budget(one, accounts[one.campaign.number]) for one in found]
    numbers = {one.campaign.id: one.campaign.number for one in found}
    return page(items, limit, lambda item: numbers[item["campaign_id"]])


def _with_configs(connection: Connection, rows: Sequence[Row]) -> list[Seen]:
    """Campaigns with the configurations in force, all read at once: a page may have a thousand."""
    config, state = tables.config, tables.campaign_state
    bodies = connection.execute(
        select(config.c.campaign, config.c.body)
        .join(state, (state.c.campaign == config.c.campaign) & (state.c.config_version == config.c.version))
        .where(config.c.campaign.in_([row["campaign"] for row in rows]))
    ).all()
    configs = {number: json.loads(body) for number, body in bodies}
    return [
        Seen(Campaign(row["campaign"], row["id"], row["config_version"], configs[row["campaign"]]), row) for row in rows
    ]


def _budget(one: Seen, accounts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "campaign_id": one.campaign.id,
        "status": one.state["status"],
        "round": one.state["round"],
        "flight": round(flight_share(one), 6),
        "last_event_at": moment_text(one.state["last_event_at"]),
        "exhausted": _is_exhausted(one.campaign, [micros(account["free"]) for account in accounts]),
        "resources": accounts,
    }


def _is_exhausted(campaign: Campaign, free: Sequence[int]) -> bool:
    """Whether none of the campaign's own arms can be paid, so that every request gets the null arm."""
    if all(left >= most for left, most in zip(free, campaign.max_costs, strict=True)):
        return False  # most campaigns, most of the time, and arms may be many
    playable = [hold for arm, hold in enumerate(campaign.holds) if arm not in campaign.retired]
    return bool(playable) and not any(
        all(needed <= left for needed, left in zip(hold, free, strict=True)) for hold in playable
    )


def _accounts(connection: Connection, found: Sequence[Seen]) -> dict[int, list[dict[str, Any]]]:
    """The accounts of campaigns by their number, in the order of their resources."""
    account = tables.account
    by_number = {one.campaign.number: one for one in found}
    views: dict[int, list[dict[str, Any]]] = defaultdict(list)
    rows = connection.execute(
        select(account).where(account.c.campaign.in_(by_number)).order_by(account.c.campaign, account.c.resource)
    ).mappings()
    last = _last_prices(connection, list(by_number))
    worth = {number: _marginal_values(one.campaign, last[number]) for number, one in by_number.items()}
    for row in rows:
        number, one = row["campaign"], by_number[row["campaign"]]
        views[number].append(_account(one.campaign, row, flight_share(one), worth[number]))
    return views


def _last_prices(connection: Connection, numbers: Sequence[int]) -> dict[int, bytes | None]:
    """The prices at the last decision of each campaign; None where nothing was decided yet."""
    decision, state = tables.decision, tables.campaign_state
    last = (
        select(decision.c.prices)
        .where(decision.c.campaign == state.c.campaign)
        .order_by(decision.c.sequence.desc())
        .limit(1)
        .scalar_subquery()
    )
    rows = connection.execute(select(state.c.campaign, last).where(state.c.campaign.in_(numbers)))
    return {row[0]: row[1] for row in rows}


def _marginal_values(campaign: Campaign, stored: bytes | None) -> dict[str, float]:
    """What one more unit of each resource is worth, in rewards as callers report them."""
    span = campaign.config["reward"]["max"] - campaign.config["reward"]["min"]
    return {name: price * span for name, price in prices(campaign, stored).items()}


def _account(campaign: Campaign, row: Row, share: float, worth: dict[str, float]) -> dict[str, Any]:
    return {
        "id": campaign.resources[row["resource"]],
        "granted": amount(row["granted"]),
        "held": amount(row["held"]),
        "spent": amount(row["spent"]),
        "overrun": amount(row["overrun"]),
        "free": amount(max(0, row["granted"] - row["spent"] - row["held"])),
        "pace": round(row["spent"] / row["granted"] / share, 6) if share and row["granted"] else None,
        "marginal_value": worth.get(campaign.resources[row["resource"]]),
    }


def flight_share(one: Seen) -> float:
    """How much of the flight is over: of its decisions, or of its time where only an end is declared."""
    config, state = one.campaign.config, one.state
    if config["ends_at"] is not None:
        start, end = state["created_at"], moment_microseconds(config["ends_at"])
        return min(1.0, float(state["last_event_at"] - start) / (end - start)) if end > start else 1.0
    return min(1.0, float(state["round"] / config["horizon"]))
