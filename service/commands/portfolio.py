"""`cbwk portfolio`: the portfolios of a running service."""

from pathlib import Path
from typing import Annotated, Any

import typer

from service.commands.console import AsJson, echo_json, file_errors, print_table
from service.commands.http import URL_DEFAULT, Url, call, list_all, path_segment, service_client

app = typer.Typer(rich_markup_mode=None, help="Portfolios of a running service: CBWK_URL, CBWK_API_KEY.")

PortfolioId = Annotated[str, typer.Argument(metavar="PORTFOLIO", help="Id of the portfolio.")]
_ACCOUNT = ("id", "granted", "held", "spent", "overrun", "free")
_WINDOW = ("period", "limit", "held", "spent", "free", "ends_at")


@app.command()
def create(
    file: Annotated[Path, typer.Argument(help="The configuration as JSON; - for stdin.")],
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Create a portfolio and grant its budgets."""
    with file_errors(f"read {file}"):
        body = typer.get_binary_stream("stdin").read() if str(file) == "-" else file.read_bytes()
    with service_client(url) as client:
        created = call(client, "POST", "/portfolios", content=body, headers={"Content-Type": "application/json"})
    _print_version(created, as_json)


@app.command("list")
def list_portfolios(as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """List portfolios and their campaigns in the order of their creation."""
    with service_client(url) as client:
        found = list(list_all(client, "/portfolios"))
    if as_json:
        echo_json(found)
    else:
        rows = ([item["id"], ", ".join(item["campaigns"]), item["version"], item["created_at"]] for item in found)
        print_table(["id", "campaigns", "version", "created_at"], rows, texts=2)


@app.command()
def budget(portfolio: PortfolioId, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """Show the granted, held, spent and free amount of every shared resource and of its windows."""
    with service_client(url) as client:
        found = call(client, "GET", f"/admin/portfolios/{path_segment(portfolio)}/budget")
    if as_json:
        echo_json(found)
        return
    print_table(_ACCOUNT, ([account[name] for name in _ACCOUNT] for account in found["resources"]), texts=1)
    windows = [(account["id"], window) for account in found["resources"] for window in account["windows"]]
    if windows:
        typer.echo()
        print_table(["id", *_WINDOW], ([name, *(window[one] for one in _WINDOW)] for name, window in windows), texts=2)


@app.command()
def set_budget(
    portfolio: PortfolioId,
    budgets: Annotated[list[str], typer.Argument(metavar="RESOURCE=AMOUNT", help="The new total of a resource.")],
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Set the total budgets of a portfolio; below what is spent and held it is refused."""
    body = {"resources": [{"id": name, "budget": amount} for name, amount in map(_parsed, budgets)]}
    with service_client(url) as client:
        changed = call(client, "PATCH", f"/portfolios/{path_segment(portfolio)}", json=body)
    _print_version(changed, as_json)


def _parsed(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError as error:
        raise typer.BadParameter("must be RESOURCE=AMOUNT", param_hint="'RESOURCE=AMOUNT'") from error


def _print_version(portfolio: dict[str, Any], as_json: bool) -> None:
    if as_json:
        echo_json(portfolio)
    else:
        typer.echo(f"{portfolio['id']}, version {portfolio['version']}")
