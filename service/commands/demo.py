"""`cbwk demo`: a simulated ad server spends a campaign's budgets through a service of its own."""

from typing import Annotated

import typer

from service.commands.console import OUT_DEFAULT, OutDirectory, file_errors, make_directory

REQUESTS_MIN, REQUESTS_MAX = 100, 1_000_000


def demo(
    requests: Annotated[int, typer.Option(help="Number of visitors.", min=REQUESTS_MIN, max=REQUESTS_MAX)] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of visitors, banners and policy.", min=0, max=2**31)] = 7,
    stay: Annotated[bool, typer.Option(help="Keep the service running until Ctrl+C.")] = False,
    out: OutDirectory = OUT_DEFAULT,
) -> None:
    """Watch a simulated ad server spend two budgets: live in the terminal, then a summary and a picture."""
    from rich.console import Console

    from service.demo.run import DemoError
    from service.demo.run import demo as run_demo
    from service.demo.world import World

    make_directory(out)
    try:
        with file_errors(f"write to {out}"):
            run_demo(World(requests, seed), out=out, console=Console(), stay=stay)
    except DemoError as error:
        raise typer.TyperException(str(error)) from error
    except KeyboardInterrupt:
        raise typer.TyperException("the demo was interrupted") from None
