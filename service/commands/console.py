"""What commands share: options, the settings, the database they open, progress bars, the way they write JSON."""

import json
from collections.abc import Callable, Iterator
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

    from service.store.database import Database
    from service.store.errors import DatabaseError
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


def campaign_numbers(database: "Database", campaign_id: str | None) -> list[int]:
    """The number of a campaign, or those of all in the order they were made."""
    from sqlalchemy import select

    from service.store import tables

    campaign = tables.campaign
    query = select(campaign.c.number).order_by(campaign.c.number)
    with database.read() as connection:
        found = connection.execute(query if campaign_id is None else query.where(campaign.c.id == campaign_id))
        numbers = list(found.scalars())
    if campaign_id is not None and not numbers:
        raise typer.TyperException("there is no such campaign")
    return numbers


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr, if that is a terminal, that is told what is done, how much of it, and of how much."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, todo: bar.update(task, description=what, completed=done, total=todo)


def echo_json(value: object) -> None:
    """Write one line of JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False))
