"""Campaigns with their states and configurations."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Select, select
from sqlalchemy.dialects import postgresql, sqlite

from service.ids import is_id
from service.problems import NotFound
from service.store import tables
from service.store.statements import Row
from service.words import no_such


def add_campaign(connection: Connection, campaign_id: str, now: int, portfolio: int | None = None) -> int | None:
    """Add a campaign and return its number; None if there is one with this id, also by a transaction just before."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    row = insert(tables.campaign).values(id=campaign_id, created_at=now, portfolio=portfolio).on_conflict_do_nothing()
    number: int | None = connection.execute(row.returning(tables.campaign.c.number)).scalar()
    return number


def states(*, with_config: bool = False) -> Select[Any]:
    """Rows of `campaign_state` with `id` and `created_at`, in the order of creation.

    with_config adds the column `config`: the current configuration, as JSON.
    """
    campaign, state, config = tables.campaign, tables.campaign_state, tables.config
    query = select(state, campaign.c.id, campaign.c.created_at).join(campaign, campaign.c.number == state.c.campaign)
    if with_config:
        current = (config.c.campaign == state.c.campaign) & (config.c.version == state.c.config_version)
        query = query.add_columns(config.c.body.label("config")).join(config, current)
    return query.order_by(campaign.c.number)


def state_of(connection: Connection, campaign_id: str, *, with_config: bool = False) -> Row:
    """The row of the campaign with this id, as in `states`; raises NotFound."""
    query = states(with_config=with_config).where(tables.campaign.c.id == campaign_id)
    row = connection.execute(query).mappings().first() if is_id(campaign_id) else None
    if row is None:
        raise NotFound(no_such("campaign", campaign_id), kind="campaign-not-found")
    return dict(row)


def config_of(connection: Connection, number: int, version: int) -> tuple[str, dict[str, Any]]:
    """The id of a campaign and one version of its configuration."""
    campaign, config = tables.campaign, tables.config
    campaign_id, body = connection.execute(
        select(campaign.c.id, config.c.body)
        .join(config, config.c.campaign == campaign.c.number)
        .where(campaign.c.number == number, config.c.version == version)
    ).one()
    return campaign_id, json.loads(body)


def portfolio_number(connection: Connection, portfolio_id: str) -> int | None:
    """The number of the portfolio with this id."""
    campaign = tables.campaign
    query = select(campaign.c.number).where(campaign.c.id == tables.PORTFOLIO_PREFIX + portfolio_id)
    number: int | None = connection.execute(query).scalar()
    return number


def portfolio_of(connection: Connection, number: int) -> int | None:
    """The number of the portfolio of a campaign."""
    campaign = tables.campaign
    found: int | None = connection.execute(select(campaign.c.portfolio).where(campaign.c.number == number)).scalar()
    return found


def members_of(connection: Connection, portfolio: int) -> list[tuple[int, tuple[str, ...]]]:
    """The campaigns of a portfolio, in the order of their creation: their numbers and the ids of their resources."""
    query = states(with_config=True).where(tables.campaign.c.portfolio == portfolio)
    found = [(row.campaign, json.loads(row.config)["resources"]) for row in connection.execute(query)]
    return [(number, tuple(resource["id"] for resource in resources)) for number, resources in found]
