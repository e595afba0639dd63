"""`cbwk export`: every decision of a campaign with its outcome."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from service.commands.http import URL_DEFAULT, Url, asked, part, refusal, service_at

FORMATS = ("jsonl", "csv", "parquet", "obp", "dsjson")
# Of these one line is one decision.
LINES = ("jsonl", "csv")


def export(
    campaign: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Its id.")],
    form: Annotated[
        str, typer.Option("--format", help="jsonl, csv, parquet, obp (arrays of numpy) or dsjson (Vowpal Wabbit).")
    ] = "jsonl",
    out: Annotated[Path | None, typer.Option(help="The file to write.  [default: stdout]")] = None,
    url: Url = URL_DEFAULT,
) -> None:
    """Write every decision of a campaign with its outcome, oldest first."""
    if form not in FORMATS:
        raise typer.BadParameter(f"must be one of {', '.join(FORMATS)}", param_hint="'--format'")
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with service_at(url) as client, Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        rounds = asked(client, "GET", f"/campaigns/{part(campaign)}")["round"]
        task = bar.add_task("decisions", total=rounds if form in LINES else None)
        path = f"/admin/campaigns/{part(campaign)}/export"
        with client.stream("GET", path, params={"format": form}) as answer:
            if not answer.is_success:
                answer.read()
                raise refusal(answer)
            with _destination(out) as file:
                for piece in answer.iter_bytes():
                    file.write(piece)
                    bar.advance(task, piece.count(b"\n") if form in LINES else 0)


@contextmanager
def _destination(out: Path | None) -> Iterator[BinaryIO]:
    """Stdout, or a file that gets its name when it is complete."""
    try:
        if out is None:
            stdout = typer.get_binary_stream("stdout")
            yield stdout
            stdout.flush()
            return
        made = out.with_name(f"{out.name}.{secrets.token_hex(4)}")
        try:
            with made.open("xb") as file:
                yield file
            made.replace(out)
        finally:
            with suppress(FileNotFoundError):
                made.unlink()
    except OSError as error:
        raise typer.TyperException(f"cannot write {out or 'to stdout'}: {error.strerror}") from error
