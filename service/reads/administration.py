"""Keys and the audit."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select, tuple_

from service.reads.shared import cursor_number, fetch, from_cursor, moment_or_none, number_cursor, page, parsed
from service.store import tables
from service.times import moment_text


def keys(connection: Connection, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """Keys in the order of creation, without their digests."""
    key = tables.api_key
    query = select(key).order_by(key.c.created_at, key.c.id).limit(limit + 1)
    if cursor is not None:
        created_at, _, last = from_cursor(cursor).partition(":")
        query = query.where(tuple_(key.c.created_at, key.c.id) > tuple_(cursor_number(created_at), last))
    return page(
        fetch(connection, query),
        limit,
        lambda row: f"{row['created_at']}:{row['id']}",
        lambda row: {
            "id": row["id"],
            "name": row["name"],
            "role": row["role"],
            "campaigns": parsed(row["campaigns"]),
            "requests_per_second": row["requests_per_second"],
            "created_at": moment_text(row["created_at"]),
            "revoked_at": moment_or_none(row["revoked_at"]),
        },
    )


def audit(connection: Connection, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """Changes of campaigns and keys, newest first."""
    entry = tables.audit
    below = number_cursor(cursor)
    query = select(entry).order_by(entry.c.number.desc()).limit(limit + 1)
    if below is not None:
        query = query.where(entry.c.number < below)
    return page(
        fetch(connection, query),
        limit,
        lambda row: row["number"],
        lambda row: {
            "number": row["number"],
            "at": moment_text(row["at"]),
            "actor": row["actor"],
            "action": row["action"],
            "campaign_id": row["campaign_id"],
            "body": json.loads(row["body"]),
        },
    )
