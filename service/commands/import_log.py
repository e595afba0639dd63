"""`cbwk campaign import-log`: trains a campaign's model on the log of another system."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from service.commands.console import AsJson, CampaignId, echo_json, file_errors, progress
from service.commands.http import URL_DEFAULT, Url, call, path_segment, require_success, service_client


def import_log(
    campaign: CampaignId,
    file: Annotated[Path, typer.Argument(help="JSON lines with context, arm, reward, costs, optionally probability.")],
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Train a campaign's model on the log of another system, or on an export. Budgets and prices stay."""
    from service.evaluation.log_import import LineError, trained_model
    from service.problems import UnknownRules

    with service_client(url) as client:
        found = call(client, "GET", f"/campaigns/{path_segment(campaign)}")
        path = f"/admin/campaigns/{path_segment(campaign)}/model"
        model = require_success(client.get(path))
        try:
            # A service of version 0.1 does not name the version of its rules.
            config = {**found["config"], "rules": found.get("rules", 1)}
            data, report = trained_model(config, model.content, _lines(file))
        except UnknownRules as problem:
            raise typer.TyperException(problem.detail) from problem
        except LineError as error:
            raise typer.TyperException(f"{file}: {error}") from error
        if not report.rows:
            raise typer.TyperException(f"{file} has no row with an arm, a reward and costs")
        if client.get(path).headers.get("etag") != model.headers.get("etag"):
            raise typer.TyperException(
                "the campaign has learnt from feedback in the meantime, which would be lost: pause it and try again"
            )
        changed = call(client, "PUT", path, content=data)
    if as_json:
        names = ("rows", "skipped", "with_probability", "error", "error_weighted")
        echo_json({**changed, **{name: getattr(report, name) for name in names}})
        return
    typer.echo(f"{campaign} has model {changed['model_version']}, trained on {report.rows} rows")
    if report.skipped:
        typer.echo(f"  {report.skipped} rows without an arm or an outcome were skipped")
    weighted = "" if report.error_weighted is None else f"; {report.error_weighted:.4f} if all arms were played equally"
    typer.echo(f"  root mean square error of the predicted reward, scaled to 0…1: {report.error:.4f}{weighted}")


def _lines(file: Path) -> Iterator[bytes]:
    """Yields the lines of a file and shows the progress."""
    with file_errors(f"read {file}"), file.open("rb") as opened, progress() as bar:
        size, done = file.stat().st_size, 0
        for line in opened:
            done += len(line)
            bar("learning", done, size)
            yield line
