"""The `cbwk` command.

A command is a function of this file that reads its options, imports the module that does the work, and calls it.
Whatever goes wrong for a reason the caller can mend is a `typer.TyperException`: one line on stderr and its exit code,
2 for a wrong value and 1 for the rest.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from service.settings import Settings, describe_environment, environment_variable

if TYPE_CHECKING:
    from service.store.database import Database
    from service.store.keys import StoredKey

# Plain help and plain tracebacks: both are read in logs and pipes as often as on a terminal.
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

key_app = typer.Typer(rich_markup_mode=None, help="Make, list and revoke API keys, in the database itself.")
app.add_typer(key_app, name="key")

_ENVIRONMENT_HELP = "\b\nEnvironment:\n" + "\n".join(f"  {line}" for line in describe_environment())


@app.callback()
def cbwk() -> None:
    """Online allocation under several budgets."""


DatabaseUrl = Annotated[
    str | None, typer.Option(help="sqlite:///FILE or postgresql://…; wins over CBWK_DATABASE_URL.", show_default=False)
]


@app.command(epilog=_ENVIRONMENT_HELP)
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; wins over CBWK_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; wins over CBWK_PORT.")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve the HTTP interface until stopped by Ctrl+C or SIGTERM."""
    settings = _settings(host=host, port=port, database_url=database_url)

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


AsJson = Annotated[bool, typer.Option("--json", help="Write JSON.")]


@app.command()
def migrate(database_url: DatabaseUrl = None) -> None:
    """Bring the database to the tables of this version."""
    settings = _settings(database_url=database_url)

    from service.store.database import DatabaseError
    from service.store.migrate import migrate as run_migrations

    try:
        done = run_migrations(settings.database_url)
    except DatabaseError as error:
        raise typer.TyperException(str(error)) from error
    typer.echo(f"{done.before or 'nothing'} → {done.after}")


@key_app.command("create")
def key_create(
    name: Annotated[str, typer.Option(help="Whose key it is, for people to read.")],
    role: Annotated[str, typer.Option(help="decider, reader or admin.")],
    campaign: Annotated[
        list[str] | None, typer.Option(help="A campaign the key is for; may be given several times.  [default: all]")
    ] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a key and show it, this once."""
    from service.store import keys

    with _database(database_url) as database, database.write() as connection:
        try:
            now = database.now_micros(connection)
            key_id, text = keys.create_key(connection, name, role, campaign or None, now, actor="cbwk key")
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="'--role'") from error
    if as_json:
        _echo_json({"id": key_id, "key": text})
    else:
        typer.echo(f"{key_id}, shown only now:", err=True)
        typer.echo(text)


@key_app.command("list")
def key_list(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Show every key there is or was, without its text."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from service.store import keys
    from service.times import moment_text

    with _database(database_url) as database, database.read() as connection:
        found = keys.list_keys(connection)
    if as_json:
        _echo_json([_key_document(key) for key in found])
        return
    table = Table(Column("id", no_wrap=True), "name", "role", "campaigns", "created", "revoked", box=None)
    for key in found:
        campaigns = "all" if key.campaigns is None else ", ".join(sorted(key.campaigns))
        created = moment_text(key.created_at)[:10]
        revoked = "" if key.revoked_at is None else moment_text(key.revoked_at)[:10]
        table.add_row(key.id, Text(key.name), key.role, campaigns, created, revoked)
    Console().print(table)


def _key_document(key: "StoredKey") -> dict[str, Any]:
    from service.times import moment_text

    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "campaigns": None if key.campaigns is None else sorted(key.campaigns),
        "created_at": moment_text(key.created_at),
        "revoked_at": None if key.revoked_at is None else moment_text(key.revoked_at),
    }


@key_app.command("revoke")
def key_revoke(
    key_id: Annotated[str, typer.Argument(help="As `cbwk key list` shows it.")], database_url: DatabaseUrl = None
) -> None:
    """Make a key invalid; servers believe it for at most three seconds more."""
    from service.problems import Problem
    from service.store import keys

    with _database(database_url) as database, database.write() as connection:
        try:
            keys.revoke_key(connection, key_id, database.now_micros(connection), actor="cbwk key")
        except Problem as problem:
            raise typer.TyperException(problem.detail) from problem
    typer.echo(f"{key_id} is revoked")


@contextmanager
def _database(url: str | None) -> Iterator["Database"]:
    """The database of the settings, with the tables of this version; what is wrong with it is one line."""
    from sqlalchemy.exc import SQLAlchemyError

    from service.store.database import Database, DatabaseError
    from service.store.migrate import require_migrated

    settings = _settings(database_url=url)
    try:
        with Database.of(settings) as database:
            require_migrated(database)
            yield database
    except DatabaseError as error:
        raise typer.TyperException(str(error)) from error
    except SQLAlchemyError as error:
        if Database.is_connection_error(error):
            raise typer.TyperException("the database did not answer") from error
        raise


def _echo_json(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


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
