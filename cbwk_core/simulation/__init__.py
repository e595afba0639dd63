"""Simulations: environments with a known optimum, and a runner that drives any policy in them.

>>> from cbwk_core.baselines import LinUCB
>>> from cbwk_core.problem import Problem
>>> problem = Problem.of(arms=3, dimension=5, resources=4, horizon=200, budget=50)
>>> runs = run(LinUCB(problem=problem), PaperEnvironment(m=5, arms=3), horizon=200, budget=50, seeds=range(2))
>>> runs.reward.shape
(2,)
"""

from cbwk_core.simulation.delays import Delays
from cbwk_core.simulation.environment import Draw, Environment, sampled_optimum
from cbwk_core.simulation.environments import (
    BumpEnvironment,
    LinearEnvironment,
    LogisticEnvironment,
    PaperEnvironment,
)
from cbwk_core.simulation.runner import Runs, run

__all__ = [
    "BumpEnvironment",
    "Delays",
    "Draw",
    "Environment",
    "LinearEnvironment",
    "LogisticEnvironment",
    "PaperEnvironment",
    "Runs",
    "run",
    "sampled_optimum",
]
