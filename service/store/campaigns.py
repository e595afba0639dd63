"""Campaigns by their ids, and the versions of their configurations."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from service.ids import is_id
from service.problems import NotFound
from service.store import tables


def state_of(connection: Connection, campaign_id: str) -> RowMapping:
    """The row of `campaign_state` and `created_at` of the campaign with this id; raises NotFound."""
    campaign, state = tables.campaign, tables.campaign_state
    query = select(state, campaign.c.created_at).join(campaign, campaign.c.number == state.c.campaign)
    found = connection.execute(query.where(campaign.c.id == campaign_id)) if is_id(campaign_id) else None
    row = None if found is None else found.mappings().first()
    if row is None:
        raise NotFound("there is no such campaign", kind="campaign-not-found")
    return row


def config_of(connection: Connection, number: int, version: int) -> tuple[str, dict[str, Any]]:
    """The id of a campaign and one version of its configuration."""
    campaign, config = tables.campaign, tables.config
    campaign_id, body = connection.execute(
        select(campaign.c.id, config.c.body)
        .join(config, config.c.campaign == campaign.c.number)
        .where(campaign.c.number == number, config.c.version == version)
    ).one()
    return campaign_id, json.loads(body)
