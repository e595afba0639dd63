"""The `cbwk` command.

A command is a function in this file or in `service.commands`; it reads its options and imports only what it needs.
An error that the caller can fix is one line on stderr. The exit code is 2 for a wrong value; it is 1 otherwise, for a
`DatabaseError` and for a `Problem` too.
"""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from service.commands import bench, campaign, demo, evaluate, export, key, portfolio, prune, simulate, verify
from service.commands.console import DatabaseUrl, settings_of
from service.problems import Problem
from service.settings import describe_environment, unknown_variables
from service.store.errors import DatabaseError

# Help and tracebacks without decoration: logs and pipes show them as often as terminals.
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

_ENVIRONMENT_HELP = "\b\nEnvironment:\n" + "\n".join(f"  {line}" for line in describe_environment())


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cbwk {version('cbwk')}")
        raise typer.Exit


@app.callback()
def cbwk(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Online allocation under several budgets."""


@app.command(epilog=_ENVIRONMENT_HELP)
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; overrides CBWK_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; overrides CBWK_PORT.")] = None,
    database_url: DatabaseUrl = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes, on this port and the following ones; needs PostgreSQL.")
    ] = 1,
    print_haproxy: Annotated[
        bool, typer.Option("--print-haproxy", help="Print HAProxy's configuration for these processes, and exit.")
    ] = False,
) -> None:
    """Serve the HTTP interface until stopped by Ctrl+C or SIGTERM."""
    settings = settings_of(host=host, port=port, database_url=database_url)
    for line in unknown_variables(os.environ):
        typer.echo(f"cbwk: {line}", err=True)
    from service.commands import workers as team

    if workers > 1:
        team.check(settings, workers)
    if print_haproxy:
        typer.echo(team.balancer(settings, workers), nl=False)
        return

    from service import logs, server
    from service.app import Instrumentation
    from service.auth import bootstrap_admin_key
    from service.store.database import Database
    from service.store.migrate import migrate as run_migrations

    instrumentation_of: Callable[[], Instrumentation] = Instrumentation
    if settings.traces:  # before anything else is done: its packages may be missing
        from service import tracing

        instrumentation_of = tracing.start

    logs.configure_logs(settings.log_level)
    listener = _listener(settings.host, settings.port)
    if workers > 1:
        listener.close()
        for each in team.ports(settings, workers)[1:]:
            _listener(settings.host, each).close()
    admin_key = None if settings.admin_key is None else settings.admin_key.get_secret_value()
    run_migrations(settings.database_url)
    database = Database.of(settings)
    bootstrap_admin_key(database, admin_key=admin_key, stderr=sys.stderr)
    if workers > 1:
        database.close()
        raise typer.Exit(team.supervise(settings, workers))
    typer.echo(f"cbwk serves on {server.url_of(listener)}", err=True)
    server.serve(settings, listener, database, instrumentation_of())


def _listener(host: str, port: int) -> socket.socket:
    from service import server

    try:
        return server.listen(host, port)
    except OSError as error:
        raise typer.TyperException(f"cannot listen on {host}:{port}: {error.strerror}") from error


@app.command()
def migrate(database_url: DatabaseUrl = None) -> None:
    """Migrate the database to the tables of this version."""
    settings = settings_of(database_url=database_url)

    from service.store.migrate import migrate as run_migrations

    done = run_migrations(settings.database_url)
    typer.echo(f"{done.before or 'nothing'} → {done.after}")


app.command()(simulate.simulate)
app.command()(simulate.reproduce)
app.command()(demo.demo)
app.command()(verify.verify)
app.command()(verify.replay)
app.command()(prune.prune)
app.command()(export.export)
app.command()(evaluate.evaluate)
app.command()(bench.bench)
app.add_typer(key.app, name="key")
app.add_typer(campaign.app, name="campaign")
app.add_typer(portfolio.app, name="portfolio")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code of the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(arguments or ["--help"], prog_name="cbwk", standalone_mode=False)
    except typer.TyperException as error:
        message, code = error.format_message(), error.exit_code
    except (DatabaseError, Problem) as error:
        message, code = str(error), 1
    else:
        return code if isinstance(code, int) else 0
    typer.echo(f"cbwk: {' '.join(message.split())}", err=True)
    return code
