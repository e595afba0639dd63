"""Pruning: deletes old decisions from the log and leaves an opening balance in their place.

A decision is deleted once it is finished: it has no hold, no outcome after the given time, and its late window is over.
First the policy's state is folded, without a lock, up to the last pruned sequence number and stored in the opening.
Then each transaction deletes a few hundred decisions and adds them to the sums of the opening. So the accounts, the
counts and the model follow from the stored rows at any moment. The newest decision stays: reads take prices from it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, select, update

from cbwk_core import RULES_KNOWN
from service.domain.portfolio import Call
from service.engine.administer import write_audit
from service.engine.cache import load_campaign
from service.engine.changes import LockedCampaign
from service.engine.log_fold import LOG, Event, advance, beginning, events, is_near
from service.engine.portfolio_config import places_of
from service.engine.stage_one import is_unended
from service.problems import UnknownRules
from service.store import tables
from service.store.campaigns import portfolio_of
from service.store.database import Database
from service.store.opening_balance import Opening, opening_of
from service.times import MICROS_PER_SECOND

# Decisions that one transaction deletes.
DECISIONS_MAX = 500
# The engine holds a campaign's lock for milliseconds: after this many attempts, something else holds it.
LOCK_TRIES = 20
LOCK_TIMEOUT_MS = 500

Advanced = Callable[[str, int, int], None]  # called with the step, the amount done and the amount to do


class PruneError(Exception):
    """A campaign that cannot be pruned; the message is one line that says why."""


class Prunable(NamedTuple):
    """What pruning a campaign would delete."""

    number: int
    campaign_id: str
    through: int  # the last sequence number before the given time
    pruned_through: int  # the last sequence number of an earlier pruning
    closed_before: int  # microseconds; the late window of what expired or was voided since then is still open
    decisions: int
    outcomes: int


def prunable(database: Database, number: int, before: int) -> Prunable:
    """Counts what is finished and older than `before`, in microseconds since 1970. Raises PruneError."""
    state, decision, outcome = tables.campaign_state, tables.decision, tables.outcome
    with database.read() as connection:
        row = connection.execute(select(state).where(state.c.campaign == number)).mappings().one()
        campaign = load_campaign(connection, number, row["config_version"])
        if campaign.rules not in RULES_KNOWN:
            raise PruneError(f"{campaign.id} cannot be pruned: {UnknownRules(campaign.rules).detail}")
        window = campaign.config["feedback"]["late_window_seconds"] * MICROS_PER_SECOND
        closed_before = database.now_micros(connection) - window
        # The decisions of stage one are its sample: they stay until it is ended.
        through = 0 if is_unended(connection, campaign) else _reached(connection, number, before)
        where = _finished(number, through, closed_before)
        decisions = connection.execute(select(func.count()).select_from(decision).where(*where)).scalar_one()
        of_them = (outcome.c.campaign == number, outcome.c.decision.in_(select(decision.c.sequence).where(*where)))
        outcomes = connection.execute(select(func.count()).where(*of_them)).scalar_one()
    return Prunable(number, campaign.id, through, row["pruned_through"], closed_before, decisions, outcomes)


def _reached(connection: Connection, number: int, before: int) -> int:
    """Returns the last sequence number before a time. Times in the log never decrease, and a transaction has one."""
    found = 0
    for name, table in LOG.items():
        at = table.c.decided_at if name == "decision" else table.c.at
        query = select(table.c.sequence).where(table.c.campaign == number, at < before)
        found = max(found, connection.execute(query.order_by(table.c.sequence.desc()).limit(1)).scalar() or 0)
    return found


def _finished(number: int, through: int, closed_before: int) -> tuple[ColumnElement[bool], ...]:
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
        ~exists().where(*of_it, outcome.c.kind != "reported", outcome.c.at > closed_before),
    )


def prune(database: Database, wanted: Prunable, *, actor: str, advanced: Advanced) -> tuple[int, int]:
    """Deletes what `prunable` found. Returns the numbers of decisions and outcomes deleted. Raises a `PruneError`."""
    if not wanted.decisions:
        return 0, 0
    through = max(wanted.through, wanted.pruned_through)
    if through > wanted.pruned_through:
        locked = _folded(database, wanted, advanced)
        with _lock(database, wanted, wanted.pruned_through) as connection:
            _open(connection, locked, wanted)
    decisions, outcomes, after = 0, 0, 0
    while candidates := _candidates(database, wanted, after):
        with _lock(database, wanted, through) as connection:
            if not after:
                body = {"through": through, "decisions": wanted.decisions}
                now = database.now_micros(connection)
                write_audit(connection, now, actor, "campaign.prune", wanted.campaign_id, body)
            deleted = _delete(connection, wanted, candidates)
        decisions, outcomes, after = decisions + deleted[0], outcomes + deleted[1], candidates[-1]
        advanced("delete", decisions, max(decisions, wanted.decisions))
    return decisions, outcomes


def _folded(database: Database, wanted: Prunable, advanced: Advanced) -> LockedCampaign:
    """Returns the campaign at `wanted.through`, and checks every decision up to there against the folded state."""
    locked = beginning(database, wanted.number)
    after = locked.sequence
    with database.read() as connection:
        places = places_of(connection, locked.campaign)
    for event in events(database, wanted.number, after, wanted.through):
        if event.first != locked.sequence + 1 or (event.table == "decision" and not _fits(locked, event, places)):
            reason = f"does not lead to what was decided at number {event.first}: see cbwk replay"
            raise PruneError(f"the log of {wanted.campaign_id} {reason}")
        advance(database, locked, event)
        advanced("fold", locked.sequence - after, wanted.through - after)
    return locked


def _fits(locked: LockedCampaign, event: Event, places: Sequence[int | None]) -> bool:
    """Whether the folded state has the stored prices, to which its portfolio may have added some."""
    row, policy = event.rows[0], locked.campaign.policy
    prices = np.frombuffer(row["prices"], dtype="<f8")
    folded = policy.quote(locked.state).prices[0]
    if event.portfolio_call is not None:
        call = Call.read(event.portfolio_call["call"], event.portfolio_call["numbers"])
        folded = folded + np.array(call.prices(locked.campaign, places)) * policy.problem.unit
    return locked.policy_version == row["policy_version"] and is_near(prices, folded)


@contextmanager
def _lock(database: Database, wanted: Prunable, through: int) -> Iterator[Connection]:
    """Opens a transaction with the campaign's lock, as the engine takes it."""
    for _ in range(LOCK_TRIES):
        with database.write() as connection:
            portfolio = portfolio_of(connection, wanted.number)
            shared, timeout = [] if portfolio is None else [portfolio], LOCK_TIMEOUT_MS
            is_free = len(database.lock_rows(connection, shared, timeout_ms=timeout, portfolios=True)) == len(shared)
            rows = database.lock_rows(connection, [wanted.number], timeout_ms=timeout) if is_free else []
            if rows:
                if rows[0]["pruned_through"] != through:
                    raise PruneError(f"another process has just pruned {wanted.campaign_id}; try again")
                yield connection
                return
        time.sleep(0.05)
    raise PruneError(f"another process keeps {wanted.campaign_id} locked; try again")


def _open(connection: Connection, locked: LockedCampaign, wanted: Prunable) -> None:
    """Writes the opening, up to which the log may have gaps, and deletes the snapshots before it."""
    number, opening, snapshot, state = wanted.number, tables.opening, tables.snapshot, tables.campaign_state
    start = {
        "through": locked.sequence,
        "config_version": locked.campaign.version,
        "model_version": locked.model_version,
        "state": locked.campaign.policy.encode(locked.state),
        "limits": json.dumps(locked.ledger.limits) if locked.ledger.limits else None,
    }
    if opening_of(connection, number) is None:
        sums = Opening(locked.sequence, spent=(0,) * len(locked.campaign.resources))
        connection.execute(insert(opening).values(campaign=number, **start, **sums.columns()))
    else:
        connection.execute(update(opening).where(opening.c.campaign == number).values(**start))
    connection.execute(update(state).where(state.c.campaign == number).values(pruned_through=locked.sequence))
    connection.execute(delete(snapshot).where(snapshot.c.campaign == number, snapshot.c.sequence < locked.sequence))
    # The newest call of the portfolio stays: its number is that of the portfolio.
    call, shared = tables.portfolio_call, tables.portfolio_state
    newest = select(shared.c.call).where(shared.c.campaign == portfolio_of(connection, number)).scalar_subquery()
    of_campaign = (call.c.campaign == number, call.c.sequence <= locked.sequence)
    connection.execute(delete(call).where(*of_campaign, call.c.call != newest))


def _candidates(database: Database, wanted: Prunable, after: int) -> list[int]:
    """Returns the next decisions to delete, read without the lock because the search may take long."""
    decision = tables.decision
    query = (
        select(decision.c.sequence)
        .where(*_finished(wanted.number, wanted.through, wanted.closed_before), decision.c.sequence > after)
        .order_by(decision.c.sequence)
        .limit(DECISIONS_MAX)
    )
    with database.read() as connection:
        return list(connection.execute(query).scalars())


def _delete(connection: Connection, wanted: Prunable, candidates: Sequence[int]) -> tuple[int, int]:
    """Deletes the candidates that are still finished, with their outcomes. Returns both numbers."""
    number, decision, outcome, opening = wanted.number, tables.decision, tables.outcome, tables.opening
    finished = _finished(number, wanted.through, wanted.closed_before)
    query = select(decision.c.sequence, decision.c.arm_id, decision.c.decided_at)
    query = query.where(*finished, decision.c.sequence.in_(candidates))
    decisions = connection.execute(query).mappings().all()
    if not decisions:
        return 0, 0
    sequences = [row["sequence"] for row in decisions]
    theirs = (outcome.c.campaign == number, outcome.c.decision.in_(sequences))
    # Sorted here: with ORDER BY, SQLite would read the campaign's whole log.
    outcomes = sorted(connection.execute(select(outcome).where(*theirs)).mappings(), key=itemgetter("sequence"))
    before = opening_of(connection, number)
    assert before is not None, "the opening is written before rows are deleted"
    connection.execute(delete(outcome).where(*theirs))
    connection.execute(delete(decision).where(decision.c.campaign == number, decision.c.sequence.in_(sequences)))
    sums = before.plus(decisions, outcomes).columns()
    connection.execute(update(opening).where(opening.c.campaign == number).values(**sums))
    _keep_window_sums(connection, number, decisions, outcomes)
    portfolio = portfolio_of(connection, number)
    if portfolio is not None:
        version = connection.execute(
            select(func.max(tables.config.c.version)).where(tables.config.c.campaign == number)
        )
        places = places_of(connection, load_campaign(connection, number, version.scalar_one()))
        _keep_window_sums(connection, portfolio, decisions, outcomes, places)
    return len(decisions), len(outcomes)


def _keep_window_sums(
    connection: Connection,
    number: int,
    decisions: Sequence[Any],
    outcomes: Sequence[Any],
    places: Sequence[int | None] | None = None,
) -> None:
    """Adds what deleted decisions have spent to `pruned_spent` of the windows in which they were made.

    The windows are those of the campaign or, with the places of its resources, of its portfolio.
    """
    window, decided_at = tables.window_account, {row["sequence"]: row["decided_at"] for row in decisions}
    spent = [(decided_at[row["decision"]], json.loads(row["spent"])) for row in outcomes if row["spent"] is not None]
    if not spent:
        return
    times = [at for at, _ in spent]
    of_them = (window.c.campaign == number, window.c.starts_at <= max(times), window.c.ends_at > min(times))
    for row in connection.execute(select(window).where(*of_them)).mappings().all():
        if places is not None and row["resource"] not in places:
            continue
        index = row["resource"] if places is None else places.index(row["resource"])
        inside = [each[index] for at, each in spent if row["starts_at"] <= at < row["ends_at"]]
        key = [column == row[column.name] for column in window.primary_key.columns]
        connection.execute(update(window).where(*key).values(pruned_spent=row["pruned_spent"] + sum(inside)))
