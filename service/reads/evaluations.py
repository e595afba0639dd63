"""Evaluations of a campaign, as they stand."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select

from service.ids import is_id
from service.problems import NotFound
from service.reads.shared import Row, from_cursor, page, seen
from service.store import tables
from service.store.database import clock_micros
from service.times import MICROS_PER_SECOND, moment_text

# A server that works on an evaluation says so every few seconds; one that has not for so long is gone.
LOST_AFTER_SECONDS = 30
_LOST = {"code": "interrupted", "message": "the server that worked on it ended"}


def evaluations(connection: Connection, campaign_id: str, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """What was asked of a campaign's log, newest first, without the results."""
    one, evaluation = seen(connection, campaign_id), tables.evaluation
    columns = [column for column in evaluation.c if column.name != "result"]
    query = select(*columns).where(evaluation.c.campaign == one.campaign.number).order_by(evaluation.c.id.desc())
    if cursor is not None:
        query = query.where(evaluation.c.id < from_cursor(cursor))
    now = clock_micros(connection)
    rows = connection.execute(query.limit(limit + 1)).mappings().all()
    return page([_view(campaign_id, row, now) for row in rows], limit, lambda item: item["id"])


def evaluation(connection: Connection, campaign_id: str, evaluation_id: str) -> dict[str, Any]:
    """One of them with its result, null until it is there."""
    one, table = seen(connection, campaign_id), tables.evaluation
    row = None
    if is_id(evaluation_id):
        row = (
            connection.execute(
                select(table).where(table.c.campaign == one.campaign.number, table.c.id == evaluation_id)
            )
            .mappings()
            .first()
        )
    if row is None:
        raise NotFound("there is no such evaluation of this campaign", kind="evaluation-not-found")
    result = None if row["result"] is None else json.loads(row["result"])
    return {**_view(campaign_id, row, clock_micros(connection)), "result": result}


def _view(campaign_id: str, row: Row, now: int) -> dict[str, Any]:
    status, error = row["status"], None if row["error"] is None else json.loads(row["error"])
    if status in ("queued", "running") and row["beat_at"] < now - LOST_AFTER_SECONDS * MICROS_PER_SECOND:
        status, error = "failed", _LOST
    return {
        "id": row["id"],
        "campaign_id": campaign_id,
        "status": status,
        "progress": round(row["progress"], 4),
        "error": error,
        "created_at": moment_text(row["created_at"]),
        "started_at": None if row["started_at"] is None else moment_text(row["started_at"]),
        "finished_at": None if row["finished_at"] is None else moment_text(row["finished_at"]),
        "request": json.loads(row["request"]),
    }
