import io
import re
import subprocess

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

from cbwk_core.simulation import simulate
from cbwk_core.simulation.policies import POLICIES
from service.cli import main
from tests.service.server_process import CBWK

pytestmark = pytest.mark.slow


def test_the_command_prints_one_line_per_policy_and_draws_a_plot(tmp_path):
    arguments = ["simulate", "--policy", "practical", "--policy", "egreedy-paced", "--horizon", "120", "--runs", "3"]
    out = tmp_path / "made" / "here"
    done = subprocess.run([CBWK, *arguments, "--out", out], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split("│") for line in done.stdout.splitlines() if line.startswith("│")]
    assert [line[1].strip() for line in lines] == ["practical", "egreedy-paced"]
    assert [float(line[5]) for line in lines] == [0.0, 0.0]
    picture = matplotlib.image.imread(out / "simulate_paper.png")
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50


@pytest.mark.parametrize("environment", list(simulate.DEFAULT_SIZES))
def test_every_policy_runs_in_every_environment_with_delays_and_missing_outcomes(environment, tmp_path):
    simulation = simulate.Simulation(
        environment=environment, policies=POLICIES, horizon=40, runs=2, delay=3, missing=0.1, budget=(15.0,)
    )
    console = Console(file=io.StringIO(), width=150)
    path = simulate.simulate(simulation, out=tmp_path, console=console, progress_console=console)
    assert path.stat().st_size > 10_000
    for name in POLICIES:
        assert f"│ {name} " in console.file.getvalue()


def test_runs_of_a_policy_do_not_depend_on_the_other_policies():
    alone = simulate.Simulation(environment="linear", policies=("linucb",), horizon=60, runs=2)
    together = simulate.Simulation(environment="linear", policies=("thompson", "linucb"), horizon=60, runs=2)
    np.testing.assert_array_equal(alone.run("linucb").curve, together.run("linucb").curve)


def test_the_budget_is_a_quarter_of_the_horizon_or_one_for_all_or_one_for_each():
    def budget(*given):
        return simulate.Simulation(environment="linear", policies=("paper",), horizon=80, budget=given).problem.budget

    assert budget() == (20.0, 20.0)
    assert budget(7.0) == (7.0, 7.0)
    assert budget(7.0, 9.0) == (7.0, 9.0)


def test_the_help_names_every_policy_and_environment(capsys):
    assert main(["simulate", "--help"]) == 0
    words = set(re.findall(r"[\w-]+", capsys.readouterr().out))
    assert set(POLICIES) | set(simulate.DEFAULT_SIZES) <= words


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--environment", "moon"], "moon"),
        (["--policy", "best"], "best"),
        (["--horizon", "0"], "horizon"),
        (["--horizon", "many"], "--horizon"),
        (["--runs", "0"], "runs"),
        (["--seed", "-1"], "seed"),
        (["--delay", "-1"], "delay"),
        (["--missing", "1.5"], "missing"),
        (["--missing", "nan"], "missing"),
        (["--budget", "-3"], "budget"),
        (["--budget", "nan"], "budget"),
        (["--budget", "1", "--budget", "2"], "budget"),
        (["--arms", "0"], "arms"),
        (["--dimension", "3"], "m must be at least 5"),
        (["--environment", "bumps", "--dimension", "4"], "dimension"),
        (["--environment", "logistic", "--resources", "3"], "resources"),
        (["--oracle", "forest"], "oracle"),
        (["--link", "probit"], "link"),
        (["--oracle", "aggregate"], "dimension"),
    ],
)
def test_a_wrong_option_of_simulate_is_one_line_that_names_it(arguments, named, capsys, tmp_path):
    assert main(["simulate", *arguments, "--out", str(tmp_path)]) == 2
    written = capsys.readouterr()
    assert (written.out, written.err.count("\n")) == ("", 1)
    assert written.err.startswith("cbwk: ")
    assert named in written.err


def test_a_directory_that_cannot_be_created_is_one_line_and_code_1(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert main(["simulate", "--horizon", "10", "--out", str(tmp_path / "file" / "x")]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err
