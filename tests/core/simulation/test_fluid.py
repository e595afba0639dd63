"""The fluid problem with holds, compared with its primal linear program."""

import numpy as np
import pytest
from scipy.optimize import linprog

from cbwk_core.simulation import lateness
from cbwk_core.simulation.fluid import delayed_optimum
from cbwk_core.static_optimum import static_optimum

CONTEXTS, ARMS, RHO = 60, 3, np.array([0.2, 0.15])


def table(seed):
    rng = np.random.default_rng(seed)
    return rng.random((CONTEXTS, ARMS)), rng.random((CONTEXTS, ARMS, 2)) * 0.6


def by_linear_program(rewards, costs, rho, slots, delay, first):
    """Solve the primal: a probability for every slot, context and arm; budgets hold at the end of every slot."""
    shape, resources = (slots, CONTEXTS, ARMS), rho.size
    rows, limits = [], []
    for end in range(slots):
        for j in range(resources):
            row = np.zeros(shape)
            for slot in range(end + 1):
                row[slot] = costs[:, :, j] if slot <= end - delay else 1.0
            rows.append(row.ravel() / CONTEXTS)
            limits.append(rho[j] * slots)
    for slot in range(slots):
        for context in range(CONTEXTS):
            row = np.zeros(shape)
            row[slot, context] = 1.0
            rows.append(row.ravel())
            limits.append(1.0)
    top = np.ones(shape)
    top[:first] = 0.0
    gain = np.broadcast_to(rewards, shape).ravel() / CONTEXTS / slots
    solved = linprog(-gain, A_ub=np.array(rows), b_ub=limits, bounds=[(0.0, each) for each in top.ravel()])
    assert solved.success
    return -solved.fun


@pytest.mark.parametrize(
    ("slots", "delay", "first"), [(1, 0, 0), (6, 0, 0), (6, 1, 0), (6, 2, 0), (6, 2, 2), (8, 3, 0)]
)
def test_the_bound_is_at_most_one_percent_above_the_linear_program(slots, delay, first):
    for seed in range(3):
        rewards, costs = table(seed)
        exact = by_linear_program(rewards, costs, RHO, slots, delay, first)
        found = delayed_optimum(rewards, costs, RHO, slots=slots, delay=delay, first=first)
        assert exact - 1e-9 <= found <= 1.01 * exact


def test_without_delay_the_bound_is_the_static_optimum():
    rewards, costs = table(7)
    found = delayed_optimum(rewards, costs, RHO, slots=5, delay=0)
    np.testing.assert_allclose(found, static_optimum(rewards, costs, RHO).value, rtol=1e-2)


def test_a_longer_delay_earns_less():
    rewards, costs = table(8)
    earned = [delayed_optimum(rewards, costs, RHO, slots=12, delay=delay) for delay in (0, 1, 3, 6, 12)]
    assert (np.diff(earned) < 0).all()


@pytest.mark.parametrize("scenario", lateness.delayed_scenarios(), ids=lambda scenario: scenario.name)
def test_in_the_suite_every_policy_that_never_overspends_loses_more_than_half_the_delay(scenario):
    """The target is half of the delay over T plus 1.5 times the undelayed regret: see docs/benchmarks.md."""
    informed, waiting = lateness.loss_bounds(scenario)
    assert 0.5 * scenario.delay < informed < waiting < 1.0


def test_lateness_prints_one_line_per_delayed_scenario_of_the_suite(capsys):
    lateness.main(["--seeds", "2", "--scale", "0.02"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [scenario.name for scenario in lateness.delayed_scenarios()]
    assert all("lower bounds: 0." in line for line in lines)
