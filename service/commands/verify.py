"""`cbwk verify` and `cbwk replay`: recompute accounts and decisions from the log, in the database itself.

They only read, so that a running service may have the SQLite file: its rows are read as its own readers do.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from service.commands.console import AnyCampaign, AsJson, DatabaseUrl, campaign_ids, echo_json, open_database, progress

if TYPE_CHECKING:
    from service.engine.replay import Replay


def verify(campaign: AnyCampaign = None, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Recompute accounts from the log, in the database itself; exits with 1 if any differs."""
    from service import reads

    reports: list[dict[str, Any]] = []
    with open_database(database_url, long_statements=True, only_read=True) as database:
        for campaign_id in campaign_ids(database, campaign).values():
            with database.read() as connection:
                reports.append(reads.verify(connection, campaign_id))
        if campaign is None:
            with database.read() as connection:
                reports += [reads.verify_portfolio(connection, each) for each in reads.portfolio_ids(connection)]
    if as_json:
        echo_json(reports)
    else:
        _print_reports(reports)
    if not all(report["ok"] for report in reports):
        raise typer.Exit(1)


def _print_reports(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        checks = report["checks"]
        wrong = [check for check in checks if not check["ok"]]
        name = report["campaign_id"] if "campaign_id" in report else f"portfolio {report['portfolio_id']}"
        typer.echo(f"{name}: {len(checks) - len(wrong)} of {len(checks)} checks hold")
        for check in wrong:
            typer.echo(f"  {check['name']}: the log says {check['expected']}, found {check['found']}")
    if not reports:
        typer.echo("there are no campaigns")


def replay(campaign: AnyCampaign = None, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Recompute every decision from the log and show the first that differs; exits with 1 if one does.

    Models, prices, accounts and uniforms are recomputed from the start, or from the opening balance that `cbwk prune`
    left. Decisions by an unknown version of the rules are counted as not recomputed.
    """
    from service.engine.replay import replay as replay_campaign

    with open_database(database_url, only_read=True) as database, progress() as bar:
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
                f"{item.campaign_id}: {item.not_derived} decisions not recomputed: unknown rules (version {item.rules})"
            )
        elif item.difference is None:
            typer.echo(follow)
        else:
            found = item.difference
            name = f"decision {found.decision_id}, " if found.decision_id is not None else ""
            typer.echo(f"{follow}, the next one does not")
            typer.echo(f"  {name}number {found.sequence}: {found.what} was {found.logged}, recomputed {found.derived}")
    if not replays:
        typer.echo("there are no campaigns")
