"""`cbwk replay`: whether every decision follows from the log, in the database itself."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from service.commands.console import AsJson, DatabaseUrl, campaign_numbers, echo_json, open_database, progress_bar

if TYPE_CHECKING:
    from service.engine.replay import Replay


def replay(
    campaign: Annotated[str | None, typer.Argument(metavar="CAMPAIGN", help="Its id.  [default: all]")] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Derive every decision again from the log and show the first that differs; exits with 1 if one does.

    Models, prices, accounts and uniforms are computed again from the start, or from the opening balance that
    `cbwk prune` left. Decisions by a version of the rules that is not known are counted as not derived.
    """
    from service.engine import replay as replaying

    with open_database(database_url) as database, progress_bar() as bar:
        found = [
            replaying.replay(database, number, advanced=lambda done, todo: bar("replaying", done, todo))
            for number in campaign_numbers(database, campaign)
        ]
    if as_json:
        echo_json([asdict(one) | {"ok": one.difference is None} for one in found])
    else:
        _show(found)
    if any(one.difference is not None for one in found):
        raise typer.Exit(1)


def _show(found: "list[Replay]") -> None:
    for one in found:
        since = f" after number {one.after}" if one.after else ""
        if one.not_derived:
            typer.echo(
                f"{one.campaign_id}: {one.not_derived} decisions not derived, by unknown rules (version {one.rules})"
            )
            continue
        if one.difference is None:
            typer.echo(f"{one.campaign_id}: {one.decisions} decisions{since} follow from the log")
            continue
        what = one.difference
        named = f"decision {what.decision_id}, " if what.decision_id is not None else ""
        typer.echo(f"{one.campaign_id}: {one.decisions} decisions{since} follow from the log, then one does not")
        typer.echo(f"  {named}number {what.sequence}: {what.what} is logged as {what.logged}, derived {what.derived}")
    if not found:
        typer.echo("there are no campaigns")
