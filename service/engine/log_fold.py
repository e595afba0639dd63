"""A campaign as it once stood: the policy's state and the accounts, folded from the log in the log's own order.

The fold begins before the first round or, where the log was pruned, at the opening: there the policy's state is stored,
and the accounts are the sums of what is left of the log and of what was taken out. What is done here is what the engine
did when it wrote the rows, one event after the other; decisions of one call of the policy were made from one state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from cbwk_core import two_stage
from cbwk_core.model import model_of, with_model
from service.domain.ledger import Account, Ledger
from service.domain.stage_one import STAGE
from service.domain.tickets import tickets_from
from service.engine.cache import load_campaign
from service.engine.changes import Work
from service.engine.models import begun_model
from service.store import tables
from service.store.database import Database
from service.store.opening_balance import opening_state

# Numbers of the log that are read at a time.
WINDOW = 2_000
# Kinds of change that brought a configuration of their own.
CONFIGURING = ("patch", "estimate")
LOG = {name: tables.metadata.tables[name] for name in ("decision", "outcome", "grant", "change")}


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the log, or the rows of all decisions of one call of the policy."""

    table: str
    rows: Sequence[Any]
    decision: Any = None  # the row an outcome is of

    @property
    def first(self) -> int:
        """The first number of the log it has."""
        return int(self.rows[0]["sequence"])

    @property
    def last(self) -> int:
        """The last number of the log it has."""
        return int(self.rows[-1]["sequence"])


def beginning(database: Database, number: int) -> Work:
    """The campaign where its log begins to be whole."""
    with database.read() as connection:
        opening = opening_state(connection, number)
        born = connection.execute(
            select(tables.campaign.c.created_at).where(tables.campaign.c.number == number)
        ).scalar_one()
        campaign = load_campaign(connection, number, 1 if opening is None else opening["config_version"])
    state = campaign.policy.init() if opening is None else campaign.policy.decode(opening["state"])
    spent = [0] * len(campaign.resources) if opening is None else json.loads(opening["spent"])
    work = Work(
        campaign=campaign,
        state=state,
        # Granted comes with the grants, which are never taken out.
        ledger=Ledger([Account(granted=0, spent=amount, overrun=amount) for amount in spent]),
        status="active",
        sequence=0,
        model_version=1 if opening is None else opening["model_version"],
        now=born,
        created_at=born,
    )
    if opening is not None:
        for event in events(database, number, 0, opening["through"]):
            _book(work, event)
        work.sequence = opening["through"]
    return work


def events(database: Database, number: int, after: int, until: int) -> Iterator[Event]:
    """The log in (after, until], in order, with short reads: nobody waits for a long fold."""
    call: list[Any] = []
    for start in range(after, until, WINDOW):
        with database.read() as connection:
            window = _window(connection, number, start, min(start + WINDOW, until))
        for event in window:
            if call and not (event.table == "decision" and event.rows[0]["place"] > 0):
                yield Event("decision", call)
                call = []
            if event.table == "decision":
                call.append(event.rows[0])
            else:
                yield event
    if call:
        yield Event("decision", call)


def _window(connection: Connection, number: int, after: int, until: int) -> list[Event]:
    found: list[tuple[str, Any]] = []
    for name, table in LOG.items():
        rows = connection.execute(
            select(table).where(table.c.campaign == number, table.c.sequence > after, table.c.sequence <= until)
        ).mappings()
        found += [(name, row) for row in rows]
    found.sort(key=lambda one: int(one[1]["sequence"]))
    decisions = _decisions(connection, number, sorted({row["decision"] for name, row in found if name == "outcome"}))
    return [Event(name, [row], decisions[row["decision"]] if name == "outcome" else None) for name, row in found]


def _decisions(connection: Connection, number: int, sequences: Sequence[int]) -> dict[int, Any]:
    decision = tables.decision
    columns = (decision.c.sequence, decision.c.arm, decision.c.round, decision.c.context, decision.c.actions)
    rows = connection.execute(
        select(*columns, decision.c.numbers, decision.c.hold).where(
            decision.c.campaign == number, decision.c.sequence.in_(sequences)
        )
    ).mappings()
    return {row["sequence"]: row for row in rows}


def advance(database: Database, work: Work, event: Event) -> None:
    """Let an event happen again."""
    if event.table == "decision":
        work.state = work.campaign.policy.commit(work.state, tickets_from(work.campaign, event.rows))
    elif event.table == "outcome":
        _settle(work, event)
    elif event.table == "change":
        _change(database, work, event.rows[0])
    _book(work, event)
    last = event.rows[-1]
    work.sequence, work.now = event.last, last["decided_at"] if event.table == "decision" else last["at"]


def _settle(work: Work, event: Event) -> None:
    row, policy = event.rows[0], work.campaign.policy
    ticket = tickets_from(work.campaign, [event.decision])
    moved = None if row["spent"] is None else np.array([json.loads(row["spent"])], dtype=np.float64)
    if row["kind"] == "void":
        work.state = policy.cancel(work.state, ticket)
    elif row["kind"] == "late":
        if moved is not None:
            work.state = policy.correct(work.state, ticket, moved)
    elif moved is not None:
        work.state = policy.settle(work.state, ticket, np.zeros(1), moved, learn=False)
    if row["taught"] is not None:
        reward, *costs = json.loads(row["taught"])
        work.state = policy.teach(work.state, ticket, np.array([reward]), np.array([costs], dtype=np.float64))


def _change(database: Database, work: Work, row: Any) -> None:
    if row["kind"] in CONFIGURING:
        with database.read() as connection:
            newer = load_campaign(connection, work.campaign.number, work.campaign.version + 1)
        work.state = newer.policy.adopt(work.campaign.policy, work.state)
        work.campaign = newer
    elif row["kind"] == STAGE:
        radius = json.loads(row["body"])["stage"]["radius"]
        work.state = two_stage.second_stage(work.campaign.policy, work.state, np.array([radius]))
        work.model_version = json.loads(row["body"])["model_version"]
    elif row["model"] is not None:
        begun = begun_model(work.campaign, row["body"], row["model"])
        work.state = with_model(work.state._replace(stage=begun.stage), model_of(begun))
        work.model_version = json.loads(row["body"])["model_version"]


def _book(work: Work, event: Event) -> None:
    """Move the accounts alone."""
    if event.table == "decision":
        for row in event.rows:
            _move(work, held=_amounts(row["hold"]))
    elif event.table == "outcome":
        row = event.rows[0]
        freed = [-amount for amount in _amounts(event.decision["hold"])] if row["released"] else []
        _move(work, held=freed, spent=_amounts(row["spent"]))
    elif event.table == "grant":
        row = event.rows[0]
        part = "granted" if row["kind"] == "budget" else "spent"
        work.ledger.move(row["resource"], **{part: row["amount"]}, reported=True)


def _move(work: Work, *, held: Sequence[int] = (), spent: Sequence[int] = ()) -> None:
    for index in range(len(work.ledger.accounts)):
        # Whether it may overrun was asked when it happened.
        work.ledger.move(index, held=held[index] if held else 0, spent=spent[index] if spent else 0, reported=True)


def _amounts(text: str | None) -> list[int]:
    return [] if text is None else json.loads(text)
