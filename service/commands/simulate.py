"""`cbwk simulate` and `cbwk reproduce`: policies in simulated environments, in all of a suite, on the paper's grids."""

import os
from pathlib import Path
from typing import Annotated

import typer

_OUT_HELP = "Directory for what is written; made if it is not there."


def simulate(
    environment: Annotated[str, typer.Option(help="paper, linear, logistic or bumps.")] = "paper",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="practical, paper, authors, linucb, egreedy, thompson, egreedy-paced, thompson-paced or, where it is "
            "installed, vw (SquareCB of Vowpal Wabbit); may be given several times.  [default: practical and linucb]"
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
    suite: Annotated[
        bool,
        typer.Option("--suite", help="Run the suite instead: every policy in every environment, about 20 minutes."),
    ] = False,
    seeds: Annotated[int, typer.Option(help="Of the suite: runs of every cell.", min=1, max=1000)] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="Of the suite: only see that it works, 3 short runs.")] = False,
    only: Annotated[str | None, typer.Option(help="Of the suite: rows whose name or family has these words.")] = None,
    workers: Annotated[int, typer.Option(help="Of the suite: processes.", min=1, max=256)] = os.cpu_count() or 1,
    out: Annotated[Path, typer.Option(help=_OUT_HELP)] = Path("out"),
) -> None:
    """Run policies in one environment: a table of regret, spend and overspend, and a picture of regret over time."""
    from rich.console import Console

    if suite:
        _run_suite(seeds, quick=quick, only=only, workers=workers, out=out)
        return

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
    make_directory(out)
    run_simulation(simulation, out=out, console=Console(), progress_console=Console(stderr=True))


def _run_suite(seeds: int, *, quick: bool, only: str | None, workers: int, out: Path) -> None:
    from rich.console import Console

    from cbwk_core.simulation import suite

    try:
        rows = suite.chosen_scenarios(only, quick=quick)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--only'") from error
    make_directory(out)
    suite.suite(
        rows,
        seeds=suite.QUICK_SEEDS if quick else seeds,
        workers=workers,
        out=out,
        # The table has a column for every policy: in a pipe or a narrow window it would be cut off.
        console=Console(width=suite.TABLE_WIDTH),
        progress_console=Console(stderr=True),
    )


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
    make_directory(out)
    figures.reproduce(
        chosen, grids.reference(), runs=runs, out=out, console=Console(), progress_console=Console(stderr=True)
    )


def make_directory(path: Path) -> None:
    """Make it, or say in one line why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.TyperException(f"cannot make the directory {path}: {error.strerror}") from error
