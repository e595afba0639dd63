"""Finds rows by their campaign and one more column, many in one statement.

On PostgreSQL each row has a subquery of its own, which OFFSET 0 keeps separate. With a list PostgreSQL may scan all
rows of the campaign and stay with that plan: the plan of a prepared statement comes from its first executions, when the
table was almost empty. SQLite has no arrays and gets one parameter per value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Table, bindparam, select

from service.store.bulk_insert import POSTGRESQL_TYPES
from service.store.statements import Prepared, Row, array_of, execute, run_on_arrays

# Each pair is two parameters, and SQLite accepts 32,766.
PAIRS_MAX = 8_192


class Lookup:
    """Rows of one table, in no particular order."""

    def __init__(self, table: Table, column: str) -> None:
        self._names = tuple(table.c.keys())
        chosen = [table.c[name] for name in self._names]
        kind = POSTGRESQL_TYPES[type(table.c[column].type)]
        self._by_arrays = (
            f"SELECT {', '.join(f'found.{name}' for name in self._names)}"
            f" FROM unnest({array_of('int4')}, {array_of(kind)}) AS pair (campaign, value) CROSS JOIN LATERAL"
            f" (SELECT * FROM {table.name} WHERE campaign = pair.campaign AND {column} = pair.value OFFSET 0) AS found"
        )
        self._of_campaign = Prepared(
            lambda among: select(*chosen).where(table.c.campaign == bindparam("number"), among.has(table.c[column]))
        )
        self._of_campaigns = (
            # CROSS makes SQLite begin with the wanted pairs.
            f"SELECT {', '.join(f'{table.name}.{name}' for name in self._names)} FROM pair CROSS JOIN {table.name}"
            f" WHERE {table.name}.campaign = pair.campaign AND {table.name}.{column} = pair.value"
        )

    def fetch(self, connection: Connection, wanted: Sequence[tuple[int, Any]]) -> list[Row]:
        """The rows with these pairs of campaign and value, which are all different."""
        if not wanted:
            return []
        if connection.dialect.name == "postgresql":
            return self._rows(run_on_arrays(connection, self._by_arrays, wanted))
        if len({number for number, _ in wanted}) == 1:
            return self._of_campaign.fetch(connection, [each for _, each in wanted], number=wanted[0][0])
        slices = [wanted[start : start + PAIRS_MAX] for start in range(0, len(wanted), PAIRS_MAX)]
        return [row for pairs in slices for row in self._paired(connection, pairs)]

    def _paired(self, connection: Connection, pairs: Sequence[tuple[int, Any]]) -> list[Row]:
        # Filled up to a power of two, so that there are few statements; NULL matches nothing.
        length = 1 << (len(pairs) - 1).bit_length()
        filled = chain.from_iterable([*pairs, *[(None, None)] * (length - len(pairs))])
        return self._rows(execute(connection, self.statement_of_pairs(length), [*filled]))

    def statement_of_pairs(self, length: int) -> str:
        """SQLite's statement for this number of pairs of several campaigns."""
        return f"{_pairs(length)} {self._of_campaigns}"

    def _rows(self, cursor: Any) -> list[Row]:
        try:
            return [dict(zip(self._names, row, strict=True)) for row in cursor.fetchall()]
        finally:
            cursor.close()


@lru_cache(maxsize=16)
def _pairs(length: int) -> str:
    return f"WITH pair (campaign, value) AS (VALUES {', '.join(['(?, ?)'] * length)})"
