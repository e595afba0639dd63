"""Campaigns that end at a time: no transaction of theirs need come after it, so the sender looks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from service.domain.notices import CAMPAIGN_ENDED, Webhook, ended
from service.engine.notices import messages
from service.reads.shared import load_campaign
from service.store import tables
from service.store.campaigns import states


class Ends:
    """The ends of campaigns by number and version of the configuration, of which each is read once."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, int], int | None] = {}

    def messages(self, connection: Connection, hooks: Sequence[Webhook], now: int) -> list[dict[str, Any]]:
        """Return the messages that are missing about campaigns whose time is over since a webhook was created."""
        hooks = [hook for hook in hooks if CAMPAIGN_ENDED in hook.events]
        delivery, rows, known = tables.delivery, list[dict[str, Any]](), self._ends
        self._ends = {}
        for row in connection.execute(states().where(tables.campaign_state.c.status == "active")).mappings():
            version = row["campaign"], row["config_version"]
            if version not in known:
                known[version] = load_campaign(connection, *version).ends_at
            ends_at = self._ends[version] = known[version]
            if ends_at is None or ends_at > now:
                continue
            wanting = [hook for hook in hooks if hook.wants(row["id"]) and hook.created_at < ends_at]
            if wanting:
                notice = ended(load_campaign(connection, *version), row["round"])
                sent = select(delivery.c.webhook).where(delivery.c.mark == notice.mark)
                done = {*connection.execute(sent).scalars()}
                rows += messages([notice], [hook for hook in wanting if hook.id not in done], now, row["id"])
        return rows
