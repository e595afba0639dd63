"""Simulations: environments with known optimum, and a runner for any policy."""

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
