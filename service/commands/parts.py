"""What commands share: options, the settings, the database they open, the way they write JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from service.settings import Settings, environment_variable

if TYPE_CHECKING:
    from service.store.database import Database

DatabaseUrl = Annotated[
    str | None, typer.Option(help="sqlite:///FILE or postgresql://…; wins over CBWK_DATABASE_URL.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON.")]


def settings_of(**options: str | int | None) -> Settings:
    """The settings of the environment, with the options that were given in their place."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        # The value itself is not shown: a setting may be a secret.
        first = error.errors(include_input=False, include_url=False)[0]
        name = str(first["loc"][0])
        hint = f"--{name.replace('_', '-')}" if name in given else environment_variable(name)
        raise typer.BadParameter(first["msg"], param_hint=repr(hint)) from error


@contextmanager
def open_database(url: str | None, *, statement_timeout_ms: int | None = None) -> Iterator["Database"]:
    """The database of the settings, with the tables of this version; what is wrong with it is one line."""
    from sqlalchemy.exc import SQLAlchemyError

    from service.store.database import Database, DatabaseError
    from service.store.migrate import require_migrated

    settings = settings_of(database_url=url, statement_timeout_ms=statement_timeout_ms)
    try:
        with Database.of(settings) as database:
            require_migrated(database)
            yield database
    except DatabaseError as error:
        raise typer.TyperException(str(error)) from error
    except SQLAlchemyError as error:
        if Database.is_connection_error(error):
            raise typer.TyperException("the database did not answer") from error
        raise


def echo_json(value: object) -> None:
    """Write one line of JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False))
