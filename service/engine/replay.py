"""Every decision of a campaign derived again from its log, and compared with what was decided then."""

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
from service.engine import decide as deciding
from service.engine.cache import load_campaign
from service.engine.changes import Work
from service.engine.commands import Decide
from service.engine.decision_rows import is_same_request
from service.engine.log_fold import Event, advance, beginning, events
from service.store import tables
from service.store.database import Database

# Numbers are computed in the same order on the same machine; another one may round the last bits otherwise.
TOLERANCE = 1e-9
EXACT = (
    "sequence",
    "round",
    "place",
    "config_version",
    "policy_version",
    "reason",
    "arm",
    "arm_id",
    "hold",
    "expires_at",
)
NEAR = ("probability", "gamma")
VECTORS = ("prices", "numbers")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the log and what follows from it part."""

    sequence: int
    decision_id: str | None
    what: str
    logged: Any
    derived: Any


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay found: how many decisions it derived, and the first that came out otherwise.

    Decisions of a campaign whose rules are not known are counted in `not_derived`: nothing is found wrong with them.
    """

    campaign_id: str
    after: int  # the number of the log it began behind: 0, or where what was pruned ends
    through: int
    decisions: int
    difference: Difference | None
    rules: int
    not_derived: int = 0


def replay(database: Database, number: int, *, advanced: Callable[[int, int], None]) -> Replay:
    """Derive every decision of a campaign up to now; `advanced` is told the numbers of the log done and to do."""
    state = tables.campaign_state
    with database.read() as connection:
        row = connection.execute(select(state).where(state.c.campaign == number)).mappings().one()
        campaign = load_campaign(connection, number, row["config_version"])
        if campaign.rules not in RULES_KNOWN:
            count = select(func.count()).where(tables.decision.c.campaign == number)
            logged = connection.execute(count).scalar_one()
            return Replay(campaign.id, row["pruned_through"], row["sequence"], 0, None, campaign.rules, logged)
    work = beginning(database, number)
    after, until, derived = work.sequence, int(row["sequence"]), 0
    difference = None
    for event in events(database, number, after, until):
        difference = _gap(work, event)
        if difference is None and event.table == "decision":
            difference = next(_derived(work, event.rows), None)
        if difference is not None:
            break
        advance(database, work, event)
        derived += len(event.rows) if event.table == "decision" else 0
        advanced(work.sequence - after, until - after)
    difference = difference or _end(work, row)
    if difference is not None and _pruned_through(database, number) > after:
        return replay(database, number, advanced=advanced)  # what is missing was taken out meanwhile
    return Replay(work.campaign.id, after, until, derived, difference, campaign.rules)


def _pruned_through(database: Database, number: int) -> int:
    state = tables.campaign_state
    with database.read() as connection:
        return int(connection.execute(select(state.c.pruned_through).where(state.c.campaign == number)).scalar_one())


def _gap(work: Work, event: Event) -> Difference | None:
    if event.first == work.sequence + 1:
        return None
    return Difference(work.sequence + 1, None, "a row of the log", None, "there is one")


def _derived(work: Work, rows: Sequence[Any]) -> Iterator[Difference]:
    """What differs when the decisions of one call are made once more, from the state before them."""
    again = Work(
        campaign=work.campaign,
        state=work.state,
        ledger=Ledger(work.ledger.accounts),
        status="active",
        sequence=work.sequence,
        model_version=work.model_version,
        now=rows[0]["decided_at"],
        created_at=work.created_at,
    )
    requests = [request_of(work, row) for row in rows]
    deciding.decide(again, requests, {})
    made = [row for columns in again.changes.decisions for row in rows_of(columns)]
    for row, other, request in zip(rows, made, requests, strict=False):
        if not is_same_request(row, request):
            yield Difference(row["sequence"], row["decision_id"], "request", row["request_digest"].hex(), None)
        yield from _compared(row, other)
    if len(made) < len(rows):
        row = rows[len(made)]
        yield Difference(row["sequence"], row["decision_id"], "decision", row["reason"], None)


def request_of(work: Work, row: Any) -> Decide:
    """The request a stored decision answered."""
    return Decide(
        work.campaign.id,
        row["decision_id"],
        json.loads(row["context"]),
        exclude=[] if row["exclude"] is None else json.loads(row["exclude"]),
        actions=None if row["actions"] is None else json.loads(row["actions"]),
        baseline=() if row["shadow"] is None else (json.loads(row["shadow"])["baseline"],),
    )


def _compared(row: Any, other: Any) -> Iterator[Difference]:
    for name in EXACT:
        if row[name] != other[name]:
            yield Difference(row["sequence"], row["decision_id"], name, row[name], other[name])
    for name in (*NEAR, *VECTORS):
        logged, derived = _floats(row[name]), _floats(other[name])
        if not _near(logged, derived):
            yield Difference(row["sequence"], row["decision_id"], name, logged.tolist(), derived.tolist())


def _end(work: Work, row: Any) -> Difference | None:
    """What a whole log leads to is what the campaign goes on from."""
    if work.sequence != row["sequence"]:
        return Difference(work.sequence + 1, None, "a row of the log", None, "there is one")
    logged, derived = work.campaign.policy.read_books(_floats(row["books"]))[0], work.state.books[0]
    if _near(logged, derived):
        return None
    return Difference(work.sequence, None, "books", logged.tolist(), derived.tolist())


def _near(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def _floats(value: bytes | float) -> NDArray[np.float64]:
    return np.frombuffer(value, dtype="<f8") if isinstance(value, bytes) else np.array(value, dtype=np.float64)
