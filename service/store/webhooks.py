"""Webhooks and their messages. A message is a row of the transaction that it is about; senders claim it afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from service.store import tables
from service.times import MICROS_PER_SECOND

# A sender that has not reported by then is gone, and another one sends the message again.
LEASE_SECONDS = 60
KEPT_SECONDS = 30 * 86_400
KEPT_MAX = 10_000  # finished messages of one webhook

_delivery, _webhook = tables.delivery, tables.webhook


def stored_webhooks(connection: Connection) -> Sequence[RowMapping]:
    """All webhooks, in the order of their creation."""
    return connection.execute(select(_webhook).order_by(_webhook.c.created_at, _webhook.c.id)).mappings().all()


def add_deliveries(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Add messages; one whose webhook has its mark is left out, and so is one whose webhook is deleted.

    The caller knows the webhooks from an earlier transaction. The lock lets no other process delete one before this
    transaction ends: its foreign key would fail, and with it the decisions and outcomes that the message is about.
    """
    wanted = select(_webhook.c.id).where(_webhook.c.id.in_({row["webhook"] for row in rows}))
    # Sorted, so that no two transactions wait for each other.
    there = {*connection.execute(wanted.order_by(_webhook.c.id).with_for_update(read=True, key_share=True)).scalars()}
    kept = [row for row in rows if row["webhook"] in there]
    if kept:
        insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        connection.execute(insert(_delivery).on_conflict_do_nothing(), kept)


def delivery_row(webhook: str, mark: str, event: str, message_id: str, now: int, **columns: Any) -> dict[str, Any]:
    """A new message, to be sent at once."""
    row = {"webhook": webhook, "mark": mark, "event": event, "id": message_id, "at": now, "next_at": now}
    return row | {"status": "waiting", "attempts": 0} | columns


def _due(now: int, limit: int) -> Select[Any]:
    return select(_delivery).where(_delivery.c.next_at <= now).order_by(_delivery.c.next_at).limit(limit)


def has_due(connection: Connection, now: int) -> bool:
    """Whether a message is to be sent."""
    return connection.execute(_due(now, 1)).first() is not None


def claim(connection: Connection, now: int, *, limit: int) -> list[dict[str, Any]]:
    """Take messages that are due, with `url` and `secret` of their webhooks; no other sender gets them for a minute."""
    rows = connection.execute(_due(now, limit).with_for_update(skip_locked=True)).mappings().all()
    numbers = [row["number"] for row in rows]
    taken = update(_delivery).where(_delivery.c.number.in_(numbers))
    connection.execute(taken.values(next_at=now + LEASE_SECONDS * MICROS_PER_SECOND, attempts=_delivery.c.attempts + 1))
    hooks = {row["id"]: {"url": row["url"], "secret": row["secret"]} for row in stored_webhooks(connection)}
    return [{**row, "attempts": row["attempts"] + 1, **hooks[row["webhook"]]} for row in rows]


def report(connection: Connection, claimed: dict[str, Any], **values: Any) -> None:
    """Store how an attempt ended, unless another sender has made one since."""
    same = _delivery.c.number == claimed["number"], _delivery.c.attempts == claimed["attempts"]
    connection.execute(update(_delivery).where(*same, _delivery.c.status == "waiting").values(**values))


def drop_old(connection: Connection, now: int) -> None:
    """Delete finished messages that are old, or more than a webhook keeps."""
    finished = _delivery.c.status != "waiting"
    connection.execute(delete(_delivery).where(finished, _delivery.c.at < now - KEPT_SECONDS * MICROS_PER_SECOND))
    for row in stored_webhooks(connection):
        kept = select(_delivery.c.number).where(_delivery.c.webhook == row["id"], finished)
        last = connection.execute(kept.order_by(_delivery.c.number.desc()).offset(KEPT_MAX).limit(1)).scalar()
        if last is not None:
            old = _delivery.c.webhook == row["id"], finished, _delivery.c.number <= last
            connection.execute(delete(_delivery).where(*old))


def remove(connection: Connection, webhook: str) -> bool:
    """Delete a webhook and its messages; return whether there was one."""
    # Its lock comes first, as in `add_deliveries`.
    connection.execute(select(_webhook.c.id).where(_webhook.c.id == webhook).with_for_update())
    connection.execute(delete(_delivery).where(_delivery.c.webhook == webhook))
    return connection.execute(delete(_webhook).where(_webhook.c.id == webhook)).rowcount > 0


def decoded(row: RowMapping) -> dict[str, Any]:
    """A webhook's row with its lists."""
    lists = {name: json.loads(row[name]) for name in ("events", "thresholds")}
    return {**row, **lists, "campaigns": None if row["campaigns"] is None else json.loads(row["campaigns"])}
