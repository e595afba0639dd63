"""The log of a campaign: movements of its accounts, decisions and what became of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, or_, select

from service.domain.campaign import Campaign
from service.domain.explanation import explanation_of
from service.engine.cache import load_campaign
from service.engine.decision_rows import answer_of
from service.engine.settle import Standing
from service.ids import is_id
from service.problems import NotFound
from service.reads.shared import Row, Seen, by_resource, number_cursor, page, seen, vector
from service.store import tables
from service.store.opening_balance import opening_of
from service.times import moment_text


def ledger(connection: Connection, campaign_id: str, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """Every movement of the accounts, newest first: the sums of all of them are the accounts."""
    one = seen(connection, campaign_id)
    below = number_cursor(cursor) or one.sequence + 1
    moved = [
        *_holds(connection, one, below, limit),
        *_outcomes(connection, one, below, limit),
        *_grants(connection, one, below, limit),
        *_pruned(connection, one, below),
    ]
    moved.sort(key=lambda item: item["sequence"], reverse=True)
    return page(moved, limit, lambda item: item["sequence"])


def _movement(sequence: int, at: int, kind: str, **parts: Any) -> dict[str, Any]:
    start = {"sequence": sequence, "at": moment_text(at), "kind": kind, "decision_id": None, "reason": None}
    return {**start, "granted": {}, "held": {}, "spent": {}, **parts}


def _between(table: Any, one: Seen, below: int) -> tuple[ColumnElement[bool], ...]:
    return (
        table.c.campaign == one.campaign.number,
        table.c.sequence < below,
        table.c.sequence <= one.sequence,
    )


def _holds(connection: Connection, one: Seen, below: int, limit: int) -> list[dict[str, Any]]:
    decision = tables.decision
    rows = connection.execute(
        select(decision.c.sequence, decision.c.decided_at, decision.c.decision_id, decision.c.hold)
        .where(*_between(decision, one, below), decision.c.hold.is_not(None))
        .order_by(decision.c.sequence.desc())
        .limit(limit + 1)
    )
    return [
        _movement(
            row.sequence,
            row.decided_at,
            "hold",
            decision_id=row.decision_id,
            held=by_resource(one.campaign, vector(row.hold)),
        )
        for row in rows
    ]


def _outcomes(connection: Connection, one: Seen, below: int, limit: int) -> list[dict[str, Any]]:
    outcome, decision = tables.outcome, tables.decision
    columns = (outcome.c.sequence, outcome.c.at, outcome.c.kind, outcome.c.released, outcome.c.spent)
    rows = connection.execute(
        select(*columns, decision.c.decision_id, decision.c.hold)
        .join(decision, (decision.c.campaign == outcome.c.campaign) & (decision.c.sequence == outcome.c.decision))
        .where(*_between(outcome, one, below), or_(outcome.c.released, outcome.c.spent.is_not(None)))
        .order_by(outcome.c.sequence.desc())
        .limit(limit + 1)
    )
    return [
        _movement(
            row.sequence,
            row.at,
            row.kind,
            decision_id=row.decision_id,
            held=by_resource(one.campaign, [-held for held in vector(row.hold) or ()] if row.released else None),
            spent=by_resource(one.campaign, vector(row.spent)),
        )
        for row in rows
    ]


def _grants(connection: Connection, one: Seen, below: int, limit: int) -> list[dict[str, Any]]:
    grant = tables.grant
    rows = connection.execute(
        select(grant).where(*_between(grant, one, below)).order_by(grant.c.sequence.desc()).limit(limit + 1)
    )
    moved = []
    for row in rows:
        amounts = [row.amount if index == row.resource else 0 for index in range(len(one.campaign.resources))]
        part = "granted" if row.kind == "budget" else "spent"
        moved.append(
            _movement(row.sequence, row.at, row.kind, reason=row.reason, **{part: by_resource(one.campaign, amounts)})
        )
    return moved


def _pruned(connection: Connection, one: Seen, below: int) -> list[dict[str, Any]]:
    """What is left of pruned decisions, in the place of the last of their rows."""
    opening = opening_of(connection, one.campaign.number)
    if opening is None or not opening.decisions or opening.last_number >= below:
        return []
    reason = f"{opening.decisions} decisions pruned"
    spent = by_resource(one.campaign, opening.spent)
    return [_movement(opening.last_number, opening.last_at, "opening", reason=reason, spent=spent)]


def decisions(connection: Connection, campaign_id: str, *, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """Decisions, newest first, each with what has become of it."""
    one = seen(connection, campaign_id)
    decision = tables.decision
    below = number_cursor(cursor) or one.sequence + 1
    rows = (
        connection.execute(
            select(decision)
            .where(*_between(decision, one, below))
            .order_by(decision.c.sequence.desc())
            .limit(limit + 1)
        )
        .mappings()
        .all()
    )
    standings = standings_of(connection, one, rows)
    sequences = {row["decision_id"]: row["sequence"] for row in rows}
    views = [decided(one.campaign, standing) for standing in standings]
    return page(views, limit, lambda item: sequences[item["decision_id"]])


def decision(connection: Connection, campaign_id: str, decision_id: str) -> dict[str, Any]:
    """One decision with its request, its explanation and all its outcomes."""
    one = seen(connection, campaign_id)
    table = tables.decision
    row = None
    if is_id(decision_id):
        row = (
            connection.execute(
                select(table).where(table.c.campaign == one.campaign.number, table.c.decision_id == decision_id)
            )
            .mappings()
            .first()
        )
    if row is None:
        raise NotFound("there is no such decision in this campaign", kind="decision-not-found")
    (standing,) = standings_of(connection, one, [row])
    then = load_campaign(connection, one.campaign.number, row["config_version"])
    return {
        **decided(one.campaign, standing),
        **request_of(row),
        "explanation": explanation_of(then, row),
        "outcomes": [_outcome(one.campaign, outcome) for outcome in standing.outcomes],
    }


def standings_of(connection: Connection, one: Seen, rows: Sequence[Row]) -> list[Standing]:
    """Stored decisions with everything that has become of them, in the order of the rows."""
    if not rows:
        return []
    outcome = tables.outcome
    sequences = [row["sequence"] for row in rows]
    found = connection.execute(
        select(outcome).where(
            outcome.c.campaign == one.campaign.number,
            # Both ends rather than each number: pages may be long, and what lies between is wanted anyway.
            outcome.c.decision.between(min(sequences), max(sequences)),
        )
    ).mappings()
    by_decision: dict[int, list[Row]] = defaultdict(list)
    # Asked for this order, SQLite would walk through the campaign's whole log.
    for row in sorted(found, key=itemgetter("sequence")):
        by_decision[row["decision"]].append(row)
    return [Standing.of(row, by_decision[row["sequence"]]) for row in rows]


def decided(campaign: Campaign, standing: Standing) -> dict[str, Any]:
    """A decision as it was answered, and what has become of it."""
    row = standing.row
    costs = standing.costs if standing.costs is not None else standing.booked
    return {
        **answer_of(campaign, row, False),
        "decided_at": moment_text(row["decided_at"]),
        "status": "null" if row["arm_id"] is None else standing.status,
        "reward": standing.reward,
        "costs": None if costs is None else by_resource(campaign, costs),
    }


def request_of(row: Row) -> dict[str, Any]:
    """What was asked."""
    return {
        "context": json.loads(row["context"]),
        "exclude": json.loads(row["exclude"]) if row["exclude"] is not None else [],
        "actions": json.loads(row["actions"]) if row["actions"] is not None else None,
        "config_version": row["config_version"],
    }


def _outcome(campaign: Campaign, row: Row) -> dict[str, Any]:
    costs, spent = vector(row["costs"]), vector(row["spent"])
    return {
        "sequence": row["sequence"],
        "at": moment_text(row["at"]),
        "kind": row["kind"],
        "status": row["status"],
        "reward": row["reward"],
        "costs": None if costs is None else by_resource(campaign, costs),
        "spent": None if spent is None else by_resource(campaign, spent),
        "learned": row["taught"] is not None,
        "warnings": json.loads(row["warnings"]) if row["warnings"] is not None else [],
    }
