"""Policies to compare with: they drive the same runner, and their names say what they lack."""

from cbwk_core.baselines.greedy import EpsilonGreedy
from cbwk_core.baselines.linucb import LinUCB
from cbwk_core.baselines.policy import Policy
from cbwk_core.baselines.thompson import Thompson
from cbwk_core.baselines.throttle import Throttle

__all__ = ["EpsilonGreedy", "LinUCB", "Policy", "Thompson", "Throttle"]
