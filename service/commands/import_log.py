"""`cbwk campaign import-log`: a campaign goes on from what the log of another system teaches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from service.commands.console import AsJson, echo_json, progress_bar
from service.commands.http import URL_DEFAULT, Url, asked, part, refusal, service_at


def import_log(
    campaign: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Its id.")],
    file: Annotated[Path, typer.Argument(help="JSON lines with context, arm, reward, costs, perhaps probability.")],
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Teach a campaign's model the log of another system, or an export: a warm start. Budgets and prices stay."""
    from service.evaluation.warm_start import BadLine, warm_started
    from service.problems import UnknownRules

    with service_at(url) as client:
        found = asked(client, "GET", f"/campaigns/{part(campaign)}")
        path = f"/admin/campaigns/{part(campaign)}/model"
        model = client.get(path)
        if not model.is_success:
            raise refusal(model)
        try:
            # A service of version 0.1 answers no version of the rules.
            config = {**found["config"], "rules": found.get("rules", 1)}
            data, learnt = warm_started(config, model.content, _lines(file))
        except UnknownRules as problem:
            raise typer.TyperException(problem.detail) from problem
        except BadLine as error:
            raise typer.TyperException(f"{file}: {error}") from error
        if not learnt.rows:
            raise typer.TyperException(f"{file} has no row with an arm, a reward and costs")
        now = client.get(path)
        if now.headers.get("etag") != model.headers.get("etag"):
            raise typer.TyperException("the campaign has learnt meanwhile, which would be lost: pause it and try again")
        changed = asked(client, "PUT", path, content=data)
    told = {
        **changed,
        "rows": learnt.rows,
        "skipped": learnt.skipped,
        "with_probability": learnt.with_probability,
        "error": learnt.error,
        "error_weighted": learnt.error_weighted,
    }
    if as_json:
        echo_json(told)
        return
    typer.echo(f"{campaign} goes on from model {changed['model_version']}, taught {learnt.rows} rows")
    if learnt.skipped:
        typer.echo(f"  {learnt.skipped} rows without an arm or an outcome were passed over")
    weighted = "" if learnt.error_weighted is None else f"; {learnt.error_weighted:.4f} as if arms were played alike"
    typer.echo(
        f"  a reward, scaled to 0…1, was off by {learnt.error:.4f} (root mean square) before it was learnt{weighted}"
    )


def _lines(file: Path) -> Iterator[bytes]:
    """The lines of a file, with a bar for how much of it was read."""
    try:
        with file.open("rb") as opened, progress_bar() as bar:
            size, done = file.stat().st_size, 0
            for line in opened:
                done += len(line)
                bar("learning", done, size)
                yield line
    except OSError as error:
        raise typer.TyperException(f"cannot read {file}: {error.strerror}") from error
