"""What a transaction of the engine reads and writes, statement by statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, delete, literal_column, select, update

from service.domain.ledger import Account
from service.engine.changes import Work
from service.engine.grouping import Kept
from service.engine.settle import Standing
from service.store import tables
from service.store.database import Database
from service.store.lookup import Lookup
from service.store.statements import Prepared, array_of, execute, run_on_arrays

_account, _campaign, _decision = tables.account, tables.campaign, tables.decision
_hold, _outcome, _state = tables.hold, tables.outcome, tables.campaign_state
_NUMBER: BindParameter[int] = bindparam("number")

_ACCOUNTS = Prepared(
    lambda among: (
        select(_account).where(among.has(_account.c.campaign)).order_by(_account.c.campaign, _account.c.resource)
    )
)
_BIRTHS = Prepared(
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
_OF_HOLD = (
    _hold.c.expires_at == bindparam("of_expiry"),
    _hold.c.campaign == _NUMBER,
    _hold.c.decision == bindparam("of_decision"),
)
_HOLD_KEY = ("of_expiry", "number", "of_decision")
_EMPTY_HOLD = Prepared(lambda _: update(_hold).where(*_OF_HOLD).values(amounts=literal_column("'[]'")))
_CLOSE_HOLD = Prepared(lambda _: delete(_hold).where(*_OF_HOLD))
_MOVE_ACCOUNT = Prepared(
    lambda _: (
        update(_account)
        .where(_account.c.campaign == _NUMBER, _account.c.resource == bindparam("of_resource"))
        .values({name: bindparam(f"new_{name}") for name in ("granted", "held", "spent", "overrun")})
    )
)
_MOVED = ("new_granted", "new_held", "new_spent", "new_overrun", "number", "of_resource")
_STATE_COLUMNS = ("status", "config_version", "model_version", "sequence", "round", "books", "last_event_at")
_MOVE_STATE = Prepared(
    lambda _: (
        update(_state)
        .where(_state.c.campaign == _NUMBER)
        .values({name: bindparam(f"new_{name}") for name in _STATE_COLUMNS})
    )
)
_STATE_VALUES = (*(f"new_{name}" for name in _STATE_COLUMNS), "number")
# For PostgreSQL, where each statement takes a message of its own: one for all rows, whose columns are arrays.
_CLOSE_HOLDS = (
    f"DELETE FROM hold USING unnest({array_of('int8')}, {array_of('int4')}, {array_of('int8')})"
    " AS closed (expires_at, campaign, decision) WHERE hold.expires_at = closed.expires_at"
    " AND hold.campaign = closed.campaign AND hold.decision = closed.decision"
)
_MOVE_ACCOUNTS = (
    "UPDATE account SET granted = new.granted, held = new.held, spent = new.spent, overrun = new.overrun FROM {rows}"
    " AS new (granted, held, spent, overrun, campaign, resource)"
    " WHERE account.campaign = new.campaign AND account.resource = new.resource"
)
_ACCOUNT_TYPES = ("int8", "int8", "int8", "int8", "int4", "int2")
# So few accounts go there as rows, for which PostgreSQL needs no function; beyond 50 parameters psycopg would parse the
# statement every time.
ROWS_MAX = 8
_STATE_TYPES = ("text", "int4", "int4", "int8", "int8", "text", "int8", "int4")
_MOVE_STATES = (
    "UPDATE campaign_state SET books = decode(new.books, 'hex'),"
    f" {', '.join(f'{name} = new.{name}' for name in _STATE_COLUMNS if name != 'books')}"
    f" FROM unnest({', '.join(map(array_of, _STATE_TYPES))}) AS new ({', '.join(_STATE_COLUMNS)}, campaign)"
    " WHERE campaign_state.campaign = new.campaign"
)


def accounts(connection: Connection, numbers: Sequence[int]) -> dict[int, list[Account]]:
    """The accounts of campaigns, in the order of their resources."""
    found: dict[int, list[Account]] = defaultdict(list)
    for row in _ACCOUNTS.fetch(connection, numbers):
        found[row["campaign"]].append(Account(row["granted"], row["held"], row["spent"], row["overrun"]))
    return found


def births(connection: Connection, numbers: Sequence[int]) -> dict[int, int]:
    """When campaigns were made."""
    return {row["number"]: row["created_at"] for row in _BIRTHS.fetch(connection, numbers)}


def decisions(connection: Connection, wanted: Mapping[int, Collection[str]]) -> dict[int, dict[str, Any]]:
    """The decisions of these ids, by the number of their campaign."""
    found: dict[int, dict[str, Any]] = {number: {} for number in wanted}
    pairs = [(number, each) for number, ids in wanted.items() for each in dict.fromkeys(ids)]
    for row in _DECISIONS.fetch(connection, pairs):
        found[row["campaign"]][row["decision_id"]] = row
    return found


def standings(connection: Connection, work: Work, known: Mapping[str, Any]) -> dict[str, Standing]:
    """What has become of these decisions of the campaign, by their ids."""
    return {standing.row["decision_id"]: standing for standing in _folded(connection, work, list(known.values()))}


def standings_by_sequence(connection: Connection, work: Work, sequences: Sequence[int]) -> list[Standing]:
    """What has become of the decisions of these numbers."""
    if not sequences:
        return []
    rows = _DECISIONS_BY_SEQUENCE.fetch(connection, sequences, number=work.campaign.number)
    return _folded(connection, work, rows)


def _folded(connection: Connection, work: Work, rows: Sequence[Any]) -> list[Standing]:
    if not rows:
        return []
    found = _OUTCOMES.fetch(connection, [(work.campaign.number, row["sequence"]) for row in rows])
    by_decision: dict[int, list[Any]] = defaultdict(list)
    for one in [*sorted(found, key=itemgetter("sequence")), *work.rows.get("outcome", ())]:
        by_decision[one["decision"]].append(one)
    return [Standing.of(row, by_decision[row["sequence"]]) for row in rows]


def due_holds(connection: Connection, now: int, most: int, *, besides: Collection[int] = ()) -> dict[int, list[int]]:
    """The earliest `most` decisions whose holds are past their time, by campaign; none of the campaigns `besides`."""
    due = select(_hold.c.campaign, _hold.c.decision).where(_hold.c.expires_at <= now)
    if besides:
        due = due.where(_hold.c.campaign.not_in(besides))
    found: dict[int, list[int]] = defaultdict(list)
    for number, decision in connection.execute(due.order_by(_hold.c.expires_at).limit(most)):
        found[number].append(decision)
    return found


def append(database: Database, connection: Connection, works: Collection[Work], together: Sequence[Kept] = ()) -> None:
    """New rows, each table in one statement however many campaigns there are; `together` are those of several."""
    decided = [made for work in works for made in work.decided] + [one.decided for one in together]
    held = [made for work in works for made in work.held] + [one.held for one in together if one.held is not None]
    database.append_columns(connection, _decision, decided)
    database.append_columns(connection, _hold, held)
    others = [work.rows for work in works if work.rows]
    for name in ("outcome", "grant", "change") if others else ():
        rows = [row for other in others for row in other.get(name, ())]
        if rows:
            database.append(connection, tables.metadata.tables[name], rows)


def move(connection: Connection, works: Collection[Work]) -> None:
    """Rows that have changed: holds, accounts, states."""
    emptied = [(expiry, work.campaign.number, decision) for work in works for expiry, decision in work.emptied_holds]
    closed = [(expiry, work.campaign.number, decision) for work in works for expiry, decision in work.closed_holds]
    on_postgresql = connection.dialect.name == "postgresql"
    if emptied:
        _EMPTY_HOLD.run(connection, _HOLD_KEY, emptied)
    if closed:
        gone = _close_holds(connection, closed) if on_postgresql else _CLOSE_HOLD.run(connection, _HOLD_KEY, closed)
        assert gone == len(closed), "a hold is where its decision says, once"
    accounts = [
        (*one, work.campaign.number, resource) for work in works for resource, one in enumerate(work.ledger.accounts)
    ]
    states = [
        (
            work.status,
            work.campaign.version,
            work.model_version,
            work.sequence,
            work.state.round.item(),
            work.state.books.astype("<f8", copy=False).tobytes(),
            work.now,
            work.campaign.number,
        )
        for work in works
    ]
    if on_postgresql:
        _move_accounts(connection, accounts)
    else:
        _MOVE_ACCOUNT.run(connection, _MOVED, accounts)
    if on_postgresql and len(states) > 1:
        in_text = [[part.hex() if isinstance(part, bytes) else part for part in row] for row in states]
        run_on_arrays(connection, _MOVE_STATES, in_text).close()
    else:
        _MOVE_STATE.run(connection, _STATE_VALUES, states)


def _close_holds(connection: Connection, closed: Sequence[tuple[int, int, int]]) -> int:
    # Planned each time, by how many there are now: a plan kept from the first times would read all of them.
    cursor = run_on_arrays(connection, _CLOSE_HOLDS, closed, prepare=False)
    gone: int = cursor.rowcount
    cursor.close()
    return gone


def _move_accounts(connection: Connection, accounts: Sequence[tuple[int, ...]]) -> None:
    if len(accounts) <= ROWS_MAX:
        row = f"({', '.join(f'%s::{kind}' for kind in _ACCOUNT_TYPES)})"
        statement = _MOVE_ACCOUNTS.format(rows=f"(VALUES {', '.join([row] * len(accounts))})")
        execute(connection, statement, [*chain.from_iterable(accounts)]).close()
    else:
        statement = _MOVE_ACCOUNTS.format(rows=f"unnest({', '.join(map(array_of, _ACCOUNT_TYPES))})")
        run_on_arrays(connection, statement, accounts).close()
