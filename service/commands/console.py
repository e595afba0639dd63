"""Shared by the commands: options, settings, the database, files, progress bars, tables and JSON."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from service.settings import Settings, environment_variable
from service.words import no_such

if TYPE_CHECKING:
    from service.store.database import Database

DatabaseUrl = Annotated[
    str | None, typer.Option(help="sqlite:///FILE or postgresql://…; overrides CBWK_DATABASE_URL.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON.")]
CampaignId = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Campaign id.")]
AnyCampaign = Annotated[str | None, typer.Argument(metavar="CAMPAIGN", help="Campaign id.  [default: all]")]
OutDirectory = Annotated[Path, typer.Option("--out", help="Output directory; created if it does not exist.")]
OUT_DEFAULT = Path("out")

# Commands that read a whole log have an hour; HTTP requests have seconds.
LONG_STATEMENT_TIMEOUT_MS = 3_600_000
# Wider than any table, so that a pipe or a narrow window does not cut off ids.
_TABLE_WIDTH = 10_000


def settings_of(**options: str | int | None) -> Settings:
    """Returns the settings of the environment; the given options override them."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        # The message leaves out the value: a setting may be a secret.
        first = error.errors(include_input=False, include_url=False)[0]
        name = str(first["loc"][0])
        hint = f"--{name.replace('_', '-')}" if name in given else environment_variable(name)
        raise typer.BadParameter(first["msg"], param_hint=repr(hint)) from error


@contextmanager
def open_database(url: str | None, *, long_statements: bool = False, only_read: bool = False) -> Iterator["Database"]:
    """Opens the database of the settings; fails with one line unless it has the tables of this version.

    only_read: a SQLite file that a running service uses is read beside it, and stderr says so.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from service.store.database import Database
    from service.store.migrate import require_migrated

    settings = settings_of(
        database_url=url, statement_timeout_ms=LONG_STATEMENT_TIMEOUT_MS if long_statements else None
    )
    try:
        with _opened(settings, only_read=only_read) as database:
            require_migrated(database)
            yield database
    except SQLAlchemyError as error:
        if Database.is_connection_error(error):
            raise typer.TyperException(Database.away_reason(error)) from error
        raise


def _opened(settings: Settings, *, only_read: bool) -> "Database":
    from service.store.database import Database
    from service.store.errors import DatabaseInUse

    try:
        return Database.of(settings)
    except DatabaseInUse:
        if not only_read:
            raise
    typer.echo(f"cbwk: a running service uses {settings.database_url}: the file is read beside it", err=True)
    return Database.open_read_only(settings.database_url)


def campaign_ids(database: "Database", campaign_id: str | None) -> dict[int, str]:
    """Returns the ids by number of one campaign, or of all in the order of their creation."""
    from sqlalchemy import select

    from service.store import tables

    campaign = tables.campaign
    query = select(campaign.c.number, campaign.c.id).order_by(campaign.c.number)
    query = query.where(~campaign.c.id.startswith(tables.PORTFOLIO_PREFIX))
    with database.read() as connection:
        found = connection.execute(query if campaign_id is None else query.where(campaign.c.id == campaign_id))
        ids = {row.number: row.id for row in found}
    if campaign_id is not None and not ids:
        raise typer.TyperException(no_such("campaign", campaign_id))
    return ids


@contextmanager
def file_errors(action: str) -> Iterator[None]:
    """Reports an error of the operating system as one line: "cannot <action>: <reason>"."""
    try:
        yield
    except OSError as error:
        raise typer.TyperException(f"cannot {action}: {error.strerror}") from error


def make_directory(path: Path) -> None:
    """Creates the directory if it does not exist."""
    with file_errors(f"create the directory {path}"):
        path.mkdir(parents=True, exist_ok=True)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Shows a bar on stderr if that is a terminal; yields a function of the task, what is done, and the total."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda name, done, total: bar.update(task, description=name, completed=done, total=total)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[Any]], *, texts: int) -> None:
    """Prints a table whose first `texts` columns are text, aligned left; the others are aligned right."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(head, justify="left" if index < texts else "right") for index, head in enumerate(heads)]
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    Console(width=_TABLE_WIDTH).print(table)


def cell(value: Any) -> str:
    """Returns a value as text, numbers without trailing zeros.

    >>> cell(0.25), cell(12.345678901), cell(1e9), cell(None)
    ('0.25', '12.345679', '1000000000', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return str(value)


def echo_json(value: object) -> None:
    """Writes one line of JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False))
