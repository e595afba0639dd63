"""A campaign at an earlier time: the policy's state and the accounts, folded from the log in its order.

The fold starts before the first round or, if the log was pruned, at the opening: the opening stores the policy's state,
and the accounts are the sums of the remaining log and of what was pruned. The fold repeats what the engine did when it
wrote the rows, event by event; all decisions of one call of the policy start from one state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from cbwk_core import two_stage
from cbwk_core.model import model_of, with_model
from service.domain import windows
from service.domain.decision_rows import lessons_from, tickets_from
from service.domain.ledger import Account, Ledger, Limit
from service.domain.portfolio import Call
from service.domain.stage_one import STAGE
from service.domain.traffic import no_traffic, plus
from service.engine.cache import load_campaign
from service.engine.changes import LockedCampaign
from service.engine.models import begun_model
from service.store import tables
from service.store.database import Database
from service.store.opening_balance import opening_of, opening_state

# Sequence numbers that one read covers.
WINDOW = 2_000
# The same machine computes the same numbers; another one may round the last bits differently.
TOLERANCE = 1e-9
# Kinds of change that come with a new configuration.
CONFIGURING = ("patch", "estimate")
LOG = {name: tables.metadata.tables[name] for name in ("decision", "outcome", "grant", "change")}


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the log, or the rows of all decisions of one call of the policy."""

    table: str
    rows: Sequence[Any]
    decision: Any = None  # the row that an outcome belongs to
    portfolio_call: Any = None  # the row of the call, if the campaign is in a portfolio

    @property
    def first(self) -> int:
        """Its first sequence number."""
        return int(self.rows[0]["sequence"])


def beginning(database: Database, number: int) -> LockedCampaign:
    """Returns the campaign at the first sequence number from which its log is complete."""
    # One snapshot: pruning moves rows from the log into the opening.
    with database.read() as connection:
        opening = opening_state(connection, number)
        query = select(tables.campaign.c.created_at).where(tables.campaign.c.number == number)
        created_at = connection.execute(query).scalar_one()
        campaign = load_campaign(connection, number, 1 if opening is None else opening["config_version"])
        state = campaign.policy.init() if opening is None else campaign.policy.decode(opening["state"])
        spent = [0] * len(campaign.resources) if opening is None else json.loads(opening["spent"])
        # The grants, which are never pruned, set `granted`.
        ledger = Ledger([Account(granted=0, spent=amount, overrun=amount) for amount in spent])
        version, through = (1, 0) if opening is None else (opening["model_version"], opening["through"])
        locked = LockedCampaign(campaign, state, ledger, "active", through, version, created_at, created_at)
        pruned = opening_of(connection, number)
        locked.traffic = no_traffic() if pruned is None else np.array(pruned.traffic)
        for start in range(0, through, WINDOW):
            for event in _window(connection, number, start, min(start + WINDOW, through)):
                _book(locked, event)
        if opening is not None and opening["limits"] is not None:
            ledger.limits = [_limit(*parts) for parts in json.loads(opening["limits"])]
    return locked


def _limit(resource: int, period: str, starts_at: int, ends_at: int, account: Sequence[int]) -> Limit:
    return Limit(resource, period, starts_at, ends_at, Account(*account))


def events(database: Database, number: int, after: int, until: int) -> Iterator[Event]:
    """Yields the log in (after, until], in order, with short reads that block no other process."""
    call: list[Any] = []
    of_portfolio: Any = None
    for start in range(after, until, WINDOW):
        with database.read() as connection:
            window = _window(connection, number, start, min(start + WINDOW, until))
        for event in window:
            if call and not (event.table == "decision" and event.rows[0]["place"] > 0):
                yield Event("decision", call, portfolio_call=of_portfolio)
                call, of_portfolio = [], None
            if event.table == "decision":
                call.append(event.rows[0])
                of_portfolio = of_portfolio or event.portfolio_call
            else:
                yield event
    if call:
        yield Event("decision", call, portfolio_call=of_portfolio)


def _window(connection: Connection, number: int, after: int, until: int) -> list[Event]:
    found: list[tuple[str, Any]] = []
    for name, table in LOG.items():
        query = select(table).where(table.c.campaign == number, table.c.sequence > after, table.c.sequence <= until)
        found += [(name, row) for row in connection.execute(query).mappings()]
    found.sort(key=lambda event: int(event[1]["sequence"]))
    decisions = _decisions(connection, number, sorted({row["decision"] for name, row in found if name == "outcome"}))
    table = tables.portfolio_call
    query = select(table).where(table.c.campaign == number, table.c.sequence > after, table.c.sequence <= until)
    calls = {row["sequence"]: row for row in connection.execute(query).mappings()}
    return [
        Event(name, [row], decisions[row["decision"]] if name == "outcome" else None, calls.get(row["sequence"]))
        for name, row in found
    ]


def _decisions(connection: Connection, number: int, sequences: Sequence[int]) -> dict[int, Any]:
    decision = tables.decision
    names = ("sequence", "arm", "round", "context", "actions", "numbers", "hold", "decided_at")
    columns = [decision.c[name] for name in names]
    query = select(*columns).where(decision.c.campaign == number, decision.c.sequence.in_(sequences))
    return {row["sequence"]: row for row in connection.execute(query).mappings()}


def free_before(
    database: Database, number: int, places: Sequence[int | None], until: int
) -> tuple[int, dict[int, list[int]]]:
    """Returns what could be held before each decision of a campaign up to `until`, by sequence number.

    That is the least of what its accounts, its windows and its portfolio had free; places: of its resources in that.
    First comes the number from which on the log is complete: there is nothing about decisions before it.
    """
    locked, found = beginning(database, number), dict[int, list[int]]()
    ledger, after = locked.ledger, locked.sequence
    for event in events(database, number, after, until):
        if event.portfolio_call is not None:
            call = Call.read(event.portfolio_call["call"], event.portfolio_call["numbers"])
            ledger.share = call.share(places)
        for row in event.rows:
            if event.table == "decision":
                found[row["sequence"]] = ledger.free()
            elif event.table == "change" and row["kind"] == windows.WINDOW:
                ledger.limits = windows.changed(ledger.limits, json.loads(row["body"]))
            _book(locked, replace(event, rows=[row]))
        ledger.share = None
    if beginning(database, number).sequence > after:  # pruned meanwhile
        return free_before(database, number, places, until)
    return after, found


def advance(database: Database, locked: LockedCampaign, event: Event) -> None:
    """Applies an event to the campaign."""
    if event.table == "decision":
        locked.state = locked.campaign.policy.commit(locked.state, tickets_from(locked.campaign, event.rows))
    elif event.table == "outcome":
        _settle(locked, event)
    elif event.table == "change":
        _change(database, locked, event.rows[0])
    _book(locked, event)
    last = event.rows[-1]
    locked.sequence, locked.now = last["sequence"], last["decided_at" if event.table == "decision" else "at"]


def _settle(locked: LockedCampaign, event: Event) -> None:
    row, policy = event.rows[0], locked.campaign.policy
    ticket = tickets_from(locked.campaign, [event.decision])
    moved = None if row["spent"] is None else np.array([json.loads(row["spent"])], dtype=np.float64)
    if row["kind"] == "void":
        locked.state = policy.cancel(locked.state, ticket)
    elif row["kind"] == "late":
        if moved is not None:
            locked.state = policy.correct(locked.state, ticket, moved)
    elif moved is not None:
        locked.state = policy.settle(locked.state, ticket, np.zeros(1), moved, learn=False)
    if row["taught"] is not None:
        locked.state = policy.teach(locked.state, ticket, *lessons_from(locked.campaign, [row]))


def _change(database: Database, locked: LockedCampaign, row: Any) -> None:
    if row["kind"] in CONFIGURING:
        with database.read() as connection:
            newer = load_campaign(connection, locked.campaign.number, locked.campaign.version + 1)
        locked.state = newer.policy.adopt(locked.campaign.policy, locked.state)
        locked.campaign = newer
    elif row["kind"] == windows.WINDOW:
        locked.ledger.limits = windows.changed(locked.ledger.limits, json.loads(row["body"]))
    elif row["kind"] == STAGE:
        radius = json.loads(row["body"])["stage"]["radius"]
        locked.state = two_stage.second_stage(locked.campaign.policy, locked.state, np.array([radius]))
        locked.model_version = json.loads(row["body"])["model_version"]
    elif row["model"] is not None:
        begun = begun_model(locked.campaign, row["body"], row["model"])
        locked.state = with_model(locked.state._replace(stage=begun.stage), model_of(begun))
        locked.model_version = json.loads(row["body"])["model_version"]


def _book(locked: LockedCampaign, event: Event) -> None:
    """Moves accounts and traffic only. `reported`: the engine checked the overrun when it wrote the row."""
    if event.table == "decision":
        assert locked.traffic is not None, "the fold counts from the beginning"
        locked.traffic = plus(locked.traffic, len(event.rows), event.rows[0]["decided_at"])
        for row in event.rows:
            locked.ledger.book(decided_at=row["decided_at"], held=_amounts(row["hold"]), reported=True)
    elif event.table == "outcome":
        row = event.rows[0]
        released = [-amount for amount in _amounts(event.decision["hold"])] if row["released"] else []
        decided_at = event.decision["decided_at"]
        locked.ledger.book(decided_at=decided_at, held=released, spent=_amounts(row["spent"]), reported=True)
    elif event.table == "grant":
        row = event.rows[0]
        column = "granted" if row["kind"] == "budget" else "spent"
        locked.ledger.move(row["resource"], **{column: row["amount"]}, reported=True)


def is_near(numbers: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Whether folded numbers are the stored ones."""
    return numbers.shape == others.shape and np.allclose(numbers, others, rtol=TOLERANCE, atol=TOLERANCE)


def _amounts(text: str | None) -> list[int]:
    return [] if text is None else json.loads(text)
