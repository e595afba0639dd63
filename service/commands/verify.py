"""`cbwk verify`: compares accounts with the log, in the database itself."""

from typing import Any

import typer

from service.commands.console import AnyCampaign, AsJson, DatabaseUrl, campaign_ids, echo_json, open_database


def verify(campaign: AnyCampaign = None, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Recompute accounts from the log, in the database itself; exits with 1 if any differs."""
    from service import reads
    from service.problems import Problem

    reports: list[dict[str, Any]] = []
    with open_database(database_url, long_statements=True) as database:
        for campaign_id in campaign_ids(database, campaign).values():
            try:
                with database.read() as connection:
                    reports.append(reads.verify(connection, campaign_id))
            except Problem as problem:
                raise typer.TyperException(problem.detail) from problem
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
        typer.echo(f"{report['campaign_id']}: {len(checks) - len(wrong)} of {len(checks)} checks hold")
        for check in wrong:
            typer.echo(f"  {check['name']}: the log says {check['expected']}, found {check['found']}")
    if not reports:
        typer.echo("there are no campaigns")
