import csv
import io
import re
import signal
import subprocess
import time

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

from cbwk_core.baselines import LinUCB
from cbwk_core.problem import Problem
from cbwk_core.simulation import PaperEnvironment, figures, grids, measurement, plots, run, scaling
from cbwk_core.simulation.worker_pool import run_tasks
from service.cli import main
from tests.service.server_process import CBWK

pytestmark = pytest.mark.slow

FIGURE = grids.FIGURES[2]


def small_grid(horizons=(60, 120, 240)):
    """Figure 1(c) with a few short cells instead of the authors' cells."""
    algorithms = ("newton", "ogd", "linucb")
    return [
        grids.Row(FIGURE.key, 5, 3, 4, T, T / 4, 10, T / 2, name, 2.0 * T**0.5, 1.0)
        for T in horizons
        for name in algorithms
    ]


def silent():
    return Console(file=io.StringIO(), width=200)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """A small reproduction in two processes: its output directory, measurements and printed text."""
    out = tmp_path_factory.mktemp("figures") / "new"
    console = silent()
    result = figures.reproduce(
        [FIGURE], small_grid(), runs=2, out=out, console=console, progress_console=silent(), workers=2
    )
    return out, result, console.file.getvalue()


def test_a_reproduction_draws_a_plot_that_is_not_empty(reproduced):
    out, _, _ = reproduced
    picture = matplotlib.image.imread(out / "figure_1c.png")
    assert picture.shape[0] > 400
    assert picture.shape[1] > 600
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50


def test_the_results_have_the_columns_of_the_reference_and_every_algorithm_in_every_cell(reproduced):
    out, result, _ = reproduced
    with (out / "results.csv").open() as ours, grids.REFERENCE_PATH.open() as theirs:
        assert next(csv.reader(ours)) == next(csv.reader(theirs))
    rows = grids.read_rows(out / "results.csv")
    assert rows == result.rows
    names = {algorithm.name for algorithm in figures.ALGORITHMS}
    assert {(row.T, row.algorithm) for row in rows} == {(T, name) for T in (60, 120, 240) for name in names}
    assert {(row.rounds, row.T_OPT / row.T, row.B / row.T) for row in rows} == {(2, 0.5, 0.25)}


def test_the_table_of_exponents_has_one_line_per_algorithm_and_per_published_curve(reproduced):
    out, _, printed = reproduced
    table = (out / "table3.md").read_text(encoding="utf-8")
    for each in (*figures.ALGORITHMS, *figures.PUBLISHED_CURVES):
        (line,) = [line for line in table.splitlines() if line.startswith(f"| {each.label} |")]
        assert line in printed
    assert "| published code, Newton | 0.50 ± 0.00 (0.5) |" in table


def test_the_printed_text_has_the_ratio_of_every_cell_the_overspend_and_the_speed_up(reproduced):
    _, result, printed = reproduced
    compared = figures.comparisons(result, FIGURE, small_grid())
    assert [each.cell.T for each in compared] == [60, 120, 240]
    for each in compared:
        assert f"{each.ratio:.3f}" in printed
        assert each.overspend == 0
    assert "largest overspend of any run: practical 0" in printed
    assert f"{result.speed_up.factor:.1f} times faster" in printed


def test_a_cell_has_the_same_result_in_this_process_and_in_a_worker(reproduced):
    _, result, _ = reproduced
    tasks = [each.task for each in result.measured if each.task.cell.T == 60]
    here = run_tasks(measurement.measure, tasks, workers=1, description="", console=silent())
    assert sorted(each.row for each in here) == sorted(row for row in result.rows if row.T == 60)


@pytest.mark.parametrize("power", [-0.5, 0.0, 0.75, 2.0])
def test_the_exponent_of_a_power_law_is_exact_and_its_error_is_zero(power):
    axis = np.array([3, 10, 17, 50])
    found = scaling.exponent(axis, 7.0 * axis**power)
    assert found.slope == pytest.approx(power, abs=1e-9)
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_the_standard_error_of_an_exponent_is_that_of_simple_regression():
    rng = np.random.default_rng(1)
    axis = np.geomspace(1, 100, 12)
    regret = 5 * axis**0.5 * np.exp(0.1 * rng.standard_normal(12))
    design = np.column_stack([np.ones(12), np.log(axis)])
    solution, rest, *_ = np.linalg.lstsq(design, np.log(regret))
    covariance = np.linalg.inv(design.T @ design) * rest[0] / (12 - 2)
    found = scaling.exponent(axis, regret)
    assert found.slope == pytest.approx(solution[1])
    assert found.error == pytest.approx(np.sqrt(covariance[1, 1]))


def test_cells_without_a_logarithm_are_excluded_and_counted():
    found = scaling.exponent([1, 2, 3, 4], [1.0, -5.0, 3.0, 4.0])
    assert (found.slope, found.used, found.cells) == (pytest.approx(1.0), 3, 4)
    assert np.isnan(scaling.exponent([1, 2], [-1.0, 1.0]).slope)


def test_the_grids_are_those_of_the_published_code():
    rows = grids.reference()
    sizes = [len(grids.cells(rows, figure)) for figure in grids.FIGURES]
    assert sizes == [19, 10, 12, 12]
    assert len(rows) == 3 * sum(sizes)
    assert grids.cells(rows, grids.FIGURES[3])[-1] == grids.Cell("1d_T_m52", 52, 3, 4, 12000, 3000.0)


def test_the_help_of_reproduce_states_the_cells_that_are_run(capsys):
    assert main(["reproduce", "--help"]) == 0
    words = " ".join(re.findall(r"[^\s│]+", capsys.readouterr().out))
    for figure in grids.FIGURES:
        assert f"{figure.axis} = {grids.axis_values(grids.reference(), figure)}" in words
    assert "The plots show means over the runs" in words


def test_a_reproduction_prints_its_cells_and_those_of_the_papers_text_first(reproduced):
    _, _, printed = reproduced
    lines = printed.splitlines()
    assert lines[1] == "figure 1c: T = 60, 120, 240 (the paper's text: 1000, 1100, …, 12000)"
    assert "means over the runs" in lines[2]


def test_the_plotted_curve_is_the_mean_over_the_runs():
    cell = grids.Cell(FIGURE.key, m=5, K=3, d=4, T=60, B=15.0)
    task = measurement.Task(cell, "linucb", "linucb", "newton", runs=3)
    problem = Problem.of(arms=3, dimension=5, resources=4, horizon=60, budget=15.0)
    runs = run(LinUCB(problem=problem), PaperEnvironment(m=5, arms=3), horizon=60, budget=15.0, seeds=task.seeds)
    regrets = (30.0 - runs.reward).tolist()
    assert measurement.measure(task).row.regret_mean == pytest.approx(sum(regrets) / 3, abs=0.005)


def test_a_file_with_other_columns_is_refused(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("figure,m\n1a_m,10\n")
    with pytest.raises(ValueError, match="columns"):
        grids.read_rows(path)


def test_negative_regret_can_be_drawn(tmp_path):
    rows = [row._replace(regret_mean=-row.regret_mean) for row in small_grid() if row.algorithm == "newton"]
    plots.draw_figure(tmp_path / "x.png", FIGURE, [plots.Curve("ours", plots.GREEN, rows, ours=True)])
    assert matplotlib.image.imread(tmp_path / "x.png").ndim == 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--figure", "2a"], "--figure"), (["--runs", "0"], "--runs"), (["--runs", "1001"], "--runs")],
)
def test_a_wrong_option_of_reproduce_is_one_line_that_names_it(arguments, named, capsys, tmp_path):
    assert main(["reproduce", *arguments, "--out", str(tmp_path)]) == 2
    written = capsys.readouterr()
    assert (written.out, written.err.count("\n")) == ("", 1)
    assert named in written.err


def test_an_interrupted_reproduction_has_said_how_long_it_takes_and_keeps_its_cells(tmp_path):
    command = [CBWK, "reproduce", "--figure", "1c", "--runs", "1", "--out", str(tmp_path)]
    file = tmp_path / "results.csv"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        while not (file.exists() and grids.read_rows(file)):
            assert process.poll() is None, "it ended before it had written a cell"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate()
    assert process.returncode != 0
    assert re.search(r"60 cells in \d+ processes take about \d+ (seconds|minutes)", printed)
    assert {row.figure for row in grids.read_rows(file)} == {FIGURE.key}
    assert not (tmp_path / "table3.md").exists()
