"""Evaluations of a campaign."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select

from service.ids import is_id
from service.problems import NotFound
from service.reads.shared import Row, fetch, from_cursor, moment_or_none, page, parsed, stored_campaign
from service.store import tables
from service.store.database import clock_micros
from service.times import MICROS_PER_SECOND, moment_text
from service.words import no_such

# A server updates the evaluations it runs every few seconds; without an update for this long it counts as lost.
LOST_AFTER_SECONDS = 30
INTERRUPTED = {"code": "interrupted", "message": "the server that worked on it ended"}
UNFINISHED = ("queued", "running")


def evaluations(connection: Connection, campaign_id: str, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """The evaluations of a campaign, newest first, without their results."""
    number, evaluation = stored_campaign(connection, campaign_id).campaign.number, tables.evaluation
    columns = [column for column in evaluation.c if column.name != "result"]
    query = select(*columns).where(evaluation.c.campaign == number).order_by(evaluation.c.id.desc())
    if cursor is not None:
        query = query.where(evaluation.c.id < from_cursor(cursor))
    now = clock_micros(connection)
    rows = fetch(connection, query.limit(limit + 1))
    return page(rows, limit, lambda row: row["id"], lambda row: _item(campaign_id, row, now))


def evaluation(connection: Connection, campaign_id: str, evaluation_id: str) -> dict[str, Any]:
    """One evaluation with its result, which is null until the evaluation is done."""
    number, table = stored_campaign(connection, campaign_id).campaign.number, tables.evaluation
    query = select(table).where(table.c.campaign == number, table.c.id == evaluation_id)
    rows = fetch(connection, query) if is_id(evaluation_id) else ()
    if not rows:
        raise NotFound(no_such("evaluation", evaluation_id, f" of campaign {campaign_id}"), kind="evaluation-not-found")
    return {**_item(campaign_id, rows[0], clock_micros(connection)), "result": parsed(rows[0]["result"])}


def _item(campaign_id: str, row: Row, now: int) -> dict[str, Any]:
    status, error = row["status"], parsed(row["error"])
    if status in UNFINISHED and row["beat_at"] < now - LOST_AFTER_SECONDS * MICROS_PER_SECOND:
        status, error = "failed", INTERRUPTED
    return {
        "id": row["id"],
        "campaign_id": campaign_id,
        "status": status,
        "progress": round(row["progress"], 4),
        "error": error,
        "created_at": moment_text(row["created_at"]),
        "started_at": moment_or_none(row["started_at"]),
        "finished_at": moment_or_none(row["finished_at"]),
        "request": json.loads(row["request"]),
    }
