"""`cbwk export`: every decision of a campaign with its outcome."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer

from service.commands.console import CampaignId, file_errors, progress
from service.commands.http import URL_DEFAULT, Url, call, path_segment, require_success, service_client

# In these formats one line is one decision.
LINE_FORMATS = ("jsonl", "csv")


def export(
    campaign: CampaignId,
    form: Annotated[
        Literal["jsonl", "csv", "parquet", "obp", "dsjson"],
        typer.Option("--format", help="obp: numpy arrays; dsjson: Vowpal Wabbit."),
    ] = "jsonl",
    out: Annotated[Path | None, typer.Option(help="The file to write.  [default: stdout]")] = None,
    url: Url = URL_DEFAULT,
) -> None:
    """Write every decision of a campaign with its outcome, oldest first."""
    with service_client(url) as client, progress() as bar:
        rounds = call(client, "GET", f"/campaigns/{path_segment(campaign)}")["round"]
        total, done = (rounds if form in LINE_FORMATS else None), 0
        path = f"/admin/campaigns/{path_segment(campaign)}/export"
        with client.stream("GET", path, params={"format": form}) as response:
            if not response.is_success:
                response.read()
                require_success(response)
            with _destination(out) as file:
                for chunk in response.iter_bytes():
                    file.write(chunk)
                    done += chunk.count(b"\n")
                    bar("decisions", done if total is not None else 0, total)


@contextmanager
def _destination(out: Path | None) -> Iterator[BinaryIO]:
    """Opens stdout, or a file that gets its name when it is complete."""
    with file_errors(f"write {out or 'to stdout'}"):
        if out is None:
            stdout = typer.get_binary_stream("stdout")
            yield stdout
            stdout.flush()
            return
        temporary = out.with_name(f"{out.name}.{secrets.token_hex(4)}")
        try:
            with temporary.open("xb") as file:
                yield file
            temporary.replace(out)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
