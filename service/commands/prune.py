"""`cbwk prune`: deletes old decisions from the log, in the database itself."""

from typing import Annotated, Any

import typer

from service.commands.console import (
    AnyCampaign,
    AsJson,
    DatabaseUrl,
    campaign_ids,
    echo_json,
    open_database,
    print_table,
    progress,
)

_STEPS = {"fold": "folding the log of", "delete": "pruning"}


def prune(
    before: Annotated[
        str,
        typer.Option(help="Delete what was finished before this time: 2026-11-16T10:00:00Z, or 2026-11-16 in UTC."),
    ],
    campaign: AnyCampaign = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Delete old finished decisions and their outcomes; an opening balance replaces them.

    Accounts, models and open holds stay. A decision that expired or was voided stays until its late_window_seconds are
    over. A deleted decision is unknown: feedback on it is 404, and /decide with its id is a new request. PostgreSQL may
    serve during this command; no other process may use a SQLite file.
    """
    from service.engine.prune import PruneError, prunable
    from service.engine.prune import prune as prune_campaign

    moment = _moment(before)
    results: list[dict[str, Any]] = []
    with open_database(database_url, long_statements=True) as database, progress() as bar:
        for number, name in campaign_ids(database, campaign).items():

            def advanced(step: str, done: int, todo: int, name: str = name) -> None:
                bar(f"{_STEPS[step]} {name}", done, todo)

            try:
                found = prunable(database, number, moment)
                decisions, outcomes = found.decisions, found.outcomes
                if not dry_run:
                    decisions, outcomes = prune_campaign(database, found, actor="cbwk prune", advanced=advanced)
            except PruneError as error:
                raise typer.TyperException(str(error)) from error
            through = max(found.through, found.pruned_through) if found.decisions else found.pruned_through
            results.append({"campaign_id": name, "decisions": decisions, "outcomes": outcomes, "through": through})
    if as_json:
        echo_json(results)
    elif results:
        heads = ["campaign", "decisions to delete" if dry_run else "decisions deleted", "outcomes"]
        rows = ([item["campaign_id"], f"{item['decisions']:,}", f"{item['outcomes']:,}"] for item in results)
        print_table(heads, rows, texts=1)
    else:
        typer.echo("there are no campaigns")


def _moment(text: str) -> int:
    """Returns the microseconds since 1970 of a time, or of the start of a day."""
    from service.times import moment_microseconds

    try:
        return moment_microseconds(f"{text}T00:00:00Z" if len(text) == len("2026-11-16") else text)
    except ValueError:
        raise typer.BadParameter(
            "must be a time with a time zone, such as 2026-11-16T10:00:00Z, or a date", param_hint="'--before'"
        ) from None
