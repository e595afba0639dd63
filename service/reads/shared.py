"""Functions that all reads share: the campaign, rows, pages, amounts by resource."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from sqlalchemy import Connection, Select, select

from service.domain.campaign import Campaign
from service.money import ONE, amount
from service.problems import Invalid
from service.store import campaigns, tables
from service.times import moment_text

Row = Mapping[Any, Any]  # SQLAlchemy's rows by column, and dictionaries like them
LastPrices = dict[int, bytes | None]  # by the number of the campaign

T = TypeVar("T")

# Every number with at most this many digits fits into 64 bits.
CURSOR_DIGITS_MAX = 18


class StoredCampaign(NamedTuple):
    """A campaign with its current configuration and the row of its state.

    All rows of the log up to `sequence` are committed: a read that stays below it misses nothing, in whatever order its
    statements run.
    """

    campaign: Campaign
    state: Row

    @classmethod
    def of(cls, row: Row) -> StoredCampaign:
        """The campaign of a row of `store.campaigns.states`, read with the configuration."""
        return cls(Campaign(row["campaign"], row["id"], row["config_version"], json.loads(row["config"])), row)

    def status_at(self, now: int) -> str:
        """The status as it is shown."""
        return self.campaign.status_at(now, self.state["status"], self.state["round"])

    @property
    def sequence(self) -> int:
        """The last number of the log at the time of the read."""
        return int(self.state["sequence"])


def stored_campaign(connection: Connection, campaign_id: str) -> StoredCampaign:
    """The campaign with this id; raises NotFound."""
    return StoredCampaign.of(campaigns.state_of(connection, campaign_id, with_config=True))


def load_campaign(connection: Connection, number: int, version: int) -> Campaign:
    """One version of a campaign's configuration."""
    campaign_id, config = campaigns.config_of(connection, number, version)
    return Campaign(number, campaign_id, version, config)


def fetch(connection: Connection, query: Select[Any]) -> Sequence[Row]:
    """All rows of a query, by column."""
    return connection.execute(query).mappings().all()


def page(
    rows: Sequence[T], limit: int, cursor_of: Callable[[T], object], item_of: Callable[[T], dict[str, Any]]
) -> dict[str, Any]:
    """A page of at most `limit` items; `rows` has one row more if there is a next page."""
    shown = rows[:limit]
    next_cursor = to_cursor(cursor_of(shown[-1])) if len(rows) > limit else None
    return {"items": [item_of(row) for row in shown], "next_cursor": next_cursor}


def to_cursor(value: object) -> str:
    """A position in a list, as text that clients return unread.

    >>> to_cursor(2087), from_cursor("MjA4Nw")
    ('MjA4Nw', '2087')
    """
    return base64.urlsafe_b64encode(str(value).encode()).decode().rstrip("=")


def from_cursor(cursor: str) -> str:
    """The text of a cursor; raises Invalid if `to_cursor` did not make it."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, UnicodeError):
        raise _bad_cursor() from None


def number_cursor(cursor: str | None) -> int | None:
    """The number of a cursor; None without a cursor."""
    return None if cursor is None else cursor_number(from_cursor(cursor))


def cursor_number(text: str) -> int:
    """A number inside a cursor; raises Invalid for a number that no column can hold."""
    if not text.isdigit() or len(text) > CURSOR_DIGITS_MAX:
        raise _bad_cursor()
    return int(text)


def _bad_cursor() -> Invalid:
    errors = [{"field": "cursor", "message": "must be the next_cursor of an answer"}]
    return Invalid("the query cannot be taken as it is", errors=errors)


def moment_or_none(microseconds: int | None) -> str | None:
    """The moment in UTC; None for None."""
    return None if microseconds is None else moment_text(microseconds)


def parsed(text: str | None, default: Any = None) -> Any:
    """The value of a JSON column; `default` for NULL."""
    return default if text is None else json.loads(text)


def by_resource(campaign: Campaign, amounts: Sequence[int] | None) -> dict[str, float]:
    """Amounts in millionths by resource; empty for no amounts."""
    if not amounts:
        return {}
    return {resource: amount(micros) for resource, micros in zip(campaign.resources, amounts, strict=True)}


def by_resource_or_none(campaign: Campaign, amounts: Sequence[int] | None) -> dict[str, float] | None:
    """Amounts in millionths by resource; None for None."""
    return None if amounts is None else by_resource(campaign, amounts)


def last_prices(connection: Connection, numbers: Sequence[int] | Select[Any]) -> LastPrices:
    """The stored prices at the last decision of each campaign; None before the first decision."""
    decision, state = tables.decision, tables.campaign_state
    last = (
        select(decision.c.prices)
        .where(decision.c.campaign == state.c.campaign)
        .order_by(decision.c.sequence.desc())
        .limit(1)
        .scalar_subquery()
    )
    rows = connection.execute(select(state.c.campaign, last).where(state.c.campaign.in_(numbers)))
    return {row[0]: row[1] for row in rows}


def prices(campaign: Campaign, stored: bytes | None) -> dict[str, float]:
    """λ by resource, per unit of it; empty before the first decision."""
    if stored is None:
        return {}
    per_max_cost = np.frombuffer(stored, dtype="<f8").tolist()
    units = [cost / ONE for cost in campaign.units]
    return {name: price / unit for name, price, unit in zip(campaign.resources, per_max_cost, units, strict=True)}
