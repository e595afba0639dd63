"""`cbwk campaign`: the campaigns of a running service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from service.commands.console import (
    AnyCampaign,
    AsJson,
    CampaignId,
    cell,
    echo_json,
    file_errors,
    print_table,
    progress,
)
from service.commands.http import URL_DEFAULT, Url, call, list_all, path_segment, require_success, service_client

app = typer.Typer(rich_markup_mode=None, help="Campaigns of a running service: CBWK_URL, CBWK_API_KEY.")

Resource = Annotated[str, typer.Argument(metavar="RESOURCE", help="Resource id.")]

_JSON = {"Content-Type": "application/json"}
_ACCOUNT = ("id", "granted", "held", "spent", "overrun", "free", "pace")


@app.command()
def create(
    file: Annotated[Path, typer.Argument(help="The configuration as JSON; - for stdin.")],
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Create a campaign and grant its budgets."""
    with service_client(url) as client:
        created = call(client, "POST", "/campaigns", content=_bytes(file), headers=_JSON)
    _print_status(created, as_json)


@app.command()
def clone(
    campaign: CampaignId,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Id of the copy.")],
    horizon: Annotated[int | None, typer.Option(help="Expected number of decisions.  [default: the same]")] = None,
    ends_at: Annotated[str | None, typer.Option(help="End, such as 2030-01-31T00:00:00Z.  [default: the same]")] = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Create a campaign with the configuration of another one, without retired arms and without what it learnt."""
    with service_client(url) as client:
        config = call(client, "GET", f"/campaigns/{path_segment(campaign)}")["config"]
        arms = [arm for arm in config["arms"] if not arm.get("retired")]
        statuses = [{"id": arm["id"], "status": arm.pop("status")} for arm in arms if "status" in arm]
        # The copy draws its own seed, and its estimates are its own.
        copy = {name: value for name, value in config.items() if name not in ("seed", "estimate", "starts_at")}
        copy |= {"id": new, "arms": arms}
        if horizon is not None or ends_at is not None:
            copy |= {"horizon": horizon, "ends_at": ends_at}
        made = call(client, "POST", "/campaigns", json=copy)
        if any(each["status"] == "paused" for each in statuses):
            made = call(client, "PATCH", f"/campaigns/{path_segment(new)}", json={"arms": statuses})
    _print_status(made, as_json)


@app.command()
def change(
    campaign: CampaignId,
    file: Annotated[Path, typer.Argument(help="The changes as JSON, as PATCH takes them; - for stdin.")],
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Change end, arms, windows, feedback terms, hold-out or names; the campaign keeps what it has learnt."""
    with service_client(url) as client:
        path = f"/campaigns/{path_segment(campaign)}"
        _print_status(call(client, "PATCH", path, content=_bytes(file), headers=_JSON), as_json)


@app.command()
def set_budget(
    campaign: CampaignId,
    resource: Resource,
    amount: Annotated[float, typer.Argument(help="The new total, spent and held included.")],
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Set the budget of a resource, not below what is spent and held."""
    body = {"resources": [{"id": resource, "budget": amount}]}
    with service_client(url) as client:
        _print_status(call(client, "PATCH", f"/campaigns/{path_segment(campaign)}", json=body), as_json)


# An amount may begin with a minus, which would otherwise be an option.
@app.command(context_settings={"ignore_unknown_options": True})
def adjust(
    campaign: CampaignId,
    resource: Resource,
    amount: Annotated[float, typer.Argument(help="Added to the spent amount; negative to take back.")],
    reason: Annotated[str, typer.Option(help="For the audit log.")],
    idempotency_key: Annotated[
        str | None, typer.Option(help="A repetition with the same key within 24 hours changes nothing.")
    ] = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Correct the spent amount of a resource."""
    body = {"resource": resource, "amount": amount, "reason": reason}
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    path = f"/admin/campaigns/{path_segment(campaign)}/adjust"
    with service_client(url) as client:
        adjusted = call(client, "POST", path, json=body, headers=headers)
    if as_json:
        echo_json(adjusted)
    else:
        amounts = [f"{name} {cell(adjusted[name])}" for name in ("spent", "overrun", "free")]
        typer.echo(f"{resource} of {campaign}: {', '.join(amounts)}")


@app.command()
def uplift(campaign: CampaignId, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """Compare the policy with its hold-out, or with the caller in shadow mode."""
    with service_client(url) as client:
        found = call(client, "GET", f"/admin/campaigns/{path_segment(campaign)}/uplift")
    if as_json:
        echo_json(found)
    elif found["holdout"] is not None:
        _print_holdout(found["holdout"])
    elif found["shadow"] is not None:
        names = ("id", "did", "would_have")
        print_table(names, ([each[name] for name in names] for each in found["shadow"]["arms"]), texts=1)
    else:
        typer.echo(f"{campaign} has neither a hold-out nor shadow mode")


def _print_holdout(report: dict[str, Any]) -> None:
    groups, uplift = report["groups"], report["uplift"]
    shown = ("decisions", "plays", "open", "mean_reward")
    rows = [[name, *(groups[name][key] for key in shown)] for name in ("policy", "holdout")]
    print_table(["group", *shown], rows, texts=1)
    differences = {"reward": uplift["reward"]}
    differences |= {f"cost in {name}": each for name, each in uplift["costs"].items()}
    differences |= {f"reward per {name}": each for name, each in uplift["reward_per_cost"].items()}
    ends = ("value", "lower", "upper")
    rows = [[name, *(each[end] for end in ends)] for name, each in differences.items()]
    print_table([f"policy minus hold-out ({100 * report['level']:g} %)", *ends], rows, texts=1)


@app.command("list")
def list_campaigns(
    status: Annotated[
        str | None, typer.Option(help="scheduled, active, paused, ended or archived.  [default: all]")
    ] = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """List campaigns in the order of their creation."""
    with service_client(url) as client:
        found = list(list_all(client, "/campaigns", **({} if status is None else {"status": status})))
    if as_json:
        echo_json(found)
    else:
        columns = ["id", "status", "version", "round", "created_at"]
        print_table(columns, ([item[name] for name in columns] for item in found), texts=2)


@app.command()
def show(campaign: CampaignId, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """Show the status, round, accounts and prices of a campaign."""
    with service_client(url) as client:
        found = call(client, "GET", f"/campaigns/{path_segment(campaign)}")
    if as_json:
        echo_json(found)
        return
    typer.echo(f"{found['id']} is {found['status']}, version {found['version']}, since {found['created_at']}")
    typer.echo(f"{found['round']} decisions, {found['policy_version']} outcomes learnt")
    prices = found["prices"]
    rows = ([*(account[name] for name in _ACCOUNT), prices.get(account["id"])] for account in found["accounts"])
    print_table([*_ACCOUNT, "price"], rows, texts=1)


@app.command()
def pause(campaign: CampaignId, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """Answer every request with the null arm until resumed."""
    _act(campaign, "pause", as_json, url)


@app.command()
def resume(campaign: CampaignId, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """End a pause."""
    _act(campaign, "resume", as_json, url)


@app.command()
def archive(campaign: CampaignId, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """End a campaign permanently; its log stays."""
    _act(campaign, "archive", as_json, url)


@app.command()
def budget(campaign: AnyCampaign = None, as_json: AsJson = False, url: Url = URL_DEFAULT) -> None:
    """Show the granted, held, spent and free amount of every resource."""
    with service_client(url) as client:
        if campaign is None:
            found = list(list_all(client, "/admin/budgets"))
        else:
            found = [call(client, "GET", f"/admin/campaigns/{path_segment(campaign)}/budget")]
    if as_json:
        echo_json(found if campaign is None else found[0])
        return
    accounts = [(item["campaign_id"], account) for item in found for account in item["resources"]]
    rows = ([campaign_id, *(account[name] for name in _ACCOUNT)] for campaign_id, account in accounts)
    print_table(["campaign", *_ACCOUNT], rows, texts=2)


@app.command()
def import_log(
    campaign: CampaignId,
    file: Annotated[Path, typer.Argument(help="JSON lines with context, arm, reward, costs, optionally probability.")],
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Train a campaign's model on the log of another system, or on an export. Budgets and prices stay."""
    from service.evaluation.log_import import LineError, trained_model

    with service_client(url) as client:
        found = call(client, "GET", f"/campaigns/{path_segment(campaign)}")
        path = f"/admin/campaigns/{path_segment(campaign)}/model"
        model = require_success(client.get(path))
        try:
            # A service of version 0.1 does not name the version of its rules.
            config = {**found["config"], "rules": found.get("rules", 1)}
            data, report = trained_model(config, model.content, _lines(file))
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


def _bytes(file: Path) -> bytes:
    with file_errors(f"read {file}"):
        return typer.get_binary_stream("stdin").read() if str(file) == "-" else file.read_bytes()


def _lines(file: Path) -> Iterator[bytes]:
    """Yields the lines of a file and shows the progress."""
    with file_errors(f"read {file}"), file.open("rb") as opened, progress() as bar:
        size, done = file.stat().st_size, 0
        for line in opened:
            done += len(line)
            bar("learning", done, size)
            yield line


def _act(campaign: str, action: str, as_json: bool, url: str) -> None:
    with service_client(url) as client:
        _print_status(call(client, "POST", f"/campaigns/{path_segment(campaign)}/{action}"), as_json)


def _print_status(campaign: dict[str, Any], as_json: bool) -> None:
    if as_json:
        echo_json(campaign)
    else:
        typer.echo(f"{campaign['id']} is {campaign['status']}, version {campaign['version']}")
