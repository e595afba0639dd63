"""Rows that transactions read under their locks: stored decisions, their outcomes, holds past their time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, bindparam, select

from service.domain.campaign import Campaign
from service.domain.status import DecisionRecord
from service.engine import windows
from service.engine.cache import load_campaign
from service.engine.changes import LockedCampaign
from service.engine.commands import Decide, Item
from service.store import tables
from service.store.statements import Lookup, Prepared

# The most holds that expire in one transaction.
EXPIRE_ROWS_MAX = 1_000

DECISIONS = Lookup(tables.decision, "decision_id")
_OUTCOMES = Lookup(tables.outcome, "decision")
DECISIONS_BY_SEQUENCE = Prepared(
    lambda among: (
        select(tables.decision)
        .where(tables.decision.c.campaign == bindparam("number"), among.has(tables.decision.c.sequence))
        .order_by(tables.decision.c.sequence)
    )
)


def records_of(connection: Connection, locked: LockedCampaign, rows: Sequence[Any]) -> list[DecisionRecord]:
    """These decisions of the campaign with their outcomes; the ledger gets the accounts that they are booked in."""
    if locked.campaign.windows:
        windows.read_earlier(connection, locked, rows)
    if locked.member is not None and locked.member.portfolio is not None and locked.member.portfolio.campaign.windows:
        windows.read_earlier(connection, locked.member.portfolio, rows)
    outcomes: dict[int, list[Any]] = {row["sequence"]: [] for row in rows}
    found = _OUTCOMES.fetch(connection, [(locked.campaign.number, sequence) for sequence in outcomes])
    for one in [*sorted(found, key=itemgetter("sequence")), *locked.rows.get("outcome", ())]:
        if one["decision"] in outcomes:
            outcomes[one["decision"]].append(one)
    return [DecisionRecord.of(row, outcomes[row["sequence"]]) for row in rows]


def earlier_versions(
    connection: Connection, locked: LockedCampaign, decides: Sequence[Item], existing: Mapping[str, Any]
) -> dict[int, Campaign]:
    """The older versions of the campaign in which decisions were made that requests want explained again."""
    asked = [item.command for item in decides if isinstance(item.command, Decide) and item.command.explain]
    versions = {row["config_version"] for command in asked if (row := existing.get(command.decision_id or ""))}
    return {version: load_campaign(connection, locked.campaign.number, version) for version in versions}


def due_holds(
    connection: Connection, now: int, *, besides: Collection[int], of: int | None = None
) -> dict[int, list[int]]:
    """The earliest decisions whose holds are past their time, by campaign; none of the campaigns `besides`."""
    hold = tables.hold
    due = select(hold.c.campaign, hold.c.decision).where(hold.c.expires_at <= now)
    if of is not None:
        due = due.where(hold.c.campaign == of)
    if besides:
        due = due.where(hold.c.campaign.not_in(besides))
    found: dict[int, list[int]] = defaultdict(list)
    for number, decision in connection.execute(due.order_by(hold.c.expires_at).limit(EXPIRE_ROWS_MAX)):
        found[number].append(decision)
    return found
