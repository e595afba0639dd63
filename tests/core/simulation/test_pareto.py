"""ParetoBandit runs in the same runner, stays within its budget and paces its spend."""

import numpy as np
import pytest

from cbwk_core.problem import Problem
from cbwk_core.simulation.delays import Delays
from cbwk_core.simulation.kinds import MENU_COST_MAX, model_menu
from cbwk_core.simulation.pareto import ParetoBandit
from cbwk_core.simulation.runner import run

pytest.importorskip("pareto_bandit", reason="needs the package paretobandit: pip install '.[bench]'")


def problem(rho, resources=1):
    return Problem.of(
        arms=3, dimension=24, resources=resources, horizon=600, budget=600 * rho, max_cost=np.array(MENU_COST_MAX)
    )


def test_it_never_overspends_and_spends_more_on_dear_arms_where_the_budget_is_larger():
    dear = {}
    for rho in (3.0, 300.0):
        policy = ParetoBandit(problem=problem(rho))
        runs = run(
            policy,
            [model_menu(seed, 600) for seed in range(2)],
            horizon=600,
            budget=600 * rho,
            seeds=range(2),
            delays=Delays(rounds=3, missing=0.2),
        )
        assert runs.overspend.max() == 0.0
        assert (runs.played > 100).all()
        dear[rho] = runs.plays[:, 2]
    assert (dear[3.0] < dear[300.0]).all()


def test_it_has_one_budget():
    with pytest.raises(ValueError, match="one budget"):
        ParetoBandit(problem=problem(3.0, resources=2))
