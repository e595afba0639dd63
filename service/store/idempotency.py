"""The answers to requests with an Idempotency-Key, each stored by the transaction that carried the request out."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from service.store import tables
from service.times import MICROS_PER_SECOND

KEPT_SECONDS = 86_400

_table = tables.idempotency


def claim(connection: Connection, actor: str, key: str, digest: bytes, now: int) -> RowMapping | None:
    """Take a key of an actor; returns the row of the request that has it, None if the key is now taken.

    Another transaction that takes the same key waits until this one ends. Rows that are too old are deleted first.
    """
    connection.execute(delete(_table).where(_table.c.at <= now - KEPT_SECONDS * MICROS_PER_SECOND))
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    row = insert(_table).values(actor=actor, key=key, digest=digest, status=0, body="", at=now)
    if connection.execute(row.on_conflict_do_nothing().returning(_table.c.at)).first() is not None:
        return None
    return connection.execute(select(_table).where(*_is(actor, key))).mappings().one()


def store(connection: Connection, actor: str, key: str, status: int, body: dict[str, Any]) -> None:
    """Store the answer to the request that has taken a key."""
    connection.execute(update(_table).where(*_is(actor, key)).values(status=status, body=json.dumps(body)))


def release(connection: Connection, actor: str, key: str) -> None:
    """Give a key back: its request was refused and has changed nothing."""
    connection.execute(delete(_table).where(*_is(actor, key)))


def _is(actor: str, key: str) -> tuple[Any, Any]:
    return _table.c.actor == actor, _table.c.key == key
