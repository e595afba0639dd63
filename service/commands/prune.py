"""`cbwk prune`: old decisions out of the log, in the database itself."""

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.commands.console import AsJson, DatabaseUrl, campaign_numbers, echo_json, open_database, progress_bar

if TYPE_CHECKING:
    from service.engine.prune import Prunable

# The longest statement counts what would go, and nobody waits for it.
STATEMENT_TIMEOUT_MS = 3_600_000
_STEPS = {"fold": "folding the log of", "delete": "pruning"}


def prune(
    before: Annotated[
        str,
        typer.Option(help="What was finished before this: 2026-11-16T10:00:00Z, or 2026-11-16 for its start in UTC."),
    ],
    campaign: Annotated[str | None, typer.Argument(metavar="CAMPAIGN", help="Its id.  [default: all]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Delete old decisions that are finished, with their outcomes, and leave an opening balance in their place.

    Accounts and models stay as they are, open holds are not touched, and a decision that expired or was voided stays
    until its late_window_seconds are over. A decision that is gone is unknown: feedback on it is 404, and /decide with
    its id is a new request. PostgreSQL may serve meanwhile, a SQLite file must be in nobody's use.
    """
    from service.engine import prune as pruning

    moment = _moment(before)
    results: list[dict[str, Any]] = []
    with open_database(database_url, statement_timeout_ms=STATEMENT_TIMEOUT_MS) as database, progress_bar() as bar:
        for number in campaign_numbers(database, campaign):
            try:
                found = pruning.prunable(database, number, moment)
                decisions, outcomes = found.decisions, found.outcomes
                if not dry_run:
                    decisions, outcomes = pruning.prune(
                        database,
                        found,
                        actor="cbwk prune",
                        advanced=lambda step, done, todo, name=found.campaign_id: bar(  # type: ignore[misc]
                            f"{_STEPS[step]} {name}", done, todo
                        ),
                    )
            except pruning.PruneError as error:
                raise typer.TyperException(str(error)) from error
            results.append(_result(found, decisions, outcomes))
    if as_json:
        echo_json(results)
    else:
        _show(results, dry_run=dry_run)


def _moment(text: str) -> int:
    """Microseconds since 1970 of a time or of the start of a day."""
    from service.times import moment_microseconds

    try:
        if len(text) == len("2026-11-16"):
            text = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC).isoformat()
        return moment_microseconds(text)
    except ValueError:
        raise typer.BadParameter(
            "must be a time with a time zone, such as 2026-11-16T10:00:00Z, or a date", param_hint="'--before'"
        ) from None


def _result(found: "Prunable", decisions: int, outcomes: int) -> dict[str, Any]:
    return {
        "campaign_id": found.campaign_id,
        "decisions": decisions,
        "outcomes": outcomes,
        "through": max(found.through, found.pruned_through) if found.decisions else found.pruned_through,
    }


def _show(results: list[dict[str, Any]], *, dry_run: bool) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(
        Column("campaign", no_wrap=True),
        Column("decisions that would go" if dry_run else "decisions gone", justify="right"),
        Column("outcomes", justify="right"),
        box=None,
    )
    for one in results:
        table.add_row(one["campaign_id"], f"{one['decisions']:,}", f"{one['outcomes']:,}")
    Console().print(table if results else "there are no campaigns")
