"""`cbwk evaluate`: estimates other policies, or other budgets, from a campaign's log."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.commands.console import AsJson, CampaignId, echo_json, file_errors, print_table, progress
from service.commands.http import URL_DEFAULT, Url, call, path_segment, service_client

if TYPE_CHECKING:
    import httpx

POLL_SECONDS = 0.2
ESTIMATORS = {"ips": "IPS", "snips": "SNIPS", "dr": "DR"}


def evaluate(
    campaign: CampaignId,
    arm: Annotated[
        list[str] | None, typer.Option(help="Evaluate always playing this arm; may be given several times.")
    ] = None,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Evaluate playing all eligible arms equally often.")
    ] = False,
    policy: Annotated[
        list[Path] | None,
        typer.Option(help="Evaluate the `policy` of a configuration, from a JSON file; may be given several times."),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(help="RESOURCE=AMOUNT; may be given several times.  [default: the campaign's own budgets]"),
    ] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Run the campaign's own policy over its log again, with these budgets.")
    ] = False,
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    rounds_max: Annotated[int | None, typer.Option(help="Use at most this number of rounds, the newest.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed on the same log gives the same result.")] = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
) -> None:
    """Estimate from a campaign's log what other policies, or other budgets, would have earned and spent."""
    candidates: list[dict[str, Any]] = [{"type": "fixed", "arm": name} for name in arm or ()]
    candidates += [{"type": "uniform"}] if uniform else []
    candidates += [{"type": "policy", "policy": _policy(file)} for file in policy or ()]
    if not candidates and not what_if:
        raise typer.BadParameter("nothing to evaluate: give --arm, --uniform, --policy or --what-if")
    body = {"candidates": candidates, "budgets": dict(map(_budget, budget or ())), "what_if": what_if, "level": level}
    body |= {} if rounds_max is None else {"rounds_max": rounds_max}
    body |= {} if seed is None else {"seed": seed}
    with service_client(url) as client:
        path = f"/admin/campaigns/{path_segment(campaign)}/evaluations"
        started = call(client, "POST", path, json=body)
        evaluation = _finished(client, f"{path}/{path_segment(started['id'])}")
    if evaluation["status"] == "failed":
        error = evaluation["error"]
        raise typer.TyperException(f"the evaluation failed: {error['code']}: {error['message']}")
    if as_json:
        echo_json(evaluation)
    else:
        _print_result(evaluation["result"])


def _policy(file: Path) -> Any:
    try:
        with file_errors(f"read {file}"):
            return json.loads(file.read_bytes())
    except ValueError as error:
        raise typer.TyperException(f"{file} is not JSON: {error}") from error


def _budget(text: str) -> tuple[str, float]:
    """Returns a resource and an amount.

    >>> _budget("usd=100")
    ('usd', 100.0)
    """
    name, separator, amount = text.rpartition("=")
    try:
        if separator:
            return name, float(amount)
    except ValueError:
        pass
    raise typer.BadParameter("must be RESOURCE=AMOUNT", param_hint="'--budget'")


def _finished(client: "httpx.Client", path: str) -> Any:
    with progress() as bar:
        while True:
            evaluation = call(client, "GET", path)
            if evaluation["status"] in ("done", "failed"):
                return evaluation
            bar(evaluation["status"], round(1000 * evaluation["progress"]), 1000)
            time.sleep(POLL_SECONDS)


def _print_result(result: dict[str, Any]) -> None:
    left_out = ", ".join(f"{count} {reason}" for reason, count in result["left_out"].items() if count)
    typer.echo(f"{result['rounds']} rounds" + (f"; left out: {left_out}" if left_out else ""))
    if result["candidates"]:
        _print_estimates(result)
        for item in result["candidates"]:
            typer.echo(f"\n{_name(item['candidate'])}: {item['summary']}")
            typer.echo(f"  {item['effective_sample_size']:.0f} effective rounds")
            for warning in item["warnings"]:
                typer.echo(f"  caution: {warning['text']}")
        typer.echo(f"\n{result['restriction']}")
        typer.echo(result["candidates"][0].get("validity") or "")
    if result["what_if"] is not None:
        _print_what_if(result["what_if"])


def _print_estimates(result: dict[str, Any]) -> None:
    """Prints means per round with both intervals, one line for each estimator and outcome."""
    level = f"{100 * result['level']:g} %"
    means = {"reward": result["logged"]["reward"], **result["logged"]["costs"]}
    rows = [["as logged", name, "", f"{mean:.4g}", "", ""] for name, mean in means.items()]
    for item in result["candidates"]:
        for name in means:
            for key, label in ESTIMATORS.items():
                estimate = item["estimates"][key]
                mean = estimate["reward"] if name == "reward" else estimate["costs"][name]
                intervals = [_interval(mean["bootstrap"]), _interval(mean["bernstein"])]
                rows.append([_name(item["candidate"]), name, label, f"{mean['value']:.4g}", *intervals])
    print_table(["policy", "per round", "by", "value", f"bootstrap {level}", f"Bernstein {level}"], rows, texts=3)


def _print_what_if(what_if: dict[str, Any]) -> None:
    """Prints the totals of the flights, and those of the log."""
    resources = list(what_if["actual"]["spent"])
    rows = []
    for label, key in (("these budgets", "changed"), ("own budgets, as a check", "control"), ("as logged", "actual")):
        flights = what_if[key]
        spent = [f"{flights['spent'][name][-1]:.4g}" for name in resources]
        worth = flights.get("marginal_value") or {}
        values = [f"{worth[name][-1]:.4g}" if name in worth else "–" for name in resources]
        rows.append([label, f"{flights['reward'][-1]:.4g}", *spent, *values])
    typer.echo("")
    heads = [
        "",
        "reward",
        *(f"{name} spent" for name in resources),
        *(f"value of one more {name}" for name in resources),
    ]
    print_table(heads, rows, texts=1)
    typer.echo(what_if["assumption"])


def _name(candidate: dict[str, Any]) -> str:
    """Returns a short name of a candidate.

    >>> _name({"type": "fixed", "arm": "a"}), _name({"type": "uniform"})
    ('always a', 'uniform')
    """
    if candidate["type"] == "fixed":
        return f"always {candidate['arm']}"
    if candidate["type"] == "uniform":
        return "uniform"
    policy = candidate["policy"]
    return f"{policy['preset']}, {policy['oracle']['kind']}"


def _interval(ends: list[float | None]) -> str:
    return "–".join("?" if end is None else f"{end:.4g}" for end in ends)
