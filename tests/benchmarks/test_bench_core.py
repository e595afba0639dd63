import json

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks import growth, report, workloads
from tests.benchmarks.clock import Contender, Pace, Timing, measure
from tests.benchmarks.growth import Cell
from tests.benchmarks.report import SetUp
from tests.benchmarks.workloads import Size

MOMENT = Pace(slices=2, slice_seconds=0.001)


def ignore() -> None:
    """Do nothing after a slice."""


def our_timings(size: Size) -> dict[str, Timing]:
    rng = np.random.default_rng(1)
    policy = size.policy()
    rounds = workloads.make_rounds(size, 4, rng)
    state = workloads.warm_state(policy, rounds, 6)
    contenders = [
        workloads.decide(policy, state, rounds),
        workloads.decide_batch(policy, state, size, rng),
        workloads.learn(policy, state, rounds),
        workloads.commit_settle(policy, state, rounds),
        workloads.encode_context(rng),
    ]
    return measure(contenders, MOMENT, ignore)


def set_up(decide: float, learn: float, batch: float) -> SetUp:
    """Timings as multiples of those of VW."""
    seconds = {"decide": decide, "decide, 256 rows": batch, "learn": learn, "VW predict": 1.0, "VW learn": 1.0}
    timings = {name: Timing((2.0 * figure, 3.0 * figure)) for name, figure in seconds.items()}
    return SetUp(Size("shared", 10, 20), timings | {"VW learn": Timing((2.0, 3.0))}, state_bytes=9)


def squares(*dimensions: int) -> list[Cell]:
    """Return cells where decide takes m seconds and learn m²."""
    sizes = [Size("shared", 1000, m) for m in dimensions]
    return [Cell(size, Timing((size.dimension,)), Timing((size.dimension**2,)), state_bytes=1) for size in sizes]


def printed(table: Table) -> str:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


@pytest.mark.parametrize("model", ["shared", "per_arm"])
def test_everything_of_ours_that_is_timed_runs(model: str) -> None:
    timings = our_timings(Size(model, arms=3, dimension=4))
    assert list(timings) == ["decide", "decide, 256 rows", "learn", "commit + settle", "encode a context"]
    assert all(len(timing.seconds) == 2 and min(timing.seconds) > 0 for timing in timings.values())


def test_slices_of_all_contenders_alternate() -> None:
    seen: list[str] = []

    def noted(name: str) -> Contender:
        def run(count: int) -> None:
            if seen[-1:] != [name]:
                seen.append(name)
            sum(range(100 * count))

        return Contender(name, run)

    measure([noted("a"), noted("b")], MOMENT, lambda: seen.append("|"))
    assert "".join(seen).removeprefix("ab") == "a|b|a|b|"


def test_a_call_for_many_decisions_is_counted_per_decision() -> None:
    contenders = [Contender(f"{n}", lambda count: sum(range(1000 * count)), decisions=n) for n in (1, 1000)]
    timings = measure(contenders, Pace(slices=3, slice_seconds=0.005), ignore)
    assert 0 < timings["1000"].ratio(timings["1"]) < 0.1


def test_growth_has_all_shared_sizes_and_the_small_per_arm_ones() -> None:
    sizes = growth.grid()
    assert sum(size.model == "shared" for size in sizes) == 12
    assert Size("per_arm", arms=100, dimension=100) in sizes
    assert Size("per_arm", arms=1000, dimension=50) not in sizes
    assert report.LARGE in sizes


def test_growth_is_measured_at_every_size() -> None:
    sizes = growth.grid(dimensions=(2, 4), arms=(2, 3))
    cells = growth.measure_growth(sizes, MOMENT, ignore)
    assert [cell.size for cell in cells] == sizes
    assert cells[0].state_bytes < cells[1].state_bytes
    assert len(growth.slopes(cells)) == 2 * len(sizes)


def test_exponents_are_those_of_the_times() -> None:
    decide, learn = growth.slopes(squares(10, 50, 200))
    assert (decide.overall, decide.last) == pytest.approx((1.0, 1.0))
    assert (learn.overall, learn.last) == pytest.approx((2.0, 2.0))


def test_bars_are_passed_up_to_their_limits_and_missed_above() -> None:
    met = report.bars([set_up(decide=0.5, learn=0.5, batch=0.06)], [])
    missed = report.bars([set_up(decide=0.51, learn=0.51, batch=0.061)], squares(100))
    assert [bar.passed for bar in met] == [True] * 3
    assert [bar.passed for bar in missed] == [False] * 4


def test_tables_and_json_tell_every_figure() -> None:
    one, cells = set_up(decide=0.4, learn=0.7, batch=0.05), squares(10, 100)
    slopes, bars = growth.slopes(cells), report.bars([one], cells)
    assert "0.700" in printed(report.set_up_table(one))
    assert "10,000,000,000" in printed(report.growth_table(cells))
    assert "2.00" in printed(report.slope_table(slopes))
    assert printed(report.bar_table(bars)).count("FAIL") == 2
    found = json.loads(json.dumps(report.as_json([one], cells, slopes, bars, {"numpy": "2"})))
    assert found["set_ups"][0]["timings"]["decide"]["seconds"] == pytest.approx([0.8, 1.2])
    assert [bar["passed"] for bar in found["bars"]] == [True, False, True, False]
