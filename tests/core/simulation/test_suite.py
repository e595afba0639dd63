"""The command of the suite, its scenarios and its verdicts."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from cbwk_core.simulation import suite
from cbwk_core.simulation.changes import MidpointChange
from cbwk_core.simulation.environments import LinearEnvironment
from cbwk_core.simulation.flight import Flight, day_and_night
from cbwk_core.simulation.runner import run
from cbwk_core.simulation.scenarios import PRICED_POLICIES, SUITE_POLICIES, scenarios
from service.cli import main

FAMILIES = {
    *("paper", "linear", "clicks", "noise", "arms", "resources", "budgets", "feedback", "horizon", "drift", "smooth"),
    "worlds",
}


@pytest.mark.slow
def test_the_command_runs_every_policy_in_the_selected_scenarios_and_writes_what_it_prints(tmp_path, capsys):
    arguments = ["simulate", "--suite", "--quick", "--only", "generous, per arm", "--workers", "1"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    with (tmp_path / "suite.csv").open() as file:
        cells = list(csv.DictReader(file))
    assert [cell["policy"] for cell in cells] == list(SUITE_POLICIES) * (len(cells) // len(SUITE_POLICIES))
    assert {cell["scenario"] for cell in cells} == {"generous, per arm"}
    line = next(line for line in printed.splitlines() if "generous, per arm" in line)
    for cell in cells:
        assert f"{float(cell['regret']):.3f} ± {float(cell['error']):.3f}" in line
        assert float(cell["overspend"]) == 0.0
    assert {path.name for path in tmp_path.glob("*.png")} == {"suite.png", "suite_budgets.png"}


def test_a_short_run_of_a_kind_of_worlds_writes_regrets_tails_pairs_and_what_known_means_lose(tmp_path, capsys):
    arguments = ["simulate", "--suite", "--quick", "--only", "five arms", "--workers", "1", "--out", str(tmp_path)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out

    def read(name):
        with (tmp_path / name).open() as file:
            return list(csv.DictReader(file))

    cells, pairs, known = (read(f"suite{name}.csv") for name in ("", "_pairs", "_known_means"))
    assert [cell["policy"] for cell in cells] == list(PRICED_POLICIES)
    assert all(float(cell["regret"]) >= 0.0 and float(cell["overspend"]) == 0.0 for cell in cells)
    regret = {cell["policy"]: float(cell["regret"]) for cell in cells}
    for pair in pairs:
        assert float(pair["difference"]) == pytest.approx(regret["practical"] - regret[pair["peer"]], abs=1e-12)
    assert {pair["peer"] for pair in pairs} == set(PRICED_POLICIES) - {"practical"}
    assert float(known[0]["regret"]) <= min(regret.values())
    tails = [line for line in printed.splitlines() if "five arms" in line][1]
    for cell in cells:
        assert f"{float(cell['tail']):.0%}, {float(cell['p95']):.3f}" in tails
    assert f"practical {regret['practical']:.4f}" in printed


def test_an_unknown_scenario_is_refused_with_the_list_of_families(capsys):
    assert main(["simulate", "--suite", "--only", "nowhere"]) != 0
    assert "families are arms, budgets" in " ".join(capsys.readouterr().err.split())


def test_the_suite_has_every_family_and_builds_every_policy_in_every_scenario():
    rows = scenarios()
    assert {row.family for row in rows} == FAMILIES
    for row in rows:
        for name in SUITE_POLICIES:
            policy = row.policy(name)
            assert (policy.arms, policy.resources) == (row.environment.arms, row.environment.resources)


@pytest.mark.parametrize(
    ("regret", "used", "overspend", "passed"),
    [(0.0499, 0.99, 0.0, True), (0.0501, 0.99, 0.0, False), (0.02, 0.96, 0.0, False), (0.02, 0.99, 0.01, False)],
)
def test_practical_passes_if_it_is_within_the_margin_of_the_best_and_spends_its_budget(regret, used, overspend, passed):
    row = next(row for row in scenarios() if row.name == "linear")
    ours = suite.Cell("linear", "linear", "practical", 1, 1, regret, 0.0, used, overspend, 0.0)
    cells = {"practical": ours, "linucb": ours._replace(regret=0.02), "thompson": ours._replace(regret=0.5)}
    verdict = suite.verdict(row, cells)
    assert verdict.passed is passed
    assert verdict.gap == pytest.approx(max(0.0, regret - 0.02))


def test_a_midpoint_change_shifts_the_second_half_and_its_optimum_covers_both_halves():
    same = LinearEnvironment(arms=3, dimension=3, resources=2, model="per_arm")
    changing = MidpointChange(same, horizon=100, resource_shift=1)
    before = same.draw(np.random.default_rng(3), 40, 20)
    after = changing.draw(np.random.default_rng(3), 40, 20)
    np.testing.assert_array_equal(after.reward, before.reward)
    np.testing.assert_array_equal(after.costs[:10], before.costs[:10])
    np.testing.assert_array_equal(after.costs[10:], before.costs[10:, :, ::-1])
    # With equal budgets each half alone has the same optimum; together they can compensate each other.
    assert changing.optimum(0.3) >= same.optimum(0.3) - 0.01


def test_a_flight_with_an_end_date_spends_its_budget_and_no_more():
    row = next(row for row in scenarios(0.15) if row.has_end_date)
    flight = row.policy("practical")
    assert isinstance(flight, Flight)
    runs = run(flight, row.environment, horizon=row.horizon, budget=row.budget, seeds=range(3))
    assert runs.overspend.max() == 0.0
    assert (runs.spent / np.array(row.budget)).max(axis=1).min() > 0.95


def test_peak_traffic_is_nine_times_the_lowest_traffic():
    times = day_and_night(100_000, days=2.0, swing=0.8)
    counts, _ = np.histogram(times, bins=40, range=(0.0, 1.0))
    assert counts[0] / counts[10] == pytest.approx(1.8 / 0.2, rel=0.1)
