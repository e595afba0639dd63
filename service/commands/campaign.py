"""`cbwk campaign`: the campaigns of a running service."""

from pathlib import Path
from typing import Annotated, Any

import typer

from service.commands.console import AsJson, echo_json
from service.commands.http import URL_DEFAULT, Url, asked, every, part, service_at
from service.commands.import_log import import_log

app = typer.Typer(rich_markup_mode=None, help="Campaigns of a running service: CBWK_URL, CBWK_API_KEY.")

CampaignId = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Its id.")]


@app.command()
def create(
    file: Annotated[Path, typer.Argument(help="The configuration as JSON; - for stdin.")],
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Make a campaign and grant its budgets."""
    try:
        body = typer.get_binary_stream("stdin").read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise typer.TyperException(f"cannot read {file}: {error.strerror}") from error
    with service_at(url) as client:
        made = asked(client, "POST", "/campaigns", content=body, headers={"Content-Type": "application/json"})
    _tell(made, as_json)


@app.command("list")
def list_campaigns(
    status: Annotated[str | None, typer.Option(help="active, paused or archived.  [default: all]")] = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """List campaigns in the order they were made."""
    with service_at(url) as client:
        found = list(every(client, "/campaigns", **({} if status is None else {"status": status})))
    if as_json:
        echo_json(found)
    else:
        _show_table(["id", "status", "version", "round", "created_at"], found)


@app.command()
def show(campaign: CampaignId, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """Show how a campaign stands: status, round, accounts and prices."""
    with service_at(url) as client:
        found = asked(client, "GET", f"/campaigns/{part(campaign)}")
    if as_json:
        echo_json(found)
        return
    typer.echo(f"{found['id']} is {found['status']}, version {found['version']}, since {found['created_at']}")
    typer.echo(f"{found['round']} decisions, {found['policy_version']} outcomes learnt")
    accounts = [{**account, "price": found["prices"].get(account["id"])} for account in found["accounts"]]
    _show_table([*_ACCOUNT, "price"], accounts)


@app.command()
def pause(campaign: CampaignId, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """Answer every request with the null arm until resumed."""
    _act(campaign, "pause", as_json, url)


@app.command()
def resume(campaign: CampaignId, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """Decide again."""
    _act(campaign, "resume", as_json, url)


@app.command()
def archive(campaign: CampaignId, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """End a campaign for good; its log stays."""
    _act(campaign, "archive", as_json, url)


@app.command()
def budget(
    campaign: Annotated[str | None, typer.Argument(metavar="CAMPAIGN", help="Its id.  [default: all]")] = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Show what is granted, held, spent and free of every resource."""
    with service_at(url) as client:
        if campaign is None:
            found = list(every(client, "/admin/budgets"))
        else:
            found = [asked(client, "GET", f"/admin/campaigns/{part(campaign)}/budget")]
    if as_json:
        echo_json(found if campaign is None else found[0])
        return
    rows = [{**account, "campaign": one["campaign_id"]} for one in found for account in one["resources"]]
    _show_table(["campaign", *_ACCOUNT], rows)


app.command("import-log")(import_log)

_ACCOUNT = ("id", "granted", "held", "spent", "overrun", "free", "pace")
_TEXTS = frozenset({"campaign", "id", "status", "created_at"})


def _act(campaign: str, action: str, as_json: bool, url: str) -> None:
    with service_at(url) as client:
        _tell(asked(client, "POST", f"/campaigns/{part(campaign)}/{action}"), as_json)


def _tell(changed: dict[str, Any], as_json: bool) -> None:
    if as_json:
        echo_json(changed)
    else:
        typer.echo(f"{changed['id']} is {changed['status']}, version {changed['version']}")


def _show_table(columns: list[str], rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    heads = [Column(name, overflow="fold", justify="left" if name in _TEXTS else "right") for name in columns]
    table = Table(*heads, box=None)
    for row in rows:
        table.add_row(*(Text(_cell(row[name])) for name in columns))
    Console().print(table)


def _cell(value: Any) -> str:
    """A number without digits that say nothing.

    >>> _cell(0.25), _cell(12.345678901), _cell(1e9), _cell(None)
    ('0.25', '12.345679', '1000000000', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return str(value)
