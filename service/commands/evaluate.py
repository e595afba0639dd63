"""`cbwk evaluate`: what other policies, or other budgets, would have come to."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.commands.console import AsJson, echo_json, progress_bar
from service.commands.http import URL_DEFAULT, Url, asked, part, service_at

if TYPE_CHECKING:
    import httpx

POLL_SECONDS = 0.2
ESTIMATORS = {"ips": "IPS", "snips": "SNIPS", "dr": "DR"}


def evaluate(
    campaign: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Its id.")],
    arm: Annotated[
        list[str] | None, typer.Option(help="Evaluate always playing this arm; may be given several times.")
    ] = None,
    uniform: Annotated[bool, typer.Option("--uniform", help="Evaluate every eligible arm alike.")] = False,
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            help="Evaluate another `policy` of a configuration, from a JSON file; may be given several times."
        ),
    ] = None,
    budget: Annotated[
        list[str] | None, typer.Option(help="RESOURCE=AMOUNT, once for each.  [default: the campaign's own]")
    ] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Fly the campaign's own policy over its log again, with these budgets.")
    ] = False,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    rounds_max: Annotated[int | None, typer.Option(help="Take the newest so many rounds.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed on the same log, the same result.")] = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Ask the log of a campaign what other policies, or other budgets, would have earned and spent."""
    candidates: list[dict[str, Any]] = [{"type": "fixed", "arm": one} for one in arm or ()]
    candidates += [{"type": "uniform"}] if uniform else []
    candidates += [{"type": "policy", "policy": _policy(file)} for file in policy or ()]
    if not candidates and not what_if:
        raise typer.BadParameter("nothing to evaluate: give --arm, --uniform, --policy or --what-if")
    body = {"candidates": candidates, "budgets": dict(map(_budget, budget or ())), "what_if": what_if, "level": level}
    body |= {} if rounds_max is None else {"rounds_max": rounds_max}
    body |= {} if seed is None else {"seed": seed}
    with service_at(url) as client:
        path = f"/admin/campaigns/{part(campaign)}/evaluations"
        started = asked(client, "POST", path, json=body)
        found = _finished(client, f"{path}/{part(started['id'])}")
    if found["status"] == "failed":
        raise typer.TyperException(f"the evaluation failed: {found['error']['code']}: {found['error']['message']}")
    if as_json:
        echo_json(found)
    else:
        _show(found["result"])


def _policy(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise typer.TyperException(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise typer.TyperException(f"{file} is not JSON: {error}") from error


def _budget(text: str) -> tuple[str, float]:
    """A resource and an amount.

    >>> _budget("usd=100")
    ('usd', 100.0)
    """
    name, found, amount = text.rpartition("=")
    try:
        if found:
            return name, float(amount)
    except ValueError:
        pass
    raise typer.BadParameter("must be RESOURCE=AMOUNT", param_hint="'--budget'")


def _finished(client: "httpx.Client", path: str) -> Any:
    with progress_bar() as bar:
        while True:
            found = asked(client, "GET", path)
            if found["status"] in ("done", "failed"):
                return found
            bar(found["status"], round(1000 * found["progress"]), 1000)
            time.sleep(POLL_SECONDS)


def _show(result: dict[str, Any]) -> None:
    left_out = ", ".join(f"{count} {why}" for why, count in result["left_out"].items() if count)
    typer.echo(f"{result['rounds']} rounds" + (f"; left out: {left_out}" if left_out else ""))
    if result["candidates"]:
        _show_estimates(result)
    for one in result["candidates"]:
        typer.echo(f"\n{_named(one['candidate'])}: {one['summary']}")
        typer.echo(f"  {one['effective_sample_size']:.0f} effective rounds")
        for warning in one["warnings"]:
            typer.echo(f"  caution: {warning['text']}")
    if result["candidates"]:
        typer.echo(f"\n{result['restriction']}")
    if result["what_if"] is not None:
        _show_what_if(result)


def _show_estimates(result: dict[str, Any]) -> None:
    """Means per round with both intervals, one line for each estimator and outcome."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    share = f"{100 * result['level']:g} %"
    heads = ["policy", "per round", "by", "value", f"bootstrap {share}", f"Bernstein {share}"]
    table = Table(
        *(Column(head, overflow="fold", justify="right" if i > 2 else "left") for i, head in enumerate(heads))
    )
    table.box = None
    names = ["reward", *result["logged"]["costs"]]
    means = [result["logged"]["reward"], *result["logged"]["costs"].values()]
    for name, mean in zip(names, means, strict=True):
        table.add_row("what happened", Text(name), "", f"{mean:.4g}", "", "")
    for one in result["candidates"]:
        for name in names:
            for key, label in ESTIMATORS.items():
                estimate = one["estimates"][key]
                cell = estimate["reward"] if name == "reward" else estimate["costs"][name]
                ends = [_ends(cell["bootstrap"]), _ends(cell["bernstein"])]
                table.add_row(Text(_named(one["candidate"])), Text(name), label, f"{cell['value']:.4g}", *ends)
    Console().print(table)


def _show_what_if(result: dict[str, Any]) -> None:
    """What the flights came to at their end, beside what happened."""
    from rich.console import Console
    from rich.table import Column, Table

    found = result["what_if"]
    resources = list(found["actual"]["spent"])
    heads = ["", "reward", *(f"{name} spent" for name in resources), *(f"one more {name}" for name in resources)]
    table = Table(*(Column(head, overflow="fold", justify="right" if i else "left") for i, head in enumerate(heads)))
    table.box = None
    for label, one in (
        ("with these budgets", found["changed"]),
        ("with its own, as a check", found["control"]),
        ("what happened", found["actual"]),
    ):
        worth = one.get("marginal_value") or {}
        spent = [f"{one['spent'][name][-1]:.4g}" for name in resources]
        values = [f"{worth[name][-1]:.4g}" if name in worth else "–" for name in resources]
        table.add_row(label, f"{one['reward'][-1]:.4g}", *spent, *values)
    typer.echo("")
    Console().print(table)
    typer.echo(found["assumption"])


def _named(candidate: dict[str, Any]) -> str:
    """A candidate in a few words.

    >>> _named({"type": "fixed", "arm": "a"}), _named({"type": "uniform"})
    ('always a', 'uniform')
    """
    if candidate["type"] == "fixed":
        return f"always {candidate['arm']}"
    if candidate["type"] == "uniform":
        return "uniform"
    policy = candidate["policy"]
    return f"{policy['preset']}, {policy['oracle']['kind']}"


def _ends(interval: list[float | None]) -> str:
    return "–".join("?" if end is None else f"{end:.4g}" for end in interval)
