"""The log of a campaign: movements of its accounts, and decisions with their outcomes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, or_, select

from service.domain.campaign import Campaign
from service.domain.decision_rows import answer_of, explanation_of
from service.domain.status import DecisionRecord, is_learnt
from service.ids import is_id
from service.problems import NotFound
from service.reads.selection import ALL, Selection, newest
from service.reads.shared import (
    Row,
    StoredCampaign,
    by_resource,
    by_resource_or_none,
    fetch,
    load_campaign,
    number_cursor,
    page,
    parsed,
    stored_campaign,
    to_cursor,
)
from service.store import tables
from service.store.opening_balance import opening_of
from service.times import moment_text
from service.words import no_such


def ledger(connection: Connection, campaign_id: str, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """Every movement of the accounts, newest first: the sums of all movements are the accounts."""
    stored = stored_campaign(connection, campaign_id)
    below = number_cursor(cursor) or stored.sequence + 1
    return page(movements(connection, stored, below, limit), limit, itemgetter("sequence"), dict)


def movements(
    connection: Connection, stored: StoredCampaign, below: int, limit: int, *of_grants: ColumnElement[bool]
) -> list[dict[str, Any]]:
    """The movements with a number below `below`, newest first, and at least one more than the limit if there are.

    of_grants: which grants are wanted, if not all of them.
    """
    found = [
        *_holds(connection, stored, below, limit),
        *_outcomes(connection, stored, below, limit),
        *_grants(connection, stored, below, limit, *of_grants),
        *_pruned(connection, stored, below),
    ]
    return sorted(found, key=itemgetter("sequence"), reverse=True)


def _movement(sequence: int, at: int, kind: str, **changes: Any) -> dict[str, Any]:
    blank: dict[str, Any] = {"decision_id": None, "reason": None, "granted": {}, "held": {}, "spent": {}}
    return {"sequence": sequence, "at": moment_text(at), "kind": kind, **blank, **changes}


def _newest(query: Select[Any], table: Any, stored: StoredCampaign, below: int, limit: int) -> Select[Any]:
    """The rows of the query with a number below `below`, newest first, and one more than the limit."""
    number = table.c.sequence
    query = query.where(table.c.campaign == stored.campaign.number, number < below, number <= stored.sequence)
    return query.order_by(number.desc()).limit(limit + 1)


def _holds(connection: Connection, stored: StoredCampaign, below: int, limit: int) -> list[dict[str, Any]]:
    decision = tables.decision
    query = select(decision.c.sequence, decision.c.decided_at, decision.c.decision_id, decision.c.hold)
    query = query.where(decision.c.hold.is_not(None))
    return [
        _movement(sequence, at, "hold", decision_id=decision_id, held=by_resource(stored.campaign, json.loads(hold)))
        for sequence, at, decision_id, hold in connection.execute(_newest(query, decision, stored, below, limit))
    ]


def _outcomes(connection: Connection, stored: StoredCampaign, below: int, limit: int) -> list[dict[str, Any]]:
    outcome, decision = tables.outcome, tables.decision
    columns = (outcome.c.sequence, outcome.c.at, outcome.c.kind, outcome.c.released, outcome.c.spent)
    query = select(*columns, decision.c.decision_id, decision.c.hold).join(decision, tables.decision_of_outcome)
    query = query.where(or_(outcome.c.released, outcome.c.spent.is_not(None)))
    return [
        _movement(
            row.sequence,
            row.at,
            row.kind,
            decision_id=row.decision_id,
            held=by_resource(stored.campaign, [-held for held in parsed(row.hold, ())] if row.released else None),
            spent=by_resource(stored.campaign, parsed(row.spent)),
        )
        for row in connection.execute(_newest(query, outcome, stored, below, limit))
    ]


def _grants(
    connection: Connection, stored: StoredCampaign, below: int, limit: int, *wanted: ColumnElement[bool]
) -> list[dict[str, Any]]:
    found = []
    for row in connection.execute(_newest(select(tables.grant).where(*wanted), tables.grant, stored, below, limit)):
        amounts = [row.amount if index == row.resource else 0 for index in range(len(stored.campaign.resources))]
        column = "granted" if row.kind == "budget" else "spent"
        change = {column: by_resource(stored.campaign, amounts)}
        found.append(_movement(row.sequence, row.at, row.kind, reason=row.reason, **change))
    return found


def _pruned(connection: Connection, stored: StoredCampaign, below: int) -> list[dict[str, Any]]:
    """The sums of pruned decisions, at the position of their last row."""
    opening = opening_of(connection, stored.campaign.number)
    if opening is None or not opening.decisions or opening.last_number >= below:
        return []
    reason = f"{opening.decisions} decisions pruned"
    spent = by_resource(stored.campaign, opening.spent)
    return [_movement(opening.last_number, opening.last_at, "opening", reason=reason, spent=spent)]


def decisions(
    connection: Connection,
    campaign_id: str,
    *,
    selection: Selection = ALL,
    limit: int,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Decisions with their status, newest first."""
    stored = stored_campaign(connection, campaign_id)
    rows, following = newest(connection, stored, selection, number_cursor(cursor), limit)
    records = records_of(connection, stored, rows)
    return {
        "items": [decision_item(stored.campaign, record) for record in records],
        "next_cursor": None if following is None else to_cursor(following),
    }


def decision(connection: Connection, campaign_id: str, decision_id: str) -> dict[str, Any]:
    """One decision with its request, its explanation and all its outcomes."""
    stored, table = stored_campaign(connection, campaign_id), tables.decision
    query = select(table).where(table.c.campaign == stored.campaign.number, table.c.decision_id == decision_id)
    rows = fetch(connection, query) if is_id(decision_id) else ()
    if not rows:
        raise NotFound(no_such("decision", decision_id, f" in campaign {campaign_id}"), kind="decision-not-found")
    (record,) = records_of(connection, stored, rows)
    campaign_then = load_campaign(connection, stored.campaign.number, record.row["config_version"])
    return {
        **decision_item(stored.campaign, record),
        **request_of(record.row),
        "explanation": explanation_of(campaign_then, record.row),
        "outcomes": [_outcome(stored.campaign, outcome) for outcome in record.outcomes],
    }


def records_of(connection: Connection, stored: StoredCampaign, rows: Sequence[Row]) -> list[DecisionRecord]:
    """Stored decisions with all their outcomes, in the order of the rows."""
    if not rows:
        return []
    outcome = tables.outcome
    sequences = [row["sequence"] for row in rows]
    # A range and not a list of numbers: pages may be long, and almost all rows of the range are wanted.
    wanted = outcome.c.decision.between(min(sequences), max(sequences))
    found = fetch(connection, select(outcome).where(outcome.c.campaign == stored.campaign.number, wanted))
    by_decision: dict[int, list[Row]] = defaultdict(list)
    # Sorted here: with ORDER BY, SQLite would scan the whole log of the campaign.
    for row in sorted(found, key=itemgetter("sequence")):
        by_decision[row["decision"]].append(row)
    return [DecisionRecord.of(row, by_decision[row["sequence"]]) for row in rows]


def decision_item(campaign: Campaign, record: DecisionRecord) -> dict[str, Any]:
    """The response to a decision, with its status, reward and costs."""
    row = record.row
    return {
        **answer_of(campaign, row, False),
        "sequence": row["sequence"],
        "decided_at": moment_text(row["decided_at"]),
        "status": "null" if row["arm_id"] is None else record.status,
        "reward": record.reward,
        "costs": by_resource_or_none(campaign, record.booked if record.costs is None else record.costs),
    }


def request_of(row: Row) -> dict[str, Any]:
    """The request of a decision."""
    own_costs = parsed(row["max_costs"], {})
    return {
        "context": json.loads(row["context"]),
        "exclude": parsed(row["exclude"], []),
        "actions": parsed(row["actions"]),
        "max_cost": own_costs.get("max_cost"),
        "max_costs": own_costs.get("max_costs"),
        "config_version": row["config_version"],
    }


def _outcome(campaign: Campaign, row: Row) -> dict[str, Any]:
    return {
        "sequence": row["sequence"],
        "at": moment_text(row["at"]),
        "kind": row["kind"],
        "status": row["status"],
        "reward": row["reward"],
        "costs": by_resource_or_none(campaign, parsed(row["costs"])),
        "spent": by_resource_or_none(campaign, parsed(row["spent"])),
        "learned": is_learnt(row),
        "warnings": parsed(row["warnings"], []),
    }
