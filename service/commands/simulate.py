"""`cbwk simulate` and `cbwk reproduce`: policies in simulated environments, in the suite, and on the paper's grids."""

import os
from pathlib import Path
from typing import Annotated

import typer

from service.commands.console import OUT_DEFAULT, OutDirectory, make_directory

_POLICY_HELP = (
    "practical, paper, authors; linucb, egreedy, thompson, egreedy-paced, thompson-paced; with prices, ucb-priced, "
    "thompson-priced, resolving, lagrange; if it is installed, vw (SquareCB of Vowpal Wabbit). Repeat the option for "
    "several policies.  [default: practical and linucb]"
)


def simulate(
    environment: Annotated[str, typer.Option(help="paper, linear, logistic or bumps.")] = "paper",
    policy: Annotated[list[str] | None, typer.Option(help=_POLICY_HELP)] = None,
    horizon: Annotated[int, typer.Option(help="Number of rounds of a run.")] = 2000,
    runs: Annotated[int, typer.Option(help="Number of runs.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the first run; run i has seed + i.")] = 0,
    delay: Annotated[int, typer.Option(help="Number of rounds until an outcome is known.")] = 0,
    missing: Annotated[float, typer.Option(help="Share of the outcomes that are never reported.")] = 0.0,
    budget: Annotated[
        list[float] | None,
        typer.Option(
            help="Budget of every resource; repeat the option for one budget per resource.  "
            "[default: a quarter of the horizon]"
        ),
    ] = None,
    arms: Annotated[int | None, typer.Option(help="Number of arms, without the null arm.")] = None,
    dimension: Annotated[int | None, typer.Option(help="Length of a feature vector.")] = None,
    resources: Annotated[int | None, typer.Option(help="Number of resources.")] = None,
    oracle: Annotated[
        str, typer.Option(help="Oracle of SquareCBwK: newton, gradient, aggregate or kernel.")
    ] = "newton",
    link: Annotated[str, typer.Option(help="Link of SquareCBwK's reward: identity or logistic.")] = "identity",
    suite: Annotated[
        bool,
        typer.Option("--suite", help="Run the suite instead: every policy in every scenario, half an hour or more."),
    ] = False,
    seeds: Annotated[
        int, typer.Option(help="Suite: runs per policy in a scenario with one environment.", min=1, max=1000)
    ] = 10,
    worlds: Annotated[
        int, typer.Option(help="Suite: runs per policy in a kind of worlds, each in a fresh world.", min=1, max=1000)
    ] = 40,
    quick: Annotated[bool, typer.Option("--quick", help="Suite: a short check with 3 short runs.")] = False,
    only: Annotated[
        str | None, typer.Option(help="Suite: only scenarios whose name or family contains this text.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Suite: number of processes.", min=1, max=256)] = os.cpu_count() or 1,
    out: OutDirectory = OUT_DEFAULT,
) -> None:
    """Run policies in one environment; print regret, spend and overspend, and plot regret over time."""
    from rich.console import Console

    if suite:
        _run_suite(seeds, worlds, quick=quick, only=only, workers=workers, out=out)
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


def _run_suite(seeds: int, worlds: int, *, quick: bool, only: str | None, workers: int, out: Path) -> None:
    from rich.console import Console

    from cbwk_core.simulation import suite

    try:
        rows = suite.select_scenarios(only, quick=quick)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--only'") from error
    make_directory(out)
    suite.run_suite(
        rows,
        seeds=suite.QUICK_SEEDS if quick else seeds,
        worlds=suite.QUICK_SEEDS if quick else worlds,
        workers=workers,
        out=out,
        # The table has one column per policy. A fixed width keeps a pipe or a narrow window from cutting it off.
        console=Console(width=suite.TABLE_WIDTH),
        progress_console=Console(stderr=True),
    )


def reproduce(
    figure: Annotated[str, typer.Option(help="1a, 1b, 1c, 1d or all.")] = "all",
    runs: Annotated[int, typer.Option(help="Runs per cell; the authors use 10.", min=1, max=1000)] = 10,
    out: OutDirectory = OUT_DEFAULT,
) -> None:
    """Reproduce the paper's figures and Table 3: write plots, results.csv and table3.md.

    The cells are those of the authors' published code: m = 10, 15, …, 95, 100 (1a), K = 5, 10, …, 45, 51 (1b) and
    T = 1000, 2000, …, 11000, 12000 (1c and 1d). The paper's text states other cells: m up to 101, K up to 50, and T in
    steps of 100. The plots show means over the runs; the paper's text names no statistic.
    """
    from rich.console import Console

    from cbwk_core.simulation import figures, grids

    try:
        chosen = grids.select_figures(figure)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--figure'") from error
    make_directory(out)
    figures.reproduce(
        chosen, grids.reference(), runs=runs, out=out, console=Console(), progress_console=Console(stderr=True)
    )
