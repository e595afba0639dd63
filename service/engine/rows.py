"""What a transaction of the engine reads and writes, statement by statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, delete, select, tuple_, update

from service.engine.ledger import Account
from service.engine.settling import Standing
from service.engine.work import Work
from service.store import tables
from service.store.database import Database
from service.store.prepared import Prepared, run_on_driver

_account, _campaign, _decision = tables.account, tables.campaign, tables.decision
_hold, _outcome, _state = tables.hold, tables.outcome, tables.campaign_state
_NUMBER: BindParameter[int] = bindparam("number")

_ACCOUNTS = Prepared(
    lambda among: (
        select(_account).where(_account.c.campaign.in_(among)).order_by(_account.c.campaign, _account.c.resource)
    )
)
_BIRTHS = Prepared(
    lambda among: select(_campaign.c.number, _campaign.c.created_at).where(_campaign.c.number.in_(among))
)
_DECISIONS = Prepared(
    lambda among: select(_decision).where(_decision.c.campaign == _NUMBER, _decision.c.decision_id.in_(among))
)
_DECISIONS_BY_SEQUENCE = Prepared(
    lambda among: (
        select(_decision)
        .where(_decision.c.campaign == _NUMBER, _decision.c.sequence.in_(among))
        .order_by(_decision.c.sequence)
    )
)
# In no order: asked for that of the log, SQLite would walk through all of it.
_OUTCOMES = Prepared(
    lambda among: select(_outcome).where(_outcome.c.campaign == _NUMBER, _outcome.c.decision.in_(among))
)
_OPEN_HOLDS = Prepared(
    lambda among: select(_hold.c.decision).where(_hold.c.campaign == _NUMBER, _hold.c.decision.in_(among))
)
_OF_HOLD = _hold.c.campaign == _NUMBER, _hold.c.decision == bindparam("of_decision")
_EMPTY_HOLD = Prepared(lambda _: update(_hold).where(*_OF_HOLD).values(amounts=bindparam("nothing")))
_CLOSE_HOLD = Prepared(lambda _: delete(_hold).where(*_OF_HOLD))
# One statement where each takes a message of its own; SQLite, which has none, finds pairs only by looking at every row.
_CLOSE_HOLDS = delete(_hold).where(tuple_(_hold.c.campaign, _hold.c.decision).in_(bindparam("pairs", expanding=True)))
_MOVE_ACCOUNT = Prepared(
    lambda _: (
        update(_account)
        .where(_account.c.campaign == _NUMBER, _account.c.resource == bindparam("of_resource"))
        .values({name: bindparam(f"new_{name}") for name in ("granted", "held", "spent", "overrun")})
    )
)
_DECISION_NAMES = tuple(_decision.c.keys())
# Two parameters each, of which SQLite takes 32,766.
PAIRS_MAX = 8_192
_MOVED = ("number", "of_resource", "new_granted", "new_held", "new_spent", "new_overrun")
# PostgreSQL takes 65,535 parameters in one statement.
MOVED_TOGETHER_MAX = 4_096
_STATE_COLUMNS = ("status", "config_version", "model_version", "sequence", "round", "books", "last_event_at")
_MOVE_STATE = Prepared(
    lambda _: (
        update(_state)
        .where(_state.c.campaign == _NUMBER)
        .values({name: bindparam(f"new_{name}") for name in _STATE_COLUMNS})
    )
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
    pairs = [(number, each) for number, ids in wanted.items() for each in ids]
    if len({number for number, _ in pairs}) == 1:
        rows = _DECISIONS.fetch(connection, [each for _, each in pairs], number=pairs[0][0])
    else:
        rows = [
            row for start in range(0, len(pairs), PAIRS_MAX) for row in _paired(connection, pairs[start:][:PAIRS_MAX])
        ]
    for row in rows:
        found[row["campaign"]][row["decision_id"]] = row
    return found


def _paired(connection: Connection, pairs: Sequence[tuple[int, str]]) -> list[Any]:
    """One statement for several campaigns, as few lengths of it as there are powers of two."""
    length = 1 << (len(pairs) - 1).bit_length()
    filled = chain.from_iterable([*pairs, *[pairs[-1]] * (length - len(pairs))])
    cursor = run_on_driver(connection, "execute", _pairs_text(connection.dialect.name, length), [*filled])
    try:
        return [dict(zip(_DECISION_NAMES, row, strict=True)) for row in cursor.fetchall()]
    finally:
        cursor.close()


@lru_cache(maxsize=32)
def _pairs_text(dialect: str, length: int) -> str:
    pair = "(?, ?)" if dialect == "sqlite" else "(%s::int4, %s::text)"
    names = ", ".join(f"decision.{name}" for name in _DECISION_NAMES)
    return (
        f"WITH asked (campaign, decision_id) AS (VALUES {', '.join([pair] * length)}) SELECT {names} FROM asked"
        # Of SQLite CROSS asks that it begins with what is asked for; PostgreSQL needs the condition after it.
        " CROSS JOIN decision WHERE decision.campaign = asked.campaign AND decision.decision_id = asked.decision_id"
    )


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
    found = _OUTCOMES.fetch(connection, [row["sequence"] for row in rows], number=work.campaign.number)
    by_decision: dict[int, list[Any]] = defaultdict(list)
    for one in [*sorted(found, key=itemgetter("sequence")), *work.rows["outcome"]]:
        by_decision[one["decision"]].append(one)
    return [Standing.of(row, by_decision[row["sequence"]]) for row in rows]


def open_holds(connection: Connection, number: int, among: Sequence[int]) -> list[int]:
    """Which of these holds are open, read after the lock."""
    if not among:
        return []
    return [row["decision"] for row in _OPEN_HOLDS.fetch(connection, among, number=number)]


def append(database: Database, connection: Connection, works: Collection[Work]) -> None:
    """New rows, each table in one statement however many campaigns there are."""
    database.append_columns(connection, _decision, [made for work in works for made in work.decided])
    database.append_columns(connection, _hold, [held for work in works for held in work.held])
    for name in ("outcome", "grant", "change"):
        rows = [row for work in works for row in work.rows.get(name, ())]
        if rows:
            database.append(connection, tables.metadata.tables[name], rows)


def move(connection: Connection, works: Collection[Work]) -> None:
    """Rows that have changed: holds, accounts, states."""
    emptied = [(work.campaign.number, decision) for work in works for decision in work.emptied_holds]
    closed = [(work.campaign.number, decision) for work in works for decision in work.closed_holds]
    if emptied:
        _EMPTY_HOLD.run(connection, [{"number": a, "of_decision": b, "nothing": "[]"} for a, b in emptied])
    if closed and connection.dialect.name == "sqlite":
        _CLOSE_HOLD.run(connection, [{"number": a, "of_decision": b} for a, b in closed])
    elif closed:
        connection.execute(_CLOSE_HOLDS, {"pairs": closed})
    _move_accounts(connection, works)
    _MOVE_STATE.run(
        connection,
        [
            {
                "number": work.campaign.number,
                "new_status": work.status,
                "new_config_version": work.campaign.version,
                "new_model_version": work.model_version,
                "new_sequence": work.sequence,
                "new_round": int(work.state.books[0, 0]),
                "new_books": work.state.books.astype("<f8").tobytes(),
                "new_last_event_at": work.now,
            }
            for work in works
        ],
    )


def _move_accounts(connection: Connection, works: Collection[Work]) -> None:
    rows = [
        (work.campaign.number, resource, one.granted, one.held, one.spent, one.overrun)
        for work in works
        for resource, one in enumerate(work.ledger.accounts)
    ]
    if connection.dialect.name == "postgresql" and len(rows) <= MOVED_TOGETHER_MAX:
        length = 1 << (len(rows) - 1).bit_length()  # so that few lengths are prepared; a row may stand there twice
        filled = [*rows, *[rows[-1]] * (length - len(rows))]
        run_on_driver(connection, "execute", _moved_together(length), [*chain.from_iterable(filled)]).close()
    else:
        _MOVE_ACCOUNT.run(connection, [dict(zip(_MOVED, row, strict=True)) for row in rows])


@lru_cache(maxsize=16)
def _moved_together(length: int) -> str:
    """For PostgreSQL, where each statement takes a message of its own."""
    rows = ", ".join(["(%s::int4, %s::int2, %s::int8, %s::int8, %s::int8, %s::int8)"] * length)
    return (
        "UPDATE account SET granted = new.granted, held = new.held, spent = new.spent, overrun = new.overrun"
        f" FROM (VALUES {rows}) AS new (campaign, resource, granted, held, spent, overrun)"
        " WHERE account.campaign = new.campaign AND account.resource = new.resource"
    )
