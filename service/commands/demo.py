"""`cbwk demo`: a simulated ad server spends a campaign's budgets through a service of its own."""

from pathlib import Path
from typing import Annotated

import typer

REQUESTS_MIN, REQUESTS_MAX = 100, 1_000_000


def demo(
    requests: Annotated[int, typer.Option(help="Visitors to serve.", min=REQUESTS_MIN, max=REQUESTS_MAX)] = 20_000,
    seed: Annotated[int, typer.Option(help="Of the visitors, the banners and the policy.", min=0, max=2**31)] = 7,
    stay: Annotated[bool, typer.Option(help="Leave the service up until Ctrl+C, to look around.")] = False,
    out: Annotated[Path, typer.Option(help="Directory for the picture; made if it is not there.")] = Path("out"),
) -> None:
    """Watch a simulated ad server spend two budgets: live in the terminal, then a summary and a picture."""
    from rich.console import Console

    from service.demo.run import DemoError
    from service.demo.run import demo as run_demo
    from service.demo.world import World

    try:
        out.mkdir(parents=True, exist_ok=True)
        run_demo(World(requests, seed), out=out, console=Console(), stay=stay)
    except DemoError as error:
        raise typer.TyperException(str(error)) from error
    except OSError as error:
        raise typer.TyperException(f"cannot write to {out}: {error.strerror}") from error
    except KeyboardInterrupt:
        raise typer.TyperException("stopped before its end") from None
