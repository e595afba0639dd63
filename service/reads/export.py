"""Every decision with its outcome, oldest first, page by page: as much memory for a million as for a thousand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from service.domain.campaign import Campaign
from service.engine.settle import Standing
from service.reads.formats import FORMATS, Exported, Form
from service.reads.log import decided, request_of, standings_of
from service.reads.shared import Seen, seen
from service.store import tables

__all__ = ["EXPORT_ROWS_MAX", "FORMATS", "Export", "export_page", "export_start"]

EXPORT_ROWS_MAX = 500


@dataclass(frozen=True, slots=True)
class Export:
    """An export under way: of everything logged until it began, and nothing that comes while it runs."""

    one: Seen
    form: Form

    def end(self) -> Iterable[bytes]:
        """What comes after the last page."""
        return self.form.end()


def export_start(connection: Connection, campaign_id: str, form: str) -> Export:
    """Begin one; a Problem if the form cannot be had here."""
    one, wanted = seen(connection, campaign_id), FORMATS[form]
    return Export(one, wanted.begin(one.campaign, _learnt(connection, one) if wanted.counts else 0))


def _learnt(connection: Connection, one: Seen) -> int:
    """How many decisions for the campaign's own arms were learnt from."""
    decision, outcome = tables.decision, tables.outcome
    return int(
        connection.execute(
            select(func.count())
            .select_from(outcome)
            .join(decision, (decision.c.campaign == outcome.c.campaign) & (decision.c.sequence == outcome.c.decision))
            .where(
                outcome.c.campaign == one.campaign.number,
                outcome.c.sequence <= one.sequence,
                outcome.c.taught.is_not(None),
                decision.c.actions.is_(None),
            )
        ).scalar_one()
    )


def export_page(connection: Connection, export: Export, after: int) -> tuple[bytes, int | None]:
    """The next part of an export, and after which number the one behind it begins; None when this was the last."""
    decision, one = tables.decision, export.one
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
    found = [
        Exported(_record(one.campaign, standing, one.sequence), standing.row)
        for standing in standings_of(connection, one, rows)
    ]
    return export.form.page(found), rows[-1]["sequence"] if len(rows) == EXPORT_ROWS_MAX else None


def _record(campaign: Campaign, standing: Standing, until: int) -> dict[str, Any]:
    learned = any(outcome["taught"] is not None and outcome["sequence"] <= until for outcome in standing.outcomes)
    return {**decided(campaign, standing), **request_of(standing.row), "learned": learned}
