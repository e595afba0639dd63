"""The rows of the log from which oracles learn: outcomes that teach, with what their decisions know of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection, select

from service.store import tables
from service.store.statements import Row, array_of, run_on_arrays

_outcome, _decision = tables.outcome, tables.decision
_OF_OUTCOME = ("taught", "spent")
_OF_DECISION = ("arm", "round", "context", "actions", "numbers", "hold")
_NAMES = ("campaign", "learnt_at", *_OF_OUTCOME, *_OF_DECISION)
# OFFSET 0 keeps the subquery of each campaign separate, so that it always reads a range of the key.
_BETWEEN = (
    f"SELECT learnt.campaign, learnt.sequence, {', '.join(f'learnt.{name}' for name in _OF_OUTCOME)},"
    f" {', '.join(f'decision.{name}' for name in _OF_DECISION)}"
    f" FROM unnest({array_of('int4')}, {array_of('int8')}, {array_of('int8')}) AS part (campaign, after, until)"
    " CROSS JOIN LATERAL (SELECT * FROM outcome WHERE campaign = part.campaign AND sequence > part.after"
    " AND sequence <= part.until AND taught IS NOT NULL OFFSET 0) AS learnt"
    " CROSS JOIN LATERAL (SELECT * FROM decision WHERE campaign = learnt.campaign AND sequence = learnt.decision"
    " OFFSET 0) AS decision ORDER BY learnt.campaign, learnt.sequence"
)


def taught_rows(connection: Connection, number: int, after: int, until: int, rows_max: int) -> list[Row]:
    """The first rows of one campaign in (after, until], in the order of the log."""
    columns = [_outcome.c[name] for name in _OF_OUTCOME] + [_decision.c[name] for name in _OF_DECISION]
    query = (
        select(_outcome.c.sequence.label("learnt_at"), *columns)
        .join(_decision, tables.decision_of_outcome)
        .where(_outcome.c.campaign == number, _outcome.c.sequence > after, _outcome.c.sequence <= until)
        .where(_outcome.c.taught.is_not(None))
        .order_by(_outcome.c.sequence)
        .limit(rows_max)
    )
    return [dict(row) for row in connection.execute(query).mappings()]


def taught_between(connection: Connection, parts: Sequence[tuple[int, int, int]]) -> dict[int, list[Row]]:
    """The rows of several campaigns, each in its (after, until], in the order of their logs."""
    found: dict[int, list[Row]] = defaultdict(list)
    if parts and connection.dialect.name == "postgresql":  # in one statement
        cursor = run_on_arrays(connection, _BETWEEN, parts)
        rows = cursor.fetchall()
        cursor.close()
        for row in rows:
            found[row[0]].append(dict(zip(_NAMES, row, strict=True)))
        return found
    for number, after, until in parts:
        found[number] = taught_rows(connection, number, after, until, until - after)
    return found
