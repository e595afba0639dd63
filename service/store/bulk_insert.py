"""Many rows at once: INSERTs of many rows on SQLite, COPY on PostgreSQL, where it takes a fifth of the time."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count, repeat
from math import isfinite
from operator import itemgetter
from struct import Struct
from typing import Any

import psycopg
from sqlalchemy import BigInteger, Boolean, Connection, Float, Integer, LargeBinary, SmallInteger, Table, Text

from service.store.statements import as_sqlalchemy, driver_of, execute, execute_many

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
TOGETHER = (256, 64, 16, 4)
# Python 3.12 had a warning for each parameter with a number, until 3.12.4 knew it for a mistake.
NUMBERED = not (3, 12, 0) <= sys.version_info[:3] < (3, 12, 4)
_BITS = {"int2": 16, "int4": 32, "int8": 64}
_PACKED = {"int2": "h", "int4": "i", "int8": "q"}
_FIRST = itemgetter(0)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of one kind of row, and how either database is told of them."""

    names: tuple[str, ...]
    listed: list[str]
    types: tuple[str, ...]
    whole: list[tuple[int, int]]  # where whole numbers stand, and what each must be less than, with either sign
    real: list[int]  # where other numbers stand
    pick_whole: Callable[[Sequence[Any]], Sequence[Any]]  # these numbers of a row
    pick_real: Callable[[Sequence[Any]], Sequence[Any]]
    packed: Struct  # what takes the whole ones, and no larger ones
    insert: str
    copy: str


class Same(Sequence[Any]):
    """A column that has one value in all its rows: to SQLite, a parameter that is given once."""

    __slots__ = ("rows", "value")

    def __init__(self, value: Any, rows: int) -> None:
        self.value, self.rows = value, rows

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[Any]:
        return repeat(self.value, self.rows)

    def __getitem__(self, at: Any) -> Any:
        asked = range(self.rows)[at]
        return self.value if isinstance(asked, int) else [self.value] * len(asked)


def same(value: Any, rows: int) -> Sequence[Any]:
    """A column of so many rows with one value; of a few, a list like any other, which is quicker to read."""
    return Same(value, rows) if rows >= TOGETHER[-1] else [value] * rows


def alike(column: list[Any]) -> Sequence[Any]:
    """A column, as one value if it has no other."""
    few = len(column) < TOGETHER[-1]
    return column if few or column.count(column[0]) < len(column) else Same(column[0], len(column))


def append_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows of plain Python values, all with the columns of the first."""
    if not rows:
        return
    columns = _columns(table, tuple(rows[0]), connection.dialect)
    # Rows that one piece of code has made have their columns in one order.
    ordered = all(list(row) == columns.listed for row in rows)
    values = [tuple(row.values()) if ordered else tuple(row[name] for name in columns.names) for row in rows]
    width = len(columns.names)
    assert ordered or all(len(row) == width for row in rows), f"rows of {table.name} have different columns"
    _add(connection, table, columns, [*zip(*values, strict=True)])


def append_columns(connection: Connection, table: Table, blocks: Sequence[Mapping[str, Sequence[Any]]]) -> None:
    """Add rows that are given column by column, blocks of one or more, all with the columns of the first."""
    if not blocks:
        return
    columns = _columns(table, tuple(blocks[0]), connection.dialect)
    if len(blocks) == 1:
        given = [*blocks[0].values()]
    else:
        assert all(list(block) == columns.listed for block in blocks), f"rows of {table.name} have different columns"
        given = [[*chain.from_iterable(parts)] for parts in zip(*(block.values() for block in blocks), strict=True)]
    _add(connection, table, columns, given)


@lru_cache(maxsize=256)
def _columns(table: Table, names: tuple[str, ...], dialect: Any) -> _Columns:
    quote = dialect.identifier_preparer
    into = f"{quote.format_table(table)} ({', '.join(quote.quote(name) for name in names)})"
    types = tuple(POSTGRESQL_TYPES[type(table.c[name].type)] for name in names)
    whole = [(at, 1 << (_BITS[kind] - 1)) for at, kind in enumerate(types) if kind in _BITS]
    real = [at for at, kind in enumerate(types) if kind == "float8"]
    return _Columns(
        names=names,
        listed=list(names),
        types=types,
        whole=whole,
        real=real,
        pick_whole=_picking([at for at, _ in whole]),
        pick_real=_picking(real),
        packed=Struct("=" + "".join(_PACKED[types[at]] for at, _ in whole)),
        insert=f"INSERT INTO {into} VALUES ({', '.join('?' for _ in names)})",
        copy=f"COPY {into} FROM STDIN WITH (FORMAT BINARY)",
    )


def _picking(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What takes the values at these places out of a row, none or one of them too."""
    return itemgetter(*places) if len(places) > 1 else lambda row: [row[at] for at in places]


def _check(table: Table, columns: _Columns, given: Sequence[Sequence[Any]]) -> None:
    """Refuse numbers that the two databases would keep differently, or not at all.

    Of a number with too many bits psycopg sends the lowest ones, and SQLite keeps all; NaN is NULL to SQLite.
    """
    for at, bound in columns.whole:
        least, most = _extremes(given[at])
        if not -bound <= least <= most < bound:
            raise OverflowError(f"a number for {table.name}.{columns.names[at]} has too many bits")
    for at in columns.real:
        if not all(map(isfinite, _present(given[at]))):
            raise ValueError(f"a number for {table.name}.{columns.names[at]} is not finite")


def _extremes(column: Sequence[Any]) -> tuple[int, int]:
    """The least and the greatest number of a column; 0 stands for none."""
    if type(column) is range:
        return column[0] or 0, column[-1] or 0
    numbers = _present(column)
    return min(numbers, default=0), max(numbers, default=0)


def _present(column: Sequence[Any]) -> Sequence[Any]:
    if type(column) is Same:
        column = [column.value]
    return [number for number in column if number is not None] if None in column else column


def _add(connection: Connection, table: Table, columns: _Columns, given: Sequence[Sequence[Any]]) -> None:
    single = [*map(_FIRST, given)] if len(given[0]) == 1 else None
    if single is None or not _is_sound(columns, single):
        _check(table, columns, given)
    if connection.dialect.name == "postgresql":
        _copy(connection, columns, given)
    elif single is None:
        _insert(connection, columns, given)
    else:
        assert sum(map(len, given)) == len(given), "columns have different lengths"
        execute(connection, columns.insert, single).close()


def _is_sound(columns: _Columns, row: Sequence[Any]) -> bool:
    """Whether a single row has nothing to refuse, in little time; False if unsure."""
    try:
        columns.packed.pack(*columns.pick_whole(row))
        return isfinite(sum(columns.pick_real(row)))
    except (struct.error, TypeError, OverflowError):  # too large, or nothing at all
        return False


def _insert(connection: Connection, columns: _Columns, given: Sequence[Sequence[Any]]) -> None:
    start, rows = 0, len(given[0])
    if rows >= TOGETHER[-1]:
        assert all(len(column) == rows for column in given), "columns have different lengths"
        shared = tuple(NUMBERED and type(column) is Same for column in given)
        once = [column[0] for column, in_all in zip(given, shared, strict=True) if in_all]
        others = [column for column, in_all in zip(given, shared, strict=True) if not in_all]
        for size in TOGETHER:
            while rows - start >= size:
                together = once + _row_by_row(others, start, size)
                execute(connection, _insert_together(columns.insert, shared, size), together).close()
                start += size
    if start < rows:
        left = [*zip(*(column[start:] for column in given), strict=True)]
        execute_many(connection, columns.insert, left).close()


def _row_by_row(given: Sequence[Sequence[Any]], start: int, size: int) -> list[Any]:
    """So many rows of columns in one list; put there a column at a time, which takes a third of zip's time.

    >>> _row_by_row([range(5), "abcde"], start=1, size=2)
    [1, 'b', 2, 'c']
    """
    width = len(given)
    result: list[Any] = [None] * (size * width)
    for at, column in enumerate(given):
        result[at::width] = column[start : start + size]
    return result


@lru_cache(maxsize=64)
def _insert_together(one: str, shared: tuple[bool, ...], size: int) -> str:
    """Parameters by number: first those that all rows share, then the others row by row."""
    if not any(shared):
        into, row = one.split(" VALUES ")
        return f"{into} VALUES {', '.join([row] * size)}"
    first, further = count(1), count(1 + sum(shared))
    of_all = [f"?{next(first)}" if each else None for each in shared]
    rows = (", ".join(number or f"?{next(further)}" for number in of_all) for _ in range(size))
    return f"{one.partition(' VALUES ')[0]} VALUES {', '.join(f'({row})' for row in rows)}"


def _copy(connection: Connection, columns: _Columns, given: Sequence[Sequence[Any]]) -> None:
    try:
        with driver_of(connection).cursor() as cursor, cursor.copy(columns.copy) as copy:
            copy.set_types(columns.types)
            for row in zip(*given, strict=True):
                copy.write_row(row)
    except psycopg.Error as error:
        raise as_sqlalchemy(connection, columns.copy, error) from error
