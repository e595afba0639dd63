"""The library beside Vowpal Wabbit, and how it grows. Exit code 1 when a bar is missed.

    python -m tests.benchmarks.bench_core [--quick]

Both choose among 10 arms by 20 features. VW predicts one number per arm and returns probabilities; ours also predicts
three costs, prices them against budgets, samples and makes the ticket. VW reads text, as its users give it; ours reads
arrays. Figures of one run can be compared with each other only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.benchmarks import bench_vw, growth, report, workloads
from tests.benchmarks.clock import Contender, Pace, Timing, measure
from tests.benchmarks.report import SetUp
from tests.benchmarks.workloads import Size

OUT = Path(__file__).resolve().parents[2] / "out" / "bench_core.json"
SET_UPS = (Size("per_arm", arms=10, dimension=20), Size("shared", arms=10, dimension=20))
POOL_ROUNDS = 256
WARM_ROUNDS = 512

FULL = (Pace(slices=9, slice_seconds=0.3), Pace(slices=5, slice_seconds=0.1))
QUICK = (Pace(slices=3, slice_seconds=0.05), Pace(slices=1, slice_seconds=0.02))

# Ours and VW alternate, because neighbours compare best.
TURN = (
    "decide",
    "VW predict",
    f"decide, {workloads.BATCH_ROWS} rows",
    "VW predict, parsed before",
    "learn",
    "VW learn",
    "commit + settle",
    "VW learn, parsed before",
    "encode a context",
)


def set_up_contenders(size: Size) -> tuple[list[Contender], int]:
    """Return our contenders and VW's on the same rounds, alternating, and the size of our state in bytes."""
    rng = np.random.default_rng(20)
    policy = size.policy()
    rounds = workloads.make_rounds(size, POOL_ROUNDS, rng)
    state = workloads.warm_state(policy, rounds, WARM_ROUNDS)
    contenders = [
        workloads.decide(policy, state, rounds),
        workloads.decide_batch(policy, state, size, rng),
        workloads.learn(policy, state, rounds),
        workloads.commit_settle(policy, state, rounds),
        workloads.encode_context(rng),
        *bench_vw.contenders(size, rounds, rng),
    ]
    contenders.sort(key=lambda contender: TURN.index(contender.name))
    return contenders, len(policy.encode(state))


def measure_set_up(size: Size, pace: Pace, on_slice: Callable[[], object]) -> SetUp:
    """Measure one comparison."""
    contenders, state_bytes = set_up_contenders(size)
    timings: dict[str, Timing] = measure(contenders, pace, on_slice)
    return SetUp(size, timings, state_bytes)


def progress_bar(console: Console) -> Progress:
    """A progress bar without a thread, which would run while the clock does."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, auto_refresh=False, transient=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds, for a first look: the figures are noisy")
    pace, growth_pace = QUICK if parser.parse_args(arguments).quick else FULL
    console = Console()
    sizes = growth.grid()
    with progress_bar(console) as progress:
        slices = pace.slices * len(TURN) * len(SET_UPS) + growth_pace.slices * len(sizes) * 2
        task = progress.add_task("measuring", total=slices)

        def on_slice() -> None:
            progress.update(task, advance=1, refresh=True)

        set_ups = [measure_set_up(size, pace, on_slice) for size in SET_UPS]
        cells = growth.measure_growth(sizes, growth_pace, on_slice)
    slopes, bars = growth.slopes(cells), report.bars(set_ups, cells)
    for table in (
        *(report.set_up_table(set_up) for set_up in set_ups),
        report.growth_table(cells),
        report.slope_table(slopes),
        report.bar_table(bars),
    ):
        console.print(table)
    versions = {name: version(name) for name in ("numpy", "vowpalwabbit")} | {"python": python_version()}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(report.as_json(set_ups, cells, slopes, bars, versions), indent=1), encoding="utf-8")
    return 0 if all(bar.passed for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
