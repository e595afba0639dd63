"""`cbwk replay`: recomputes every decision from the log, in the database itself."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from service.commands.console import AnyCampaign, AsJson, DatabaseUrl, campaign_ids, echo_json, open_database, progress

if TYPE_CHECKING:
    from service.engine.replay import Replay


def replay(campaign: AnyCampaign = None, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Recompute every decision from the log and show the first that differs; exits with 1 if one does.

    Models, prices, accounts and uniforms are recomputed from the start, or from the opening balance that `cbwk prune`
    left. Decisions by an unknown version of the rules are counted as not derived.
    """
    from service.engine.replay import replay as replay_campaign

    with open_database(database_url) as database, progress() as bar:
        replays = [
            replay_campaign(database, number, advanced=lambda done, todo: bar("replaying", done, todo))
            for number in campaign_ids(database, campaign)
        ]
    if as_json:
        echo_json([asdict(item) | {"ok": item.difference is None} for item in replays])
    else:
        _print_replays(replays)
    if any(item.difference is not None for item in replays):
        raise typer.Exit(1)


def _print_replays(replays: "list[Replay]") -> None:
    for item in replays:
        since = f" after number {item.after}" if item.after else ""
        follow = f"{item.campaign_id}: {item.decisions} decisions{since} follow from the log"
        if item.not_derived:
            typer.echo(
                f"{item.campaign_id}: {item.not_derived} decisions not derived, by unknown rules (version {item.rules})"
            )
        elif item.difference is None:
            typer.echo(follow)
        else:
            found = item.difference
            name = f"decision {found.decision_id}, " if found.decision_id is not None else ""
            typer.echo(f"{follow}, then one does not")
            typer.echo(
                f"  {name}number {found.sequence}: {found.what} is logged as {found.logged}, derived {found.derived}"
            )
    if not replays:
        typer.echo("there are no campaigns")
