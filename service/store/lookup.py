"""Rows that are found by their campaign and one more column, many in one statement.

PostgreSQL is asked for each of them in a subquery of its own, which OFFSET 0 keeps apart. Given a list it may decide to
walk through all rows of the campaign instead, and keep to that: the plan of a prepared statement stems from its first
uses, when there were hardly any rows. SQLite has no arrays; it takes as many parameters as there are values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Table, bindparam, select

from service.store.bulk_insert import POSTGRESQL_TYPES
from service.store.statements import Prepared, Row, array_of, execute, run_on_arrays

# Two parameters each, of which SQLite takes 32,766.
PAIRS_MAX = 8_192


class Lookup:
    """Rows of one table, in no order."""

    def __init__(self, table: Table, column: str) -> None:
        self._names = tuple(table.c.keys())
        chosen = [table.c[name] for name in self._names]
        kind = POSTGRESQL_TYPES[type(table.c[column].type)]
        self._in_arrays = (
            f"SELECT {', '.join(f'found.{name}' for name in self._names)}"
            f" FROM unnest({array_of('int4')}, {array_of(kind)}) AS asked (campaign, wanted) CROSS JOIN LATERAL"
            f" (SELECT * FROM {table.name} WHERE campaign = asked.campaign AND {column} = wanted OFFSET 0) AS found"
        )
        self._of_one = Prepared(
            lambda among: select(*chosen).where(table.c.campaign == bindparam("number"), among.has(table.c[column]))
        )
        self._of_several = (
            # CROSS asks SQLite to begin with what is asked for.
            f"SELECT {', '.join(f'{table.name}.{name}' for name in self._names)} FROM asked CROSS JOIN {table.name}"
            f" WHERE {table.name}.campaign = asked.campaign AND {table.name}.{column} = asked.wanted"
        )

    def fetch(self, connection: Connection, wanted: Sequence[tuple[int, Any]]) -> list[Row]:
        """Those of these campaigns with these values, which are all different."""
        if not wanted:
            return []
        if connection.dialect.name == "postgresql":
            return self._rows(run_on_arrays(connection, self._in_arrays, wanted))
        if len({number for number, _ in wanted}) == 1:
            return self._of_one.fetch(connection, [each for _, each in wanted], number=wanted[0][0])
        parts = [wanted[start : start + PAIRS_MAX] for start in range(0, len(wanted), PAIRS_MAX)]
        return [row for part in parts for row in self._paired(connection, part)]

    def _paired(self, connection: Connection, pairs: Sequence[tuple[int, Any]]) -> list[Row]:
        # As few texts as there are powers of two; NULL finds nothing.
        length = 1 << (len(pairs) - 1).bit_length()
        filled = chain.from_iterable([*pairs, *[(None, None)] * (length - len(pairs))])
        return self._rows(execute(connection, self.text_of_several(length), [*filled]))

    def text_of_several(self, length: int) -> str:
        """What SQLite is given for so many values of several campaigns."""
        return f"{_asked(length)} {self._of_several}"

    def _rows(self, cursor: Any) -> list[Row]:
        try:
            return [dict(zip(self._names, row, strict=True)) for row in cursor.fetchall()]
        finally:
            cursor.close()


@lru_cache(maxsize=16)
def _asked(length: int) -> str:
    return f"WITH asked (campaign, wanted) AS (VALUES {', '.join(['(?, ?)'] * length)})"
