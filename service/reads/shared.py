"""What every read needs: the campaign it is about, pages, amounts by resource, elements of stored vectors."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import BigInteger, ColumnElement, Connection, Double, Float, Text, cast, func, select
from sqlalchemy.dialects import postgresql

from service.domain.campaign import Campaign
from service.engine.cache import load_campaign
from service.ids import is_id
from service.money import ONE, amount
from service.problems import Invalid, NotFound
from service.store import tables

Row = Mapping[Any, Any]  # SQLAlchemy's rows by column, and dictionaries like them

# The most that fit every 64-bit number.
CURSOR_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class Seen:
    """A campaign with the configuration in force and the row of its state.

    Rows of the log up to `sequence` are all committed: a read that stays below it misses nothing, in whatever order its
    statements run.
    """

    campaign: Campaign
    state: Row

    @property
    def sequence(self) -> int:
        """The last number of the log when this was read."""
        return int(self.state["sequence"])


def seen(connection: Connection, campaign_id: str) -> Seen:
    """The campaign of this id, or NotFound."""
    campaign, state = tables.campaign, tables.campaign_state
    row = None
    if is_id(campaign_id):
        row = (
            connection.execute(
                select(state, campaign.c.created_at)
                .join(campaign, campaign.c.number == state.c.campaign)
                .where(campaign.c.id == campaign_id)
            )
            .mappings()
            .first()
        )
    if row is None:
        raise NotFound("there is no such campaign", kind="campaign-not-found")
    return Seen(load_campaign(connection, row["campaign"], row["config_version"]), row)


def page(items: Sequence[dict[str, Any]], limit: int, cursor_of: Any) -> dict[str, Any]:
    """One page of at most `limit` items out of one more than that, if there are more."""
    kept = list(items[:limit])
    more = len(items) > limit
    return {"items": kept, "next_cursor": to_cursor(cursor_of(kept[-1])) if more else None}


def to_cursor(value: object) -> str:
    """A place in a list, as text that clients hand back and do not read.

    >>> to_cursor(2087), from_cursor("MjA4Nw")
    ('MjA4Nw', '2087')
    """
    return base64.urlsafe_b64encode(str(value).encode()).decode().rstrip("=")


def from_cursor(cursor: str) -> str:
    """What `to_cursor` was given."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, UnicodeError):
        raise _bad_cursor() from None


def number_cursor(cursor: str | None) -> int | None:
    """The number a cursor stands for; None where there is no cursor."""
    return None if cursor is None else cursor_number(from_cursor(cursor))


def cursor_number(text: str) -> int:
    """A number inside a cursor; what no column can hold is a cursor nobody was given."""
    if not text.isdigit() or len(text) > CURSOR_DIGITS_MAX:
        raise _bad_cursor()
    return int(text)


def _bad_cursor() -> Invalid:
    errors = [{"field": "cursor", "message": "must be the next_cursor of an answer"}]
    return Invalid("the query cannot be taken as it is", errors=errors)


def by_resource(campaign: Campaign, amounts: Sequence[int] | None) -> dict[str, float]:
    """Amounts in millionths by the resource they are of; nothing for an empty vector."""
    if not amounts:
        return {}
    return {resource: amount(one) for resource, one in zip(campaign.resources, amounts, strict=True)}


def vector(text: str | None) -> list[int] | None:
    """A stored vector of amounts."""
    return None if text is None else json.loads(text)


def prices(campaign: Campaign, stored: bytes | None) -> dict[str, float]:
    """λ by resource, per unit of it; none before the first decision."""
    if stored is None:
        return {}
    per_max_cost = np.frombuffer(stored, dtype="<f8").tolist()
    units = [cost / ONE for cost in campaign.units]
    return {name: price / unit for name, price, unit in zip(campaign.resources, per_max_cost, units, strict=True)}


def element(connection: Connection, column: ColumnElement[Any], index: int) -> ColumnElement[int]:
    """One whole number of a JSON array that is stored as text."""
    return cast(_member(connection, column, index), BigInteger)


def real_element(connection: Connection, column: ColumnElement[Any], index: int) -> ColumnElement[float]:
    """One number of a JSON array that is stored as text."""
    return cast(_member(connection, column, index), Double if _is_postgresql(connection) else Float)


def _member(connection: Connection, column: ColumnElement[Any], index: int) -> ColumnElement[Any]:
    if _is_postgresql(connection):
        member: ColumnElement[Any] = cast(column, postgresql.JSON)[index].astext
        return member
    return func.json_extract(column, f"$[{index}]", type_=Text)


def _is_postgresql(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"
