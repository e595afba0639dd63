"""Campaigns and their accounts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import structlog
from sqlalchemy import Connection, Select, select

from cbwk_core.state import LEARNT
from cbwk_core.ticket import ENDED
from service.domain.campaign import Campaign, names_of
from service.limits import PAGE_MAX
from service.money import amount, micros
from service.reads import earned
from service.reads.shared import (
    LastPrices,
    Row,
    StoredCampaign,
    fetch,
    last_prices,
    number_cursor,
    page,
    prices,
    stored_campaign,
)
from service.reads.windows import PresentWindows
from service.store import tables
from service.store.campaigns import states
from service.store.database import clock_micros
from service.times import moment_microseconds, moment_text

log = structlog.get_logger(__name__)
_NO_NAMES = names_of({})


def campaigns(
    connection: Connection,
    *,
    visible: Collection[str] | None = None,
    status: str | None = None,
    limit: int,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Campaigns in the order of creation; `visible` limits them to those that a key may see."""
    query, now, after = states(with_config=True), clock_micros(connection), number_cursor(cursor)
    if status is not None:
        query = query.where(tables.campaign_state.c.status == ("active" if status in (ENDED, "scheduled") else status))
    found: list[Row] = []
    step = limit
    while True:
        rows = fetch(connection, _restricted(query, visible, step, after))
        shown = (_shown(row, now) for row in rows)
        matching = (row for row in shown if status in (None, row["status"]))
        found += islice(matching, limit + 1 - len(found))
        if len(rows) <= step or len(found) > limit:
            return page(found, limit, lambda row: row["campaign"], _summary)
        # Scheduled, active and ended differ by the clock alone: many rows may be of another status, and few queries
        # pass them.
        step, after = PAGE_MAX, rows[-1]["campaign"]


def _restricted(query: Select[Any], visible: Collection[str] | None, limit: int, after: int | None) -> Select[Any]:
    """The rows of one page, and one more."""
    campaign = tables.campaign
    if visible is not None:
        query = query.where(campaign.c.id.in_(sorted(visible)))
    if after is not None:
        query = query.where(campaign.c.number > after)
    return query.limit(limit + 1)


def _shown(row: Row, now: int) -> dict[str, Any]:
    """The row with names and the status as it is shown; without them if its configuration is damaged."""
    try:
        stored = StoredCampaign.of(row)
        return {**row, **stored.campaign.names, "status": stored.status_at(now)}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {**row, **_NO_NAMES}


def _summary(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "display_name": row["display_name"],
        "metadata": row["metadata"],
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
        **_summary({**stored.state, **stored.campaign.names, "status": stored.status_at(clock_micros(connection))}),
        # Outcomes learnt, by the policy's books.
        "policy_version": int(np.frombuffer(stored.state["books"], dtype="<f8")[LEARNT]),
        "rules": stored.campaign.rules,
        "config": stored.campaign.public_config,
        "accounts": _accounts(stored, _account_rows(connection, last), last),
        "prices": prices(stored.campaign, last[stored.campaign.number]),
    }


def budget(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """The accounts of one campaign."""
    stored = stored_campaign(connection, campaign_id)
    last = last_prices(connection, [stored.campaign.number])
    return _budget(stored, _account_rows(connection, last), last, earned.Earnings(connection))


def budgets(
    connection: Connection, *, visible: Collection[str] | None = None, limit: int, cursor: str | None = None
) -> dict[str, Any]:
    """The accounts of all campaigns, in the order of creation."""
    rows = fetch(connection, _restricted(states(with_config=True), visible, limit, number_cursor(cursor)))
    last = last_prices(connection, [row["campaign"] for row in rows])
    accounts, earnings = _account_rows(connection, last), earned.Earnings(connection, earned.LIST_NUMBERS_MAX)

    def shown(row: Row) -> dict[str, Any]:
        return _budget_or_damaged(row, accounts, last, earnings)

    return page(rows, limit, lambda row: row["campaign"], shown)


def _budget_or_damaged(row: Row, accounts: AccountRows, last: LastPrices, earnings: earned.Earnings) -> dict[str, Any]:
    """The accounts of a campaign; without resources if its configuration is damaged, so that the others are shown."""
    try:
        return _budget(StoredCampaign.of(row), accounts, last, earnings)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the others are shown
        log.error("a configuration cannot be read", campaign=row["id"], error=type(error).__name__)
        return {**_standing(row, row["status"]), **_NO_NAMES, **_BLANK}


_BLANK = {"flight": 0.0, "mode": "live", "holdout": None, "exhausted": False, "damaged": True, "resources": []}
_BLANK |= {"reward": None, "cost_per_reward": None}


def _standing(state: Row, status: str) -> dict[str, Any]:
    return {
        "campaign_id": state["id"],
        "status": status,
        "round": state["round"],
        "last_event_at": moment_text(state["last_event_at"]),
    }


def _budget(stored: StoredCampaign, rows: AccountRows, last: LastPrices, earnings: earned.Earnings) -> dict[str, Any]:
    accounts, reward = _accounts(stored, rows, last), earnings.of(stored)
    return {
        **_standing(stored.state, stored.status_at(rows.windows.now)),
        **stored.campaign.names,
        "flight": round(_flight_share(stored), 6),
        "mode": "shadow" if stored.campaign.shadows else "live",
        "holdout": (stored.campaign.config.get("holdout") or {}).get("fraction"),
        "exhausted": stored.campaign.pays_for_nothing([micros(account["free"]) for account in accounts]),
        "damaged": False,
        "reward": reward,
        "cost_per_reward": {each["id"]: round(each["spent"] / reward, 9) for each in accounts}
        if reward is not None and reward > 0.0
        else None,
        "resources": accounts,
    }


class AccountRows(NamedTuple):
    """The accounts by the number of their campaign, in the order of its resources, and the windows."""

    accounts: dict[int, list[Row]]
    windows: PresentWindows


def _account_rows(connection: Connection, numbers: Collection[int]) -> AccountRows:
    account = tables.account
    query = select(account).where(account.c.campaign.in_(numbers)).order_by(account.c.campaign, account.c.resource)
    found: dict[int, list[Row]] = defaultdict(list)
    for row in fetch(connection, query):
        found[row["campaign"]].append(row)
    return AccountRows(found, PresentWindows.of(connection, numbers))


def _accounts(stored: StoredCampaign, rows: AccountRows, last: LastPrices) -> list[dict[str, Any]]:
    """The accounts of a campaign, in the order of its resources."""
    campaign = stored.campaign
    values = _marginal_values(campaign, last[campaign.number])
    return [
        _account(stored, row, values) | {"windows": rows.windows.shown(campaign, row["resource"])}
        for row in rows.accounts[campaign.number]
    ]


def _marginal_values(campaign: Campaign, stored: bytes | None) -> dict[str, float]:
    """The value of one more unit of each resource, in rewards as callers report them."""
    span = campaign.config["reward"]["max"] - campaign.config["reward"]["min"]
    return {name: price * span for name, price in prices(campaign, stored).items()}


def _account(stored: StoredCampaign, row: Row, values: dict[str, float]) -> dict[str, Any]:
    share, resource = _flight_share(stored), stored.campaign.resources[row["resource"]]
    return {
        "id": resource,
        "unit": stored.campaign.config["resources"][row["resource"]].get("unit"),
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
        start, end = stored.campaign.flight_start(state["created_at"]), moment_microseconds(config["ends_at"])
        return min(1.0, max(0.0, (state["last_event_at"] - start) / (end - start))) if end > start else 1.0
    return min(1.0, float(state["round"] / config["horizon"]))
