"""Webhooks and their messages."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select, tuple_

from service.problems import NotFound
from service.reads.shared import cursor_number, fetch, from_cursor, moment_or_none, number_cursor, page
from service.store import tables
from service.store.webhooks import decoded
from service.times import moment_text
from service.words import no_such


def webhooks(connection: Connection, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """Webhooks in the order of creation, without their secrets."""
    hook = tables.webhook
    query = select(hook).order_by(hook.c.created_at, hook.c.id).limit(limit + 1)
    if cursor is not None:
        created_at, _, last = from_cursor(cursor).partition(":")
        query = query.where(tuple_(hook.c.created_at, hook.c.id) > tuple_(cursor_number(created_at), last))
    names = ("id", "url", "events", "thresholds", "campaigns")
    return page(
        [decoded(row) for row in connection.execute(query).mappings()],
        limit,
        lambda row: f"{row['created_at']}:{row['id']}",
        lambda row: {**{name: row[name] for name in names}, "created_at": moment_text(row["created_at"])},
    )


def deliveries(connection: Connection, webhook_id: str, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """The messages of a webhook, newest first; raises NotFound."""
    delivery, below = tables.delivery, number_cursor(cursor)
    if connection.execute(select(tables.webhook.c.id).where(tables.webhook.c.id == webhook_id)).first() is None:
        raise NotFound(no_such("webhook", webhook_id), kind="webhook-not-found")
    query = select(delivery).where(delivery.c.webhook == webhook_id).order_by(delivery.c.number.desc())
    if below is not None:
        query = query.where(delivery.c.number < below)
    names = ("id", "event", "campaign_id", "status", "attempts", "response_status", "error")
    return page(
        fetch(connection, query.limit(limit + 1)),
        limit,
        lambda row: row["number"],
        lambda row: {
            **{name: row[name] for name in names},
            "at": moment_text(row["at"]),
            "next_attempt_at": moment_or_none(row["next_at"]),
            "finished_at": moment_or_none(row["finished_at"]),
            "body": json.loads(row["body"]),
        },
    )
