"""cbwk_core: contextual bandits with knapsacks via regression oracles, as a pure numerical library.

>>> import numpy as np
>>> policy = SquareCBwK(arms=2, dimension=2, resources=1, horizon=1000, budget=200.0, model="per_arm")
>>> state = policy.init()
>>> choice = policy.decide(state, np.array([[0.2, 0.7]]), uniforms=[0.5])
>>> state = policy.commit(state, choice.ticket)
>>> state = policy.settle(state, choice.ticket, rewards=[1.0], costs=[[0.4]])
>>> policy.quote(state).prices.shape
(1, 1)
"""

from cbwk_core.features import CategoryFeature, ContextEncoder, Encoded, HashFeature, NumberFeature, concatenate, outer
from cbwk_core.policy import SquareCBwK
from cbwk_core.presets import RULES_KNOWN, RULES_VERSION
from cbwk_core.problem import Problem
from cbwk_core.state import Quote, State
from cbwk_core.static_optimum import StaticOptimum, static_optimum
from cbwk_core.ticket import NULL_ARM, Choice, Thought, Ticket

__all__ = [
    "NULL_ARM",
    "RULES_KNOWN",
    "RULES_VERSION",
    "CategoryFeature",
    "Choice",
    "ContextEncoder",
    "Encoded",
    "HashFeature",
    "NumberFeature",
    "Problem",
    "Quote",
    "SquareCBwK",
    "State",
    "StaticOptimum",
    "Thought",
    "Ticket",
    "concatenate",
    "outer",
    "static_optimum",
]
