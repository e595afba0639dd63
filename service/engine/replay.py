"""Derives every decision of a campaign again from its log and compares it with the stored one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select

from cbwk_core import RULES_KNOWN
from service.domain.decision_rows import rows_of
from service.domain.ledger import Ledger
from service.domain.portfolio import Call
from service.engine import decide
from service.engine.cache import load_campaign, stored_traffic
from service.engine.changes import LockedCampaign
from service.engine.commands import Decide
from service.engine.locked_portfolio import Membership
from service.engine.log_fold import Event, advance, beginning, events, is_near
from service.engine.portfolio_config import places_of
from service.store import tables
from service.store.database import Database

# fmt: off
EXACT = (
    "sequence", "round", "place", "config_version", "policy_version", "reason", "arm", "arm_id", "hold", "expires_at",
)
# fmt: on
NEAR = ("probability", "gamma", "prices", "numbers")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where the log differs from what follows from it."""

    sequence: int
    decision_id: str | None
    what: str
    logged: Any
    derived: Any


@dataclass(frozen=True, slots=True)
class Replay:
    """How many decisions a replay derived, and the first one that differs.

    `not_derived` counts the decisions of a campaign whose rules this version does not know; they are not an error.
    """

    campaign_id: str
    after: int  # the sequence number before the first one it derived: 0, or the last pruned one
    through: int
    decisions: int
    difference: Difference | None
    rules: int
    not_derived: int = 0


def replay(database: Database, number: int, *, advanced: Callable[[int, int], None]) -> Replay:
    """Derives every decision of a campaign up to now; `advanced` gets the sequence numbers done and to do."""
    state = tables.campaign_state
    with database.read() as connection:
        row = connection.execute(select(state).where(state.c.campaign == number)).mappings().one()
        campaign = load_campaign(connection, number, row["config_version"])
        if campaign.rules not in RULES_KNOWN:
            count = select(func.count()).where(tables.decision.c.campaign == number)
            logged = connection.execute(count).scalar_one()
            return Replay(campaign.id, row["pruned_through"], row["sequence"], 0, None, campaign.rules, logged)
        places = places_of(connection, campaign)
    locked = beginning(database, number)
    after, until, derived, difference = locked.sequence, int(row["sequence"]), 0, None
    for event in events(database, number, after, until):
        if event.first != locked.sequence + 1:
            difference = _missing_row(locked)
        elif event.table == "decision":
            difference = next(_derived(locked, event, places), None)
        if difference is not None:
            break
        advance(database, locked, event)
        derived += len(event.rows) if event.table == "decision" else 0
        advanced(locked.sequence - after, until - after)
    difference = difference or _end(locked, row)
    if difference is not None and beginning(database, number).sequence > min(after, until):
        return replay(database, number, advanced=advanced)  # the missing rows were pruned during the replay
    return Replay(locked.campaign.id, after, until, derived, difference, campaign.rules)


def _missing_row(locked: LockedCampaign) -> Difference:
    return Difference(locked.sequence + 1, None, "a row of the log", None, "there is one")


def _derived(locked: LockedCampaign, event: Event, places: Sequence[int | None]) -> Iterator[Difference]:
    """Makes the decisions of one call again, from the state before them, and yields the differences.

    places: of the campaign's resources in its portfolio, if it has one.
    """
    rows, call = event.rows, event.portfolio_call
    if places and call is None:
        yield Difference(event.first, rows[0]["decision_id"], "the call of the portfolio", None, "there is one")
        return
    ledger, now = Ledger(locked.ledger.accounts, locked.ledger.limits), rows[0]["decided_at"]
    again = LockedCampaign(
        locked.campaign, locked.state, ledger, "active", locked.sequence, locked.model_version, now, locked.created_at
    )
    again.traffic = locked.traffic
    if places:
        again.member = Membership.of_call(places, Call.read(call["call"], call["numbers"]))
        again.ledger.share = again.member.share()
    requests = [request_of(locked, row) for row in rows]
    decide.decide(again, requests, {})
    made = [row for columns in again.decisions for row in rows_of(columns)]
    for row, other, request in zip(rows, made, requests, strict=False):
        if not request.is_answered_by(row):
            yield Difference(row["sequence"], row["decision_id"], "request", row["request_digest"].hex(), None)
        yield from _compared(row, other)
    if len(made) < len(rows):
        row = rows[len(made)]
        yield Difference(row["sequence"], row["decision_id"], "decision", row["reason"], None)


def request_of(locked: LockedCampaign, row: Any) -> Decide:
    """Returns the request of a stored decision."""
    return Decide(
        locked.campaign.id,
        row["decision_id"],
        json.loads(row["context"]),
        exclude=[] if row["exclude"] is None else json.loads(row["exclude"]),
        actions=None if row["actions"] is None else json.loads(row["actions"]),
        baseline=() if row["shadow"] is None else (json.loads(row["shadow"])["baseline"],),
        **({} if row["max_costs"] is None else json.loads(row["max_costs"])),
    )


def _compared(row: Any, other: Any) -> Iterator[Difference]:
    for name in EXACT:
        if row[name] != other[name]:
            yield Difference(row["sequence"], row["decision_id"], name, row[name], other[name])
    for name in NEAR:
        logged, derived = _floats(row[name]), _floats(other[name])
        if not is_near(logged, derived):
            yield Difference(row["sequence"], row["decision_id"], name, logged.tolist(), derived.tolist())


def _end(locked: LockedCampaign, row: Any) -> Difference | None:
    """Compares the end of the fold with the campaign's stored state."""
    if locked.sequence != row["sequence"]:
        return _missing_row(locked)
    logged, derived = locked.campaign.policy.read_books(_floats(row["books"]))[0], locked.state.books[0]
    if not is_near(logged, derived):
        return Difference(locked.sequence, None, "books", logged.tolist(), derived.tolist())
    counted, counts = stored_traffic(row), locked.traffic
    if counted is None or counts is None or (counted == counts).all():
        return None
    return Difference(locked.sequence, None, "traffic", counted.tolist(), counts.tolist())


def _floats(value: bytes | float) -> NDArray[np.float64]:
    return np.frombuffer(value, dtype="<f8") if isinstance(value, bytes) else np.array(value, dtype=np.float64)
