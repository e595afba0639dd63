"""`cbwk verify`: whether accounts are what the log says, in the database itself."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.commands.console import AsJson, DatabaseUrl, echo_json, open_database

if TYPE_CHECKING:
    from service.store.database import Database

# A long log takes its time, and nobody waits for an answer over HTTP.
STATEMENT_TIMEOUT_MS = 3_600_000
PAGE = 100


def verify(
    campaign: Annotated[str | None, typer.Argument(metavar="CAMPAIGN", help="Its id.  [default: all]")] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Compute accounts anew from the log, in the database itself; exits with 1 if anything differs."""
    from service import reads
    from service.problems import Problem

    found: list[dict[str, Any]] = []
    with open_database(database_url, statement_timeout_ms=STATEMENT_TIMEOUT_MS) as database:
        for name in _names(database) if campaign is None else [campaign]:
            try:
                with database.read() as connection:
                    found.append(reads.verify(connection, name))
            except Problem as problem:
                raise typer.TyperException(problem.detail) from problem
    if as_json:
        echo_json(found)
    else:
        _show(found)
    if not all(one["ok"] for one in found):
        raise typer.Exit(1)


def _names(database: "Database") -> list[str]:
    from service import reads

    names: list[str] = []
    cursor: str | None = None
    while True:
        with database.read() as connection:
            page = reads.campaigns(connection, limit=PAGE, cursor=cursor)
        names += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return names


def _show(found: list[dict[str, Any]]) -> None:
    for one in found:
        wrong = [check for check in one["checks"] if not check["ok"]]
        typer.echo(f"{one['campaign_id']}: {len(one['checks']) - len(wrong)} of {len(one['checks'])} checks hold")
        for check in wrong:
            typer.echo(f"  {check['name']}: the log says {check['expected']}, found {check['found']}")
    if not found:
        typer.echo("there are no campaigns")
