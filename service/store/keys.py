"""API keys. A key is 256 random bits; the database has only its SHA-256, so that a reader of it can use no key."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update

from service.ids import KEY_PREFIX, is_id
from service.problems import Conflict, NotFound
from service.store.tables import ROLES, api_key, audit, campaign
from service.words import no_such

_KEY_BYTES = 32
_KEY_LENGTH = len(KEY_PREFIX) + 43  # base64url without padding


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key without its text, which is not stored."""

    id: str
    name: str
    role: str
    campaigns: frozenset[str] | None  # None: all
    created_at: int
    revoked_at: int | None
    requests_per_second: float | None = None  # None: any number


def create_key(
    connection: Connection,
    name: str,
    role: str,
    campaigns: Collection[str] | None,
    now: int,
    *,
    requests_per_second: float | None = None,
    actor: str | None = None,
) -> tuple[str, str]:
    """Create a key and return its id and its text, which cannot be read again. An actor is written to the audit.

    Raises NotFound if a campaign does not exist: the key would be of no use, and a wrong id would go unnoticed.
    """
    if role not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}")
    if campaigns is not None:
        known = select(campaign.c.id).where(campaign.c.id.in_([name for name in campaigns if is_id(name)]))
        unknown = set(campaigns) - set(connection.execute(known).scalars())
        if unknown:
            raise NotFound(no_such("campaign", min(unknown)), kind="campaign-not-found")
    key_id = f"key-{secrets.token_hex(8)}"
    text = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
    connection.execute(
        insert(api_key).values(
            id=key_id,
            name=name,
            role=role,
            campaigns=None if campaigns is None else json.dumps(sorted(set(campaigns))),
            digest=_digest(text),
            created_at=now,
            requests_per_second=requests_per_second,
        )
    )
    _write_audit(connection, now, actor, "key.create", {"id": key_id, "name": name, "role": role})
    return key_id, text


def list_keys(connection: Connection) -> list[StoredKey]:
    """All keys, oldest first, with revoked ones: the audit names them."""
    return [*map(_stored, connection.execute(_COLUMNS.order_by(api_key.c.created_at, api_key.c.id)).mappings())]


def revoke_key(connection: Connection, key_id: str, now: int, *, actor: str | None = None) -> None:
    """Revoke a key for good; revoking it again is no error. An actor is written to the audit.

    Raises NotFound, or Conflict for the last key that can create keys.
    """
    # A statement of its own locks first: if two admins revoke each other's key at the same time, one must fail.
    admins = usable_admin_keys(connection, lock=True)
    row = connection.execute(_COLUMNS.where(api_key.c.id == key_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(no_such("key", key_id), kind="key-not-found")
    if row["revoked_at"] is not None:
        return
    if admins == [key_id]:
        raise Conflict("this is the last admin key: make another one first", kind="last-admin-key")
    connection.execute(update(api_key).where(api_key.c.id == key_id).values(revoked_at=now))
    _write_audit(connection, now, actor, "key.revoke", {"id": key_id})


def can_be_key(text: str) -> bool:
    """Whether the text has the form of a key."""
    return len(text) == _KEY_LENGTH and text.startswith(KEY_PREFIX) and text.isascii()


def key_digests(connection: Connection) -> frozenset[bytes]:
    """The digests of all valid keys."""
    return frozenset(connection.execute(select(api_key.c.digest).where(api_key.c.revoked_at.is_(None))).scalars())


def find_key(connection: Connection, text: str) -> StoredKey | None:
    """The valid key with this text."""
    if not can_be_key(text):
        return None
    found = connection.execute(_COLUMNS.where(api_key.c.digest == _digest(text), api_key.c.revoked_at.is_(None)))
    row = found.mappings().one_or_none()
    return None if row is None else _stored(row)


def usable_admin_keys(connection: Connection, *, lock: bool = False) -> list[str]:
    """The ids of the valid keys that may create keys: admins of all campaigns."""
    rows = (
        select(api_key.c.id)
        .where(api_key.c.role == "admin", api_key.c.campaigns.is_(None), api_key.c.revoked_at.is_(None))
        .order_by(api_key.c.id)
    )
    return list(connection.execute(rows.with_for_update() if lock else rows).scalars())


_COLUMNS = select(*(column for column in api_key.c if column is not api_key.c.digest))


def _stored(row: RowMapping) -> StoredKey:
    campaigns = None if row["campaigns"] is None else frozenset(json.loads(row["campaigns"]))
    return StoredKey(**{**row, "campaigns": campaigns})


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _write_audit(connection: Connection, now: int, actor: str | None, action: str, body: dict[str, Any]) -> None:
    if actor is not None:
        connection.execute(insert(audit).values(at=now, actor=actor, action=action, body=json.dumps(body)))
