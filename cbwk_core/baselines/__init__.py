"""Policies for comparison with SquareCBwK. They have the same methods, so the same runner drives all of them.

`PricedThompson`, `PricedUCB`, `Resolving` and `LagrangeCBwK` know prices and have the oracle of `practical`; the others
do not.

>>> import numpy as np
>>> from cbwk_core import Problem
>>> problem = Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=50)
>>> policy = Throttle(policy=Thompson(problem=problem), problem=problem)
>>> policy.decide(policy.init(), np.eye(2)[None], np.array([0.5])).probability
array([1.])
"""

from cbwk_core.baselines.greedy import EpsilonGreedy
from cbwk_core.baselines.lagrange import LagrangeCBwK
from cbwk_core.baselines.linucb import LinUCB
from cbwk_core.baselines.policy import Policy
from cbwk_core.baselines.priced_thompson import PricedThompson
from cbwk_core.baselines.priced_ucb import PricedUCB
from cbwk_core.baselines.resolving import Resolving
from cbwk_core.baselines.thompson import Thompson
from cbwk_core.baselines.throttle import Throttle

__all__ = [
    "EpsilonGreedy",
    "LagrangeCBwK",
    "LinUCB",
    "Policy",
    "PricedThompson",
    "PricedUCB",
    "Resolving",
    "Thompson",
    "Throttle",
]
