"""Many rows at once: INSERTs of many rows on SQLite, COPY on PostgreSQL, where it takes a fifth of the time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count, repeat
from typing import Any

import psycopg
from sqlalchemy import BigInteger, Boolean, Connection, Float, Integer, LargeBinary, SmallInteger, Table, Text

from service.store.prepared import as_sqlalchemy, driver_of, run_on_driver

POSTGRESQL_TYPES = {
    SmallInteger: "int2",
    Integer: "int4",
    BigInteger: "int8",
    Float: "float8",
    Text: "text",
    Boolean: "bool",
    LargeBinary: "bytea",
}
# So many rows in one statement take SQLite three quarters of the time that one after the other does, and half of it
# where half of the columns are the same in all; 64 columns would still fit into the 32,766 parameters it takes.
TOGETHER = (256, 64, 16)
_BITS = {"int2": 16, "int4": 32, "int8": 64}


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of one kind of row, and how either database is told of them."""

    names: tuple[str, ...]
    listed: list[str]
    types: tuple[str, ...]
    whole: list[tuple[int, int]]  # where whole numbers stand, and of how many bits they may be
    real: list[int]  # where other numbers stand
    insert: str
    copy: str


class Same(Sequence[Any]):
    """A column that has one value in all its rows: to SQLite, a parameter that is given once."""

    __slots__ = ("count", "value")

    def __init__(self, value: Any, count: int) -> None:
        self.value, self.count = value, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return repeat(self.value, self.count)

    def __getitem__(self, at: Any) -> Any:
        return [*self][at]


def append_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows of plain Python values, all with the columns of the first."""
    if not rows:
        return
    columns = _columns(table, tuple(rows[0]), connection.dialect)
    # Rows that one piece of code has made have their columns in one order.
    same = all(list(row) == columns.listed for row in rows)
    values = [tuple(row.values()) if same else tuple(row[name] for name in columns.names) for row in rows]
    assert same or all(len(row) == len(columns.names) for row in rows), f"rows of {table.name} have different columns"
    _add(connection, table, columns, [*zip(*values, strict=True)])


def append_columns(connection: Connection, table: Table, blocks: Sequence[Mapping[str, Sequence[Any]]]) -> None:
    """Add rows that are given column by column, blocks of one or more, all with the columns of the first."""
    if not blocks:
        return
    columns = _columns(table, tuple(blocks[0]), connection.dialect)
    assert all(list(block) == columns.listed for block in blocks), f"rows of {table.name} have different columns"
    if len(blocks) == 1:
        given = [*blocks[0].values()]
    else:
        given = [[*chain.from_iterable(parts)] for parts in zip(*(block.values() for block in blocks), strict=True)]
    _add(connection, table, columns, given)


@lru_cache(maxsize=256)
def _columns(table: Table, names: tuple[str, ...], dialect: Any) -> _Columns:
    quote = dialect.identifier_preparer
    into = f"{quote.format_table(table)} ({', '.join(quote.quote(name) for name in names)})"
    types = tuple(POSTGRESQL_TYPES[type(table.c[name].type)] for name in names)
    return _Columns(
        names=names,
        listed=list(names),
        types=types,
        whole=[(at, _BITS[kind]) for at, kind in enumerate(types) if kind in _BITS],
        real=[at for at, kind in enumerate(types) if kind == "float8"],
        insert=f"INSERT INTO {into} VALUES ({', '.join('?' for _ in names)})",
        copy=f"COPY {into} FROM STDIN WITH (FORMAT BINARY)",
    )


def _check(table: Table, columns: _Columns, given: Sequence[Sequence[Any]]) -> None:
    """Refuse numbers that the two databases would keep differently, or not at all.

    Of a number with too many bits psycopg sends the lowest ones, and SQLite keeps all; NaN is NULL to SQLite.
    """
    for at, bits in columns.whole:
        numbers, bound = _present(given[at]), 1 << (bits - 1)
        if numbers and not -bound <= min(numbers) <= max(numbers) < bound:
            raise OverflowError(f"a number for {table.name}.{columns.names[at]} has more than {bits} bits")
    for at in columns.real:
        if not all(map(math.isfinite, _present(given[at]))):
            raise ValueError(f"a number for {table.name}.{columns.names[at]} is not finite")


def _present(column: Sequence[Any]) -> Sequence[Any]:
    """The values that a column has, or as many of them as say what all are like."""
    if type(column) is Same:
        column = column[:1]
    elif type(column) is range:
        return column[:1] and (column[0], column[-1])
    return [number for number in column if number is not None] if None in column else column


def _add(connection: Connection, table: Table, columns: _Columns, given: Sequence[Sequence[Any]]) -> None:
    _check(table, columns, given)
    if connection.dialect.name == "sqlite":
        _insert(connection, columns, given)
    else:
        _copy(connection, columns, given)


def _insert(connection: Connection, columns: _Columns, given: Sequence[Sequence[Any]]) -> None:
    start, rows = 0, len(given[0])
    if rows >= TOGETHER[-1]:
        same = tuple(type(column) is Same for column in given)
        once = [column.value for column in given if type(column) is Same]
        others = [*zip(*(column for column in given if type(column) is not Same), strict=True)]
        for size in TOGETHER:
            while rows - start >= size:
                together = [*once, *chain.from_iterable(others[start : start + size])]
                run_on_driver(connection, "execute", _insert_together(columns.insert, same, size), together).close()
                start += size
    if start < rows:
        left = [*zip(*(column[start:] for column in given), strict=True)]
        run_on_driver(connection, "executemany", columns.insert, left).close()


@lru_cache(maxsize=64)
def _insert_together(one: str, same: tuple[bool, ...], size: int) -> str:
    """Parameters by number: first those that all rows share, then the others row by row."""
    shared, further = count(1), count(1 + sum(same))
    of_all = [f"?{next(shared)}" if each else None for each in same]
    rows = (", ".join(number or f"?{next(further)}" for number in of_all) for _ in range(size))
    return f"{one.split(' VALUES ')[0]} VALUES {', '.join(f'({row})' for row in rows)}"


def _copy(connection: Connection, columns: _Columns, given: Sequence[Sequence[Any]]) -> None:
    try:
        with driver_of(connection).cursor() as cursor, cursor.copy(columns.copy) as copy:
            copy.set_types(columns.types)
            for row in zip(*given, strict=True):
                copy.write_row(row)
    except psycopg.Error as error:
        raise as_sqlalchemy(connection, columns.copy, error) from error
