"""Every decision with its outcome, oldest first, page by page: as much memory for a million as for a thousand."""

from __future__ import annotations

import csv
import io
from typing import Any

import orjson
from sqlalchemy import Connection, select

from service.engine.campaign import Campaign
from service.engine.settling import Standing
from service.store import tables
from service.store.reads.log import decided, request_of, standings_of
from service.store.reads.shared import Seen, seen

EXPORT_ROWS_MAX = 500
FORMATS = {"jsonl": "application/jsonl", "csv": "text/csv"}

_PLAIN_COLUMNS = (
    "decision_id",
    "campaign_id",
    "round",
    "decided_at",
    "arm",
    "reason",
    "probability",
    "policy_version",
    "config_version",
    "expires_at",
    "status",
    "reward",
    "learned",
)
_JSON_COLUMNS = ("context", "exclude", "actions")


def export_start(connection: Connection, campaign_id: str) -> Seen:
    """What an export is of: everything logged until now, and nothing that comes while it runs."""
    return seen(connection, campaign_id)


def export_page(connection: Connection, one: Seen, form: str, after: int) -> tuple[bytes, int | None]:
    """The next part of an export, and after which number the one behind it begins; None when this was the last."""
    decision = tables.decision
    rows = (
        connection.execute(
            select(decision)
            .where(
                decision.c.campaign == one.campaign.number,
                decision.c.sequence > after,
                decision.c.sequence <= one.sequence,
            )
            .order_by(decision.c.sequence)
            .limit(EXPORT_ROWS_MAX)
        )
        .mappings()
        .all()
    )
    records = [_record(one.campaign, standing) for standing in standings_of(connection, one, rows)]
    text = _as_csv(one.campaign, records, header=after == 0) if form == "csv" else _as_lines(records)
    return text, rows[-1]["sequence"] if len(rows) == EXPORT_ROWS_MAX else None


def _record(campaign: Campaign, standing: Standing) -> dict[str, Any]:
    learned = any(outcome["taught"] is not None for outcome in standing.outcomes)
    return {**decided(campaign, standing), **request_of(standing.row), "learned": learned}


def _as_lines(records: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records)


def _as_csv(campaign: Campaign, records: list[dict[str, Any]], *, header: bool) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    if header:
        amounts = [f"{part}.{name}" for part in ("hold", "cost") for name in campaign.resources]
        writer.writerow([*_PLAIN_COLUMNS, *_JSON_COLUMNS, *amounts])
    for record in records:
        writer.writerow(
            [
                *(record[name] for name in _PLAIN_COLUMNS),
                *(orjson.dumps(record[name]).decode() for name in _JSON_COLUMNS),
                *(record["hold"].get(name) for name in campaign.resources),
                *((record["costs"] or {}).get(name) for name in campaign.resources),
            ]
        )
    return text.getvalue().encode()
