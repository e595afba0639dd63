"""The suite's command, its scenarios and its verdicts."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from cbwk_core.simulation import suite
from cbwk_core.simulation.changes import Halves
from cbwk_core.simulation.environments import LinearEnvironment
from cbwk_core.simulation.flight import Flight, day_and_night
from cbwk_core.simulation.runner import run
from cbwk_core.simulation.scenarios import POLICIES, scenarios
from service.cli import main

FAMILIES = {
    *("paper", "linear", "clicks", "noise", "arms", "resources", "budgets", "feedback", "horizon", "drift", "smooth")
}


@pytest.mark.slow
def test_the_command_runs_every_policy_in_the_rows_asked_for_and_writes_what_it_prints(tmp_path, capsys):
    arguments = ["simulate", "--suite", "--quick", "--only", "generous, per arm", "--workers", "1"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    with (tmp_path / "suite.csv").open() as file:
        cells = list(csv.DictReader(file))
    # Arms that change roles in a generous flight have such a name, too.
    assert [cell["policy"] for cell in cells] == list(POLICIES) * (len(cells) // len(POLICIES))
    assert {cell["scenario"] for cell in cells} == {"generous, per arm"}
    line = next(line for line in printed.splitlines() if "generous, per arm" in line)
    for cell in cells:
        assert f"{float(cell['regret']):.3f} ± {float(cell['error']):.3f}" in line
        assert float(cell["overspend"]) == 0.0
    assert {path.name for path in tmp_path.glob("*.png")} == {"suite.png", "suite_budgets.png"}


def test_a_row_that_does_not_exist_is_refused_with_the_families_there_are(capsys):
    assert main(["simulate", "--suite", "--only", "nowhere"]) != 0
    assert "families are arms, budgets" in " ".join(capsys.readouterr().err.split())


def test_every_family_of_the_suite_is_there_and_every_policy_can_be_made_in_every_row():
    rows = scenarios()
    assert {row.family for row in rows} == FAMILIES
    for row in rows:
        for name in POLICIES:
            policy = row.policy(name)
            assert (policy.arms, policy.resources) == (row.environment.arms, row.environment.resources)


@pytest.mark.parametrize(
    ("regret", "used", "overspend", "passed"),
    [(0.0499, 0.99, 0.0, True), (0.0501, 0.99, 0.0, False), (0.02, 0.96, 0.0, False), (0.02, 0.99, 0.01, False)],
)
def test_practical_passes_within_the_margin_of_the_best_when_it_spends_all_and_no_more(regret, used, overspend, passed):
    row = next(row for row in scenarios() if row.name == "linear")
    ours = suite.Cell("linear", "linear", "practical", 1, 1, regret, 0.0, used, overspend, 0.0)
    cells = {"practical": ours, "linucb": ours._replace(regret=0.02), "thompson": ours._replace(regret=0.5)}
    verdict = suite.verdict(row, cells)
    assert verdict.passed is passed
    assert verdict.gap == pytest.approx(max(0.0, regret - 0.02))


def test_halves_change_roles_in_the_middle_and_their_optimum_is_that_of_both():
    same = LinearEnvironment(arms=3, dimension=3, resources=2, model="per_arm")
    changing = Halves(same, horizon=100, resources_turned=1)
    before = same.draw(np.random.default_rng(3), 40, 20)
    after = changing.draw(np.random.default_rng(3), 40, 20)
    np.testing.assert_array_equal(after.reward, before.reward)
    np.testing.assert_array_equal(after.costs[:10], before.costs[:10])
    np.testing.assert_array_equal(after.costs[10:], before.costs[10:, :, ::-1])
    # With one budget for all a half alone is worth the same before and after; together they can make up for each other.
    assert changing.optimum(0.3) >= same.optimum(0.3) - 0.01


def test_a_flight_with_an_end_date_knows_its_horizon_better_and_better_and_spends_its_budget():
    row = next(row for row in scenarios(0.15) if row.dated)
    flight = row.policy("practical")
    assert isinstance(flight, Flight)
    runs = run(flight, row.environment, horizon=row.horizon, budget=row.budget, seeds=range(3))
    assert runs.overspend.max() == 0.0
    assert (runs.spent / np.array(row.budget)).max(axis=1).min() > 0.95


def test_traffic_by_day_is_nine_times_that_by_night():
    times = day_and_night(100_000, days=2.0, swing=0.8)
    counts, _ = np.histogram(times, bins=40, range=(0.0, 1.0))
    assert counts[0] / counts[10] == pytest.approx(1.8 / 0.2, rel=0.1)
