"""Statements of the hot path: written with SQLAlchemy, compiled once, and given to the driver as they are.

SQLAlchemy's own way through cache, parameters and results is most of the time that a short statement takes: 100 µs
where SQLite itself takes 5. What comes back is what the driver makes of a column, so a boolean of SQLite is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Column, ColumnElement, Connection, any_, bindparam
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.expression import UpdateBase
from sqlalchemy.sql.selectable import Select

# The execution option under which a standing connection has its driver's connection.
DRIVER = "cbwk_driver"

Row = dict[str, Any]
_AMONG = "among"


class Among:
    """The list of a statement: an array to PostgreSQL, where the text and the plan are then the same for every length
    and psycopg parses no query of hundreds of parameters; to SQLite, which has no arrays, as many parameters."""

    def __init__(self, dialect: str, length: int) -> None:
        self.names = (_AMONG,) if dialect == "postgresql" else tuple(f"{_AMONG}_{at}" for at in range(length))
        self._is_array = dialect == "postgresql"

    def has(self, column: Column[Any]) -> ColumnElement[bool]:
        """Whether the value of the column is in the list."""
        if self._is_array:
            return column == any_(bindparam(_AMONG, type_=ARRAY(type(column.type))))
        return column.in_([bindparam(name) for name in self.names])


class _Text(NamedTuple):
    """A statement as a driver takes it."""

    sql: str
    positions: tuple[str, ...] | None  # the parameters by name, for a driver that wants them in order
    listed: tuple[str, ...]  # those of the list
    columns: tuple[str, ...]  # of the rows that come back; psycopg takes longer to tell them than to fetch a row


class Prepared:
    """One statement; for SQLite a list it has is filled up to a power of two, so that few lengths are compiled."""

    def __init__(self, build: Callable[[Among], Select[Any] | UpdateBase]) -> None:
        self._build = build
        self._texts: dict[tuple[str, int], _Text] = {}

    def fetch(self, connection: Connection, among: Sequence[Any] = (), /, **values: Any) -> list[Row]:
        """The rows; `among` are the values of the statement's list, at least one if it has one."""
        text = self._text(connection, len(among))
        if text.listed == (_AMONG,):
            values[_AMONG] = list(among)
        elif among:
            values |= zip(text.listed, [*among, *[among[-1]] * (len(text.listed) - len(among))], strict=True)
        cursor = execute(connection, text.sql, _parameters(text, values))
        try:
            rows = cursor.fetchall()
            return [dict(zip(text.columns, row, strict=True)) for row in rows] if rows else []
        finally:
            cursor.close()

    def run(self, connection: Connection, names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> int:
        """Carry it out once for each row of parameters, which have these names; how many rows it touched.

        A driver that wants them in order is given the rows as they are, so that must be the order of the statement.
        """
        text = self._text(connection, 0)
        assert text.positions in (None, names), f"the statement has its parameters as {text.positions}"
        given = [dict(zip(names, row, strict=True)) for row in rows] if text.positions is None else rows
        if len(rows) == 1:
            cursor = execute(connection, text.sql, given[0])
        else:
            cursor = execute_many(connection, text.sql, given)
        found: int = cursor.rowcount
        cursor.close()
        return found

    def _text(self, connection: Connection, among: int) -> _Text:
        dialect = connection.dialect.name
        length = 1 << (among - 1).bit_length() if among and dialect == "sqlite" else min(among, 1)
        text = self._texts.get((dialect, length))
        if text is None:
            listed = Among(dialect, length)
            statement = self._build(listed)
            compiled = statement.compile(dialect=connection.dialect)
            positions = None if compiled.positiontup is None else tuple(compiled.positiontup)
            columns = tuple(statement.selected_columns.keys()) if isinstance(statement, Select) else ()
            text = _Text(str(compiled), positions, listed.names if among else (), columns)
            self._texts[dialect, length] = text
        return text


def _parameters(text: _Text, values: Mapping[str, Any]) -> Any:
    return values if text.positions is None else [values[name] for name in text.positions]


def execute(connection: Connection, sql: str, parameters: Any = (), **options: Any) -> Any:
    """Give a statement to the driver as it is, with its own options; the cursor. Errors are those of SQLAlchemy.

    To psycopg no parameters are None: only then may there be several statements in one.
    """
    try:
        driver = connection.get_execution_options().get(DRIVER) or driver_of(connection)  # the first saves a call
        return driver.execute(sql, parameters, **options)
    except connection.dialect.loaded_dbapi.Error as error:
        raise as_sqlalchemy(connection, sql, error) from error


def execute_many(connection: Connection, sql: str, rows: Sequence[Any]) -> Any:
    """The same once for each row of parameters."""
    try:
        cursor = driver_of(connection).cursor()
        cursor.executemany(sql, rows)
    except connection.dialect.loaded_dbapi.Error as error:
        raise as_sqlalchemy(connection, sql, error) from error
    return cursor


def array_of(kind: str) -> str:
    """In a statement for `run_on_arrays`, the array of one column.

    >>> array_of("int8")
    "string_to_array(%s, ',')::int8[]"
    """
    return f"string_to_array(%s, ',')::{kind}[]"


def run_on_arrays(connection: Connection, sql: str, rows: Sequence[Sequence[Any]], **options: Any) -> Any:
    """Give PostgreSQL a statement that takes the columns of these rows as arrays; the cursor.

    Each goes there as one text: psycopg takes ten times as long to write an array. Values are numbers or identifiers,
    in which there is no comma.
    """
    columns = [",".join(map(str, column)) for column in zip(*rows, strict=True)]
    assert all(column.count(",") == len(rows) - 1 for column in columns), "a comma would be taken for two values"
    return execute(connection, sql, columns, **options)


def driver_of(connection: Connection) -> Any:
    """The driver's own connection. One that stands has it at hand: to ask SQLAlchemy for it takes as long as SQLite."""
    return connection.get_execution_options().get(DRIVER) or connection.connection.driver_connection


def as_sqlalchemy(connection: Connection, statement: str, error: Exception) -> BaseException:
    """A driver's error as SQLAlchemy would raise it, had the statement gone through it: callers need not know.

    A connection that is gone is not given to anybody else.
    """
    gone = bool(getattr(driver_of(connection), "closed", False))
    wrapped = DBAPIError.instance(
        statement,
        None,
        error,
        connection.dialect.loaded_dbapi.Error,
        connection_invalidated=gone,
        dialect=connection.dialect,
    )
    if gone and not connection.invalidated:
        connection.invalidate(error)
    return wrapped
