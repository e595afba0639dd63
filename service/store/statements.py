"""Statements of the hot path: written with SQLAlchemy, compiled once, executed by the driver directly.

SQLAlchemy's cache, parameters and results take most of the time of a short statement: 100 µs where SQLite takes 5.
Values are those of the driver, so a boolean of SQLite is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Float,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    any_,
    bindparam,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.expression import UpdateBase
from sqlalchemy.sql.selectable import Select

# The execution option with which a dedicated connection carries its driver's connection.
DRIVER = "cbwk_driver"
POSTGRESQL_TYPES = {
    SmallInteger: "int2",
    Integer: "int4",
    BigInteger: "int8",
    Float: "float8",
    Text: "text",
    Boolean: "bool",
    LargeBinary: "bytea",
}
# PostgreSQL's states for a prepared statement that is gone, or is there already: the session is not the one in which
# the driver has prepared its statements, and the connection is of no use.
OTHER_SESSION = ("26000", "42P05")
# Of one statement: each pair is two parameters, and SQLite accepts 32,766.
PAIRS_MAX = 8_192

Row = dict[str, Any]
_AMONG = "among"


class ListParameter:
    """The list of values of a statement. For PostgreSQL it is one array: text and plan are the same for every length,
    and psycopg parses no query with hundreds of parameters. For SQLite it is one parameter per value."""

    def __init__(self, dialect: str, length: int) -> None:
        self.names = (_AMONG,) if dialect == "postgresql" else tuple(f"{_AMONG}_{at}" for at in range(length))
        self._is_array = dialect == "postgresql"

    def has(self, column: Column[Any]) -> ColumnElement[bool]:
        """Whether the value of the column is in the list."""
        if self._is_array:
            return column == any_(bindparam(_AMONG, type_=ARRAY(type(column.type))))
        return column.in_([bindparam(name) for name in self.names])


class _Text(NamedTuple):
    """A compiled statement."""

    sql: str
    positions: tuple[str, ...] | None  # the names of the parameters in order, for a driver with positional parameters
    listed: tuple[str, ...]  # the names of the list's parameters
    columns: tuple[str, ...]  # of the result; psycopg takes longer to describe them than to fetch a row


class Prepared:
    """One statement. For SQLite its list is filled up to a power of two, so that few lengths are compiled."""

    def __init__(self, build: Callable[[ListParameter], Select[Any] | UpdateBase]) -> None:
        self._build = build
        self._texts: dict[tuple[str, int], _Text] = {}

    def fetch(self, connection: Connection, among: Sequence[Any] = (), /, **values: Any) -> list[Row]:
        """The rows of the result; `among` are the values of the statement's list, at least one if it has a list."""
        text = self._compiled(connection, len(among))
        if text.listed == (_AMONG,):
            values[_AMONG] = list(among)
        elif among:
            values |= zip(text.listed, [*among, *[among[-1]] * (len(text.listed) - len(among))], strict=True)
        parameters = values if text.positions is None else [values[name] for name in text.positions]
        cursor = execute(connection, text.sql, parameters)
        try:
            rows = cursor.fetchall()
            return [dict(zip(text.columns, row, strict=True)) for row in rows] if rows else []
        finally:
            cursor.close()

    def run(self, connection: Connection, names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> int:
        """Execute the statement once per row of parameters with these names; returns the number of rows it changed.

        The names must be in the order of the statement: a driver with positional parameters gets the rows unchanged.
        """
        text = self._texts.get((connection.dialect.name, 0)) or self._compiled(connection, 0)
        assert text.positions in (None, names), f"the parameters of the statement are {text.positions}"
        given = [dict(zip(names, row, strict=True)) for row in rows] if text.positions is None else rows
        if len(rows) == 1:
            cursor = execute(connection, text.sql, given[0])
        else:
            cursor = execute_many(connection, text.sql, given)
        found: int = cursor.rowcount
        cursor.close()
        return found

    def _compiled(self, connection: Connection, among: int) -> _Text:
        dialect = connection.dialect.name
        length = 1 << (among - 1).bit_length() if among and dialect == "sqlite" else min(among, 1)
        text = self._texts.get((dialect, length))
        if text is None:
            listed = ListParameter(dialect, length)
            statement = self._build(listed)
            compiled = statement.compile(dialect=connection.dialect)
            positions = None if compiled.positiontup is None else tuple(compiled.positiontup)
            columns = tuple(statement.selected_columns.keys()) if isinstance(statement, Select) else ()
            text = _Text(str(compiled), positions, listed.names if among else (), columns)
            self._texts[dialect, length] = text
        return text


class Lookup:
    """Finds rows of one table by their campaign and one more column, many in one statement, in no particular order.

    On PostgreSQL each row has a subquery of its own, which OFFSET 0 keeps separate. With a list PostgreSQL may scan all
    rows of the campaign and stay with that plan: the plan of a prepared statement comes from its first executions, when
    the table was almost empty. SQLite has no arrays and gets two parameters per row, filled up to a power of two.
    """

    def __init__(self, table: Table, column: str) -> None:
        self._names = tuple(table.c.keys())
        self._by_arrays = (
            f"SELECT {', '.join(f'found.{name}' for name in self._names)} FROM"
            f" unnest({array_of('int4')}, {array_of(POSTGRESQL_TYPES[type(table.c[column].type)])})"
            " AS pair (campaign, value) CROSS JOIN LATERAL"
            f" (SELECT * FROM {table.name} WHERE campaign = pair.campaign AND {column} = pair.value OFFSET 0) AS found"
        )
        # CROSS makes SQLite begin with the wanted pairs.
        self._by_pairs = (
            f"SELECT {', '.join(f'{table.name}.{name}' for name in self._names)} FROM pair CROSS JOIN {table.name}"
            f" WHERE {table.name}.campaign = pair.campaign AND {table.name}.{column} = pair.value"
        )
        self._texts: dict[int, str] = {}

    def fetch(self, connection: Connection, wanted: Sequence[tuple[int, Any]]) -> list[Row]:
        """The rows with these pairs of campaign and value, which are all different."""
        found: list[Sequence[Any]] = []
        for start in range(0, len(wanted), PAIRS_MAX):
            pairs = wanted[start : start + PAIRS_MAX]
            if connection.dialect.name == "postgresql":
                cursor = run_on_arrays(connection, self._by_arrays, pairs)
            else:
                length = 1 << (len(pairs) - 1).bit_length()
                filled = [*pairs, *[(None, None)] * (length - len(pairs))]  # NULL matches nothing
                text = self._texts.get(length) or self.statement_of_pairs(length)
                cursor = execute(connection, text, [*chain.from_iterable(filled)])
            try:
                found += cursor.fetchall()
            finally:
                cursor.close()
        return [dict(zip(self._names, row, strict=True)) for row in found]

    def statement_of_pairs(self, length: int) -> str:
        """SQLite's statement for this number of pairs."""
        self._texts[length] = (
            f"WITH pair (campaign, value) AS (VALUES {', '.join(['(?, ?)'] * length)}) {self._by_pairs}"
        )
        return self._texts[length]


def execute(connection: Connection, sql: str, parameters: Any = (), **options: Any) -> Any:
    """Execute a statement by the driver, with the driver's options, and return the cursor. Raises SQLAlchemy's errors.

    psycopg accepts several statements in one text only if the parameters are None.
    """
    try:
        driver = connection.get_execution_options().get(DRIVER) or driver_of(connection)  # saves a call
        return driver.execute(sql, parameters, **options)
    except connection.dialect.loaded_dbapi.Error as error:
        raise as_sqlalchemy(connection, sql, error) from error


def execute_many(connection: Connection, sql: str, rows: Sequence[Any]) -> Any:
    """The same, once per row of parameters."""
    try:
        cursor = driver_of(connection).cursor()
        cursor.executemany(sql, rows)
    except connection.dialect.loaded_dbapi.Error as error:
        raise as_sqlalchemy(connection, sql, error) from error
    return cursor


def array_of(kind: str) -> str:
    """The array of one column in a statement for `run_on_arrays`.

    >>> array_of("int8")
    "string_to_array(%s, ',')::int8[]"
    """
    return f"string_to_array(%s, ',')::{kind}[]"


def run_on_arrays(connection: Connection, sql: str, rows: Sequence[Sequence[Any]], **options: Any) -> Any:
    """Execute a PostgreSQL statement whose parameters are the columns of these rows as arrays; returns the cursor.

    Each column is sent as one text: psycopg takes ten times as long to write an array. Values are numbers or
    identifiers, which contain no comma.
    """
    columns = [",".join(map(str, column)) for column in zip(*rows, strict=True)]
    assert all(column.count(",") == len(rows) - 1 for column in columns), "a value with a comma would become two values"
    return execute(connection, sql, columns, **options)


def driver_of(connection: Connection) -> Any:
    """The driver's connection; a dedicated connection carries it, because asking SQLAlchemy takes as long as SQLite."""
    return connection.get_execution_options().get(DRIVER) or connection.connection.driver_connection


def as_sqlalchemy(connection: Connection, statement: str, error: Exception) -> BaseException:
    """The error that SQLAlchemy raises for this error of the driver. A useless connection leaves the pool."""
    useless = bool(getattr(driver_of(connection), "closed", False)) or getattr(error, "sqlstate", None) in OTHER_SESSION
    wrapped = DBAPIError.instance(
        statement,
        None,
        error,
        connection.dialect.loaded_dbapi.Error,
        connection_invalidated=useless,
        dialect=connection.dialect,
    )
    if useless and not connection.invalidated:
        connection.invalidate(error)
    return wrapped
