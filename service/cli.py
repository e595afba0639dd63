"""The `cbwk` command.

A command is a function of this file that reads its options, imports the module that does the work, and calls it.
Whatever goes wrong for a reason the caller can mend is a `typer.TyperException`: one line on stderr and its exit code,
2 for a wrong value and 1 for the rest.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from service.settings import Settings, describe_environment, environment_variable

# Plain help and plain tracebacks: both are read in logs and pipes as often as on a terminal.
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

_ENVIRONMENT_HELP = "\b\nEnvironment:\n" + "\n".join(f"  {line}" for line in describe_environment())


@app.callback()
def cbwk() -> None:
    """Online allocation under several budgets."""


@app.command(epilog=_ENVIRONMENT_HELP)
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; wins over CBWK_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; wins over CBWK_PORT.")] = None,
) -> None:
    """Serve the HTTP interface until stopped by Ctrl+C or SIGTERM."""
    settings = _settings(host=host, port=port)

    from service import server

    try:
        listener = server.listen(settings.host, settings.port)
    except OSError as error:
        raise typer.TyperException(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
    typer.echo(f"cbwk serves on {server.url_of(listener)}", err=True)
    server.serve(listener)


def _settings(**options: str | int | None) -> Settings:
    """The settings of the environment, with the options that were given in their place."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        # The value itself is not shown: a setting may be a secret.
        first = error.errors(include_input=False, include_url=False)[0]
        name = str(first["loc"][0])
        hint = f"--{name.replace('_', '-')}" if name in given else environment_variable(name)
        raise typer.BadParameter(first["msg"], param_hint=repr(hint)) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(arguments or ["--help"], prog_name="cbwk", standalone_mode=False)
    except typer.TyperException as error:
        typer.echo(f"cbwk: {' '.join(error.format_message().split())}", err=True)
        return error.exit_code
    return code if isinstance(code, int) else 0
