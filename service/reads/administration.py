"""Keys and the audit."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select, tuple_

from service.reads.shared import cursor_number, from_cursor, number_cursor, page
from service.store import tables
from service.times import moment_text


def keys(connection: Connection, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """Keys in the order they were made, without their digests."""
    key = tables.api_key
    query = select(key).order_by(key.c.created_at, key.c.id).limit(limit + 1)
    if cursor is not None:
        made, _, last = from_cursor(cursor).partition(":")
        query = query.where(tuple_(key.c.created_at, key.c.id) > tuple_(cursor_number(made), last))
    rows = connection.execute(query).mappings().all()
    made_at = {row["id"]: row["created_at"] for row in rows}
    items = [
        {
            "id": row["id"],
            "name": row["name"],
            "role": row["role"],
            "campaigns": json.loads(row["campaigns"]) if row["campaigns"] is not None else None,
            "created_at": moment_text(row["created_at"]),
            "revoked_at": moment_text(row["revoked_at"]) if row["revoked_at"] is not None else None,
        }
        for row in rows
    ]
    return page(items, limit, lambda item: f"{made_at[item['id']]}:{item['id']}")


def audit(connection: Connection, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """What was done to campaigns and keys, newest first."""
    entry = tables.audit
    below = number_cursor(cursor)
    query = select(entry).order_by(entry.c.number.desc()).limit(limit + 1)
    if below is not None:
        query = query.where(entry.c.number < below)
    items = [
        {
            "number": row["number"],
            "at": moment_text(row["at"]),
            "actor": row["actor"],
            "action": row["action"],
            "campaign_id": row["campaign_id"],
            "body": json.loads(row["body"]),
        }
        for row in connection.execute(query).mappings()
    ]
    return page(items, limit, lambda item: item["number"])
