"""Exports every decision with its outcome, oldest first, page by page: memory does not grow with the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from service.domain.campaign import Campaign
from service.domain.status import DecisionRecord, is_learnt
from service.reads.formats.columns import CommaSeparated, ParquetFile
from service.reads.formats.form import Exported, Form
from service.reads.formats.lines import DecisionServiceLines, JsonLines
from service.reads.formats.npz import OpenBanditArrays
from service.reads.log import decision_item, records_of, request_of
from service.reads.selection import ALL, Selection, oldest
from service.reads.shared import StoredCampaign, stored_campaign
from service.store import tables

EXPORT_ROWS_MAX = 500


class Format(NamedTuple):
    """A format: its media type, the suffix of its files, and how it begins."""

    media_type: str
    suffix: str
    # Takes the campaign and the number of decisions that were learnt from.
    begin: Callable[[Campaign, int], Form]
    counts: bool = False  # whether it needs that number


FORMATS = {
    "jsonl": Format("application/jsonl", "jsonl", lambda campaign, _: JsonLines()),
    "csv": Format("text/csv", "csv", lambda campaign, _: CommaSeparated(campaign)),
    "parquet": Format("application/vnd.apache.parquet", "parquet", lambda campaign, _: ParquetFile(campaign)),
    "obp": Format("application/zip", "npz", OpenBanditArrays, counts=True),
    "dsjson": Format("application/x-ndjson", "dsjson", lambda campaign, _: DecisionServiceLines(campaign)),
}


class Export(NamedTuple):
    """A running export of everything that was logged before it began."""

    stored: StoredCampaign
    form: Form
    selection: Selection
    numbers: range


def export_start(connection: Connection, campaign_id: str, form: str, selection: Selection = ALL) -> Export:
    """Begin an export; raises a Problem if the form is not available here."""
    stored, wanted = stored_campaign(connection, campaign_id), FORMATS[form]
    numbers = selection.numbers(connection, stored)
    learnt = _learnt(connection, stored, selection, numbers) if wanted.counts else 0
    return Export(stored, wanted.begin(stored.campaign, learnt), selection, numbers)


def _learnt(connection: Connection, stored: StoredCampaign, selection: Selection, numbers: range) -> int:
    """The number of decisions for the campaign's own arms that the oracle learnt from."""
    decision, outcome = tables.decision, tables.outcome
    query = select(func.count()).select_from(outcome).join(decision, tables.decision_of_outcome)
    query = query.where(
        outcome.c.campaign == stored.campaign.number,
        outcome.c.sequence <= stored.sequence,
        tables.is_learnt,
        decision.c.actions.is_(None),
        decision.c.sequence >= numbers.start,
        decision.c.sequence < numbers.stop,
        *selection.conditions,
    )
    return int(connection.execute(query).scalar_one())


def export_page(connection: Connection, export: Export, after: int) -> tuple[bytes, int | None]:
    """The next bytes of an export, and the number after which the next page begins; None after the last page."""
    stored = export.stored
    numbers = range(max(after + 1, export.numbers.start), export.numbers.stop)
    rows, following = oldest(connection, stored, export.selection, numbers, EXPORT_ROWS_MAX)
    exported = [
        Exported(_record(stored.campaign, record, stored.sequence), record.row)
        for record in records_of(connection, stored, rows)
    ]
    return export.form.page(exported), following


def _record(campaign: Campaign, record: DecisionRecord, until: int) -> dict[str, Any]:
    learned = any(is_learnt(outcome) and outcome["sequence"] <= until for outcome in record.outcomes)
    return {**decision_item(campaign, record), **request_of(record.row), "learned": learned}
