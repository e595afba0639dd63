"""The `cbwk` command.

A command is a function of this file or of `service.commands` that reads its options, imports the module that does the
work, and calls it.
Whatever goes wrong for a reason the caller can mend is a `typer.TyperException`: one line on stderr and its exit code,
2 for a wrong value and 1 for the rest.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from service.commands import bench, campaign, demo, export, key, prune, replay, verify
from service.commands.parts import DatabaseUrl, settings_of
from service.settings import describe_environment

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
    database_url: DatabaseUrl = None,
) -> None:
    """Serve the HTTP interface until stopped by Ctrl+C or SIGTERM."""
    settings = settings_of(host=host, port=port, database_url=database_url)

    from service import logs, server
    from service.auth import bootstrap_admin_key
    from service.store.database import Database, DatabaseError
    from service.store.migrate import migrate as run_migrations

    logs.configure_logs(settings.log_level)
    try:
        listener = server.listen(settings.host, settings.port)
    except OSError as error:
        raise typer.TyperException(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
    admin_key = None if settings.admin_key is None else settings.admin_key.get_secret_value()
    try:
        run_migrations(settings.database_url)
        database = Database.of(settings)
        bootstrap_admin_key(database, admin_key=admin_key, stderr=sys.stderr)
    except DatabaseError as error:
        raise typer.TyperException(str(error)) from error
    typer.echo(f"cbwk serves on {server.url_of(listener)}", err=True)
    server.serve(settings, listener, database)


@app.command()
def migrate(database_url: DatabaseUrl = None) -> None:
    """Bring the database to the tables of this version."""
    settings = settings_of(database_url=database_url)

    from service.store.database import DatabaseError
    from service.store.migrate import migrate as run_migrations

    try:
        done = run_migrations(settings.database_url)
    except DatabaseError as error:
        raise typer.TyperException(str(error)) from error
    typer.echo(f"{done.before or 'nothing'} → {done.after}")


_OUT_HELP = "Directory for what is written; made if it is not there."


@app.command()
def simulate(
    environment: Annotated[str, typer.Option(help="paper, linear, logistic or bumps.")] = "paper",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="practical, paper, authors, linucb, egreedy, thompson, egreedy-paced or thompson-paced; may be given "
            "several times.  [default: practical and linucb]"
        ),
    ] = None,
    horizon: Annotated[int, typer.Option(help="Rounds of a run.")] = 2000,
    runs: Annotated[int, typer.Option(help="Runs, which all advance together.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the first run; the others follow.")] = 0,
    delay: Annotated[int, typer.Option(help="Rounds until an outcome is known.")] = 0,
    missing: Annotated[float, typer.Option(help="Share of the outcomes that are never reported.")] = 0.0,
    budget: Annotated[
        list[float] | None,
        typer.Option(help="Budget of every resource, or given once for each.  [default: a quarter of the horizon]"),
    ] = None,
    arms: Annotated[int | None, typer.Option(help="Arms, without the null arm.")] = None,
    dimension: Annotated[int | None, typer.Option(help="Length of a feature vector.")] = None,
    resources: Annotated[int | None, typer.Option(help="Resources that are paid for.")] = None,
    oracle: Annotated[str, typer.Option(help="Of SquareCBwK: newton, gradient, aggregate or kernel.")] = "newton",
    link: Annotated[str, typer.Option(help="Of SquareCBwK's reward: identity or logistic.")] = "identity",
    out: Annotated[Path, typer.Option(help=_OUT_HELP)] = Path("out"),
) -> None:
    """Run policies in one environment: a table of regret, spend and overspend, and a picture of regret over time."""
    from rich.console import Console

    from cbwk_core.simulation.simulate import Simulation
    from cbwk_core.simulation.simulate import simulate as run_simulation

    try:
        simulation = Simulation(
            environment=environment,
            policies=tuple(policy or ("practical", "linucb")),
            horizon=horizon,
            runs=runs,
            seed=seed,
            delay=delay,
            missing=missing,
            budget=tuple(budget or ()),
            arms=arms,
            dimension=dimension,
            resources=resources,
            oracle=oracle,
            link=link,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    _make_directory(out)
    run_simulation(simulation, out=out, console=Console(), progress_console=Console(stderr=True))


@app.command()
def reproduce(
    figure: Annotated[str, typer.Option(help="1a, 1b, 1c, 1d or all.")] = "all",
    runs: Annotated[int, typer.Option(help="Runs of every cell; the authors have 10.", min=1, max=1000)] = 10,
    out: Annotated[Path, typer.Option(help=_OUT_HELP)] = Path("out"),
) -> None:
    """Run the grids of the paper's figures and Table 3 anew: pictures, results.csv and table3.md."""
    from rich.console import Console

    from cbwk_core.simulation import figures, grids

    try:
        chosen = grids.chosen_figures(figure)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--figure'") from error
    _make_directory(out)
    figures.reproduce(
        chosen, grids.reference(), runs=runs, out=out, console=Console(), progress_console=Console(stderr=True)
    )


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.TyperException(f"cannot make the directory {path}: {error.strerror}") from error


app.command()(demo.demo)
app.command()(verify.verify)
app.command()(replay.replay)
app.command()(prune.prune)
app.command()(export.export)
app.command()(bench.bench)
app.add_typer(key.app, name="key")
app.add_typer(campaign.app, name="campaign")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(arguments or ["--help"], prog_name="cbwk", standalone_mode=False)
    except typer.TyperException as error:
        typer.echo(f"cbwk: {' '.join(error.format_message().split())}", err=True)
        return error.exit_code
    return code if isinstance(code, int) else 0
