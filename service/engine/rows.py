"""The rows that a transaction of the engine reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, select

from service.domain.ledger import Account
from service.domain.status import DecisionRecord
from service.engine.changes import LockedCampaign
from service.store import tables
from service.store.lookup import Lookup
from service.store.statements import Prepared

_account, _campaign, _decision = tables.account, tables.campaign, tables.decision
_hold, _outcome, _state = tables.hold, tables.outcome, tables.campaign_state
_NUMBER: BindParameter[int] = bindparam("number")

_ACCOUNTS = Prepared(
    lambda among: (
        select(_account).where(among.has(_account.c.campaign)).order_by(_account.c.campaign, _account.c.resource)
    )
)
_CREATION_TIMES = Prepared(
    lambda among: select(_campaign.c.number, _campaign.c.created_at).where(among.has(_campaign.c.number))
)
_DECISIONS = Lookup(_decision, "decision_id")
_DECISIONS_BY_SEQUENCE = Prepared(
    lambda among: (
        select(_decision)
        .where(_decision.c.campaign == _NUMBER, among.has(_decision.c.sequence))
        .order_by(_decision.c.sequence)
    )
)
_OUTCOMES = Lookup(_outcome, "decision")


def accounts(connection: Connection, numbers: Sequence[int]) -> dict[int, list[Account]]:
    """The accounts of campaigns, in the order of their resources."""
    found: dict[int, list[Account]] = defaultdict(list)
    for row in _ACCOUNTS.fetch(connection, numbers):
        found[row["campaign"]].append(Account(row["granted"], row["held"], row["spent"], row["overrun"]))
    return found


def creation_times(connection: Connection, numbers: Sequence[int]) -> dict[int, int]:
    """When campaigns were created."""
    return {row["number"]: row["created_at"] for row in _CREATION_TIMES.fetch(connection, numbers)}


def decisions(connection: Connection, wanted: Mapping[int, Collection[str]]) -> dict[int, dict[str, Any]]:
    """The decisions of these ids, by the number of their campaign."""
    found: dict[int, dict[str, Any]] = {number: {} for number in wanted}
    pairs = [(number, each) for number, ids in wanted.items() for each in dict.fromkeys(ids)]
    for row in _DECISIONS.fetch(connection, pairs):
        found[row["campaign"]][row["decision_id"]] = row
    return found


def records(connection: Connection, locked: LockedCampaign, known: Mapping[str, Any]) -> dict[str, DecisionRecord]:
    """Returns these decisions of the campaign with their outcomes, by their ids."""
    return {record.row["decision_id"]: record for record in _folded(connection, locked, list(known.values()))}


def records_by_sequence(
    connection: Connection, locked: LockedCampaign, sequences: Sequence[int]
) -> list[DecisionRecord]:
    """Returns the decisions of these sequence numbers with their outcomes."""
    if not sequences:
        return []
    rows = _DECISIONS_BY_SEQUENCE.fetch(connection, sequences, number=locked.campaign.number)
    return _folded(connection, locked, rows)


def _folded(connection: Connection, locked: LockedCampaign, rows: Sequence[Any]) -> list[DecisionRecord]:
    if not rows:
        return []
    found = _OUTCOMES.fetch(connection, [(locked.campaign.number, row["sequence"]) for row in rows])
    by_decision: dict[int, list[Any]] = defaultdict(list)
    for one in [*sorted(found, key=itemgetter("sequence")), *locked.rows.get("outcome", ())]:
        by_decision[one["decision"]].append(one)
    return [DecisionRecord.of(row, by_decision[row["sequence"]]) for row in rows]


def due_holds(connection: Connection, now: int, most: int, *, besides: Collection[int] = ()) -> dict[int, list[int]]:
    """The earliest `most` decisions whose holds are past their time, by campaign; none of the campaigns `besides`."""
    due = select(_hold.c.campaign, _hold.c.decision).where(_hold.c.expires_at <= now)
    if besides:
        due = due.where(_hold.c.campaign.not_in(besides))
    found: dict[int, list[int]] = defaultdict(list)
    for number, decision in connection.execute(due.order_by(_hold.c.expires_at).limit(most)):
        found[number].append(decision)
    return found
