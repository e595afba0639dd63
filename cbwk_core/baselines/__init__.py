"""Policies for comparison with SquareCBwK. They have the same methods, so the same runner drives all of them.

>>> import numpy as np
>>> from cbwk_core import Problem
>>> problem = Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=50)
>>> policy = Throttle(policy=Thompson(problem=problem), problem=problem)
>>> policy.decide(policy.init(), np.eye(2)[None], np.array([0.5])).probability
array([1.])
"""

from cbwk_core.baselines.greedy import EpsilonGreedy
from cbwk_core.baselines.linucb import LinUCB
from cbwk_core.baselines.policy import Policy
from cbwk_core.baselines.thompson import Thompson
from cbwk_core.baselines.throttle import Throttle

__all__ = ["EpsilonGreedy", "LinUCB", "Policy", "Thompson", "Throttle"]
