"""Vowpal Wabbit's SquareCB runs in the same runner, stays within its budget and learns."""

import numpy as np
import pytest

from cbwk_core.problem import Problem
from cbwk_core.simulation.delays import Delays
from cbwk_core.simulation.environments import LinearEnvironment
from cbwk_core.simulation.runner import run
from cbwk_core.simulation.vw import VowpalSquareCB

pytest.importorskip("vowpalwabbit", reason="needs the package vowpalwabbit: pip install '.[bench]'")


@pytest.mark.parametrize("model", ["shared", "per_arm"])
def test_it_never_overspends_and_it_learns_if_the_budget_does_not_bind(model):
    environment = LinearEnvironment(arms=4, dimension=3, resources=1, model=model, noise=0.1)
    earned = {}
    for budget in (100.0, 1_000.0):
        problem = Problem.of(arms=4, dimension=3, resources=1, horizon=1_000, budget=budget)
        policy = VowpalSquareCB(problem=problem, model=model)
        runs = run(
            policy, environment, horizon=1_000, budget=budget, seeds=range(2), delays=Delays(rounds=7, missing=0.2)
        )
        assert runs.overspend.max() == 0.0
        earned[budget] = runs.reward
    assert (earned[100.0] < earned[1_000.0]).all()
    best = 1_000 * environment.optimum([1.0])
    uniform = environment.draw(np.random.default_rng(0), 0, 1_000).reward.mean() * 1_000
    assert (earned[1_000.0] > uniform + 0.5 * (best - uniform)).all()
