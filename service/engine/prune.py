"""Old decisions out of the log, with an opening balance in their place.

PruneError
├── PruneRefused     the log does not lead to what was decided, or nobody knows its rules: nothing may be taken out
└── PruneDisturbed   another process pruned the same campaign, or keeps it locked

What goes is finished: no hold, nothing heard of it after the given time, its late window over. First the policy's state
is folded up to where the log will be whole again, without a lock, and stored in the opening; only then rows go, a few
hundred decisions in each transaction, which adds them to the opening's sums. So accounts, counts and the model follow
from what is stored at any moment, whenever the process ends. The newest decision stays: prices are read from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Connection, Select, delete, exists, func, insert, select, update

from cbwk_core import RULES_KNOWN
from service.engine.administer import write_audit
from service.engine.cache import load_campaign
from service.engine.changes import Work
from service.engine.log_fold import LOG, Event, advance, beginning, events
from service.engine.stage_one import unended
from service.problems import UnknownRules
from service.store import tables
from service.store.database import Database
from service.store.opening_balance import Opening, opening_of
from service.times import MICROS_PER_SECOND

# Decisions that one transaction takes out.
DECISIONS_MAX = 500
# The engine holds a campaign's lock for milliseconds: who cannot have it in so many tries meets something else.
LOCK_TRIES = 20
LOCK_TIMEOUT_MS = 500
TOLERANCE = 1e-9

Advanced = Callable[[str, int, int], None]  # what is done, how much of it, of how much


class PruneError(Exception):
    """A campaign that cannot be pruned; the message is one line."""


class PruneRefused(PruneError):  # noqa: N818
    """The log does not lead to what was decided, or the rules of the campaign are not known."""


class PruneDisturbed(PruneError):  # noqa: N818
    """Another process is in the way."""


@dataclass(frozen=True, slots=True)
class Prunable:
    """What of a campaign would go."""

    number: int
    campaign_id: str
    through: int  # the last number of the log before the given time
    pruned_through: int  # what an earlier pruning reached
    heard_before: int  # microseconds; what expired, was voided or came late since then may still be heard of
    decisions: int
    outcomes: int


def prunable(database: Database, number: int, before: int) -> Prunable:
    """Count what is finished and older than `before`, in microseconds since 1970. Raises PruneRefused."""
    state, decision, outcome = tables.campaign_state, tables.decision, tables.outcome
    with database.read() as connection:
        row = connection.execute(select(state).where(state.c.campaign == number)).mappings().one()
        campaign = load_campaign(connection, number, row["config_version"])
        if campaign.rules not in RULES_KNOWN:
            raise PruneRefused(f"{campaign.id} cannot be pruned: {UnknownRules(campaign.rules).detail}")
        window = campaign.config["feedback"]["late_window_seconds"] * MICROS_PER_SECOND
        heard_before = database.now_micros(connection) - window
        # Stage one is concluded from its decisions: until then they stay.
        through = 0 if unended(connection, row) is not None else _reached(connection, number, before)
        where = _finished(number, through, heard_before)
        decisions = connection.execute(select(func.count()).select_from(decision).where(*where)).scalar_one()
        outcomes = connection.execute(
            select(func.count()).where(
                outcome.c.campaign == number, outcome.c.decision.in_(select(decision.c.sequence).where(*where))
            )
        ).scalar_one()
    return Prunable(number, campaign.id, through, row["pruned_through"], heard_before, decisions, outcomes)


def _reached(connection: Connection, number: int, before: int) -> int:
    """The last number of the log before a time. Times never go back in it, and a transaction has but one."""
    found = [0]
    for name, table in LOG.items():
        at = table.c.decided_at if name == "decision" else table.c.at
        last = (
            select(table.c.sequence)
            .where(table.c.campaign == number, at < before)
            .order_by(table.c.sequence.desc())
            .limit(1)
        )
        found.append(connection.execute(last).scalar() or 0)
    return max(found)


def _finished(number: int, through: int, heard_before: int) -> tuple[ColumnElement[bool], ...]:
    decision, outcome, hold = tables.decision, tables.outcome, tables.hold
    of_it = (outcome.c.campaign == decision.c.campaign, outcome.c.decision == decision.c.sequence)
    newest = select(func.max(decision.c.sequence)).where(decision.c.campaign == number).scalar_subquery()
    return (
        decision.c.campaign == number,
        decision.c.sequence <= through,
        decision.c.sequence < newest,
        ~exists().where(
            hold.c.expires_at == decision.c.expires_at,
            hold.c.campaign == decision.c.campaign,
            hold.c.decision == decision.c.sequence,
        ),
        ~exists().where(*of_it, outcome.c.sequence > through),
        ~exists().where(*of_it, outcome.c.kind != "reported", outcome.c.at > heard_before),
    )


def prune(database: Database, wanted: Prunable, *, actor: str, advanced: Advanced) -> tuple[int, int]:
    """Take out what `prunable` found; returns how many decisions and outcomes went. Raises a `PruneError`."""
    if not wanted.decisions:
        return 0, 0
    through = max(wanted.through, wanted.pruned_through)
    if through > wanted.pruned_through:
        work = _folded(database, wanted, advanced)
        with _locked(database, wanted, wanted.pruned_through) as connection:
            _open(connection, work, wanted)
    gone, after, told = [0, 0], 0, False
    while candidates := _candidates(database, wanted, after):
        with _locked(database, wanted, through) as connection:
            if not told:
                body = {"through": through, "decisions": wanted.decisions}
                now = database.now_micros(connection)
                write_audit(connection, now, actor, "campaign.prune", wanted.campaign_id, body)
            decisions, outcomes = _take_out(connection, wanted, candidates)
        gone, after, told = [gone[0] + decisions, gone[1] + outcomes], candidates[-1], True
        advanced("delete", gone[0], max(gone[0], wanted.decisions))
    return gone[0], gone[1]


def _folded(database: Database, wanted: Prunable, advanced: Advanced) -> Work:
    """The campaign at the last number before the time, after every decision before it was checked against its state."""
    work = beginning(database, wanted.number)
    after = work.sequence
    for event in events(database, wanted.number, after, wanted.through):
        if event.first != work.sequence + 1 or (event.table == "decision" and not _fits(work, event)):
            raise PruneRefused(
                f"the log of {wanted.campaign_id} does not lead to what was decided at number {event.first}: "
                "see cbwk replay"
            )
        advance(database, work, event)
        advanced("fold", work.sequence - after, wanted.through - after)
    return work


def _fits(work: Work, event: Event) -> bool:
    """Whether the folded state asks the prices that were asked."""
    row = event.rows[0]
    prices = np.frombuffer(row["prices"], dtype="<f8")
    asked = work.campaign.policy.quote(work.state).prices[0]
    return work.policy_version == row["policy_version"] and np.allclose(prices, asked, rtol=TOLERANCE, atol=TOLERANCE)


@contextmanager
def _locked(database: Database, wanted: Prunable, through: int) -> Iterator[Connection]:
    """One transaction with the campaign's lock, as the engine takes it."""
    for _ in range(LOCK_TRIES):
        with database.write() as connection:
            rows = database.lock_rows(connection, [wanted.number], timeout_ms=LOCK_TIMEOUT_MS)
            if rows:
                if rows[0]["pruned_through"] != through:
                    raise PruneDisturbed(f"another process pruned {wanted.campaign_id} meanwhile; try again")
                yield connection
                return
        time.sleep(0.05)
    raise PruneDisturbed(f"another process keeps {wanted.campaign_id} locked; try again")


def _open(connection: Connection, work: Work, wanted: Prunable) -> None:
    """Write the opening, with which the log may have gaps up to its number; snapshots before it lead nowhere then."""
    number, opening, snapshot, state = wanted.number, tables.opening, tables.snapshot, tables.campaign_state
    begun = {
        "through": work.sequence,
        "config_version": work.campaign.version,
        "model_version": work.model_version,
        "state": work.campaign.policy.encode(work.state),
    }
    if opening_of(connection, number) is None:
        sums = Opening(work.sequence, spent=(0,) * len(work.campaign.resources))
        connection.execute(insert(opening).values(campaign=number, **begun, **sums.columns()))
    else:
        connection.execute(update(opening).where(opening.c.campaign == number).values(**begun))
    connection.execute(update(state).where(state.c.campaign == number).values(pruned_through=work.sequence))
    connection.execute(delete(snapshot).where(snapshot.c.campaign == number, snapshot.c.sequence < work.sequence))


def _candidates(database: Database, wanted: Prunable, after: int) -> list[int]:
    """The next decisions to go, looked for without the lock: among many it may take a while to find them."""
    decision = tables.decision
    query = (
        select(decision.c.sequence)
        .where(*_finished(wanted.number, wanted.through, wanted.heard_before), decision.c.sequence > after)
        .order_by(decision.c.sequence)
        .limit(DECISIONS_MAX)
    )
    with database.read() as connection:
        return list(connection.execute(query).scalars())


def _take_out(connection: Connection, wanted: Prunable, candidates: Sequence[int]) -> tuple[int, int]:
    """These decisions and their outcomes go, unless something was heard of one meanwhile: how many went."""
    number, decision, outcome, opening = wanted.number, tables.decision, tables.outcome, tables.opening
    columns = (decision.c.sequence, decision.c.arm_id, decision.c.decided_at)
    finished = _finished(number, wanted.through, wanted.heard_before)
    decisions = _rows(connection, select(*columns).where(*finished, decision.c.sequence.in_(candidates)))
    if not decisions:
        return 0, 0
    sequences = [row["sequence"] for row in decisions]
    theirs = (outcome.c.campaign == number, outcome.c.decision.in_(sequences))
    # Asked for this order, SQLite would walk through the campaign's whole log.
    outcomes = sorted(_rows(connection, select(outcome).where(*theirs)), key=itemgetter("sequence"))
    before = opening_of(connection, number)
    assert before is not None, "rows go only once there is an opening"
    connection.execute(delete(outcome).where(*theirs))
    connection.execute(delete(decision).where(decision.c.campaign == number, decision.c.sequence.in_(sequences)))
    sums = before.plus(decisions, outcomes).columns()
    connection.execute(update(opening).where(opening.c.campaign == number).values(**sums))
    return len(decisions), len(outcomes)


def _rows(connection: Connection, query: Select[Any]) -> list[Any]:
    return list(connection.execute(query).mappings())
