"""What if: other policies and other budgets, estimated from the log of a campaign.

>>> import numpy as np
>>> rng = np.random.default_rng(1)
>>> arm = rng.integers(2, size=2000)
>>> log = Log.of(features=np.ones((2000, 1)), eligible=np.ones((2000, 2), dtype=bool), arm=arm,
...              propensity=np.full(2000, 0.5), reward=rng.random(2000) < 0.2 + 0.4 * arm,
...              costs=np.full((2000, 1), 0.5))
>>> found = evaluate(log, FixedArm(1), rng=rng, budget=500.0)
>>> in_words(found.run_out).split(";")[0]
'Under these budgets this policy would have run out of resource 0 at 50 % (50–50 %) of the flight'
"""

from cbwk_core.evaluation.evaluate import PROGRESS_TOTAL, RESTRICTION, Estimate, Evaluation, evaluate
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.marginal import marginal_values
from cbwk_core.evaluation.outcome_model import OutcomeModel
from cbwk_core.evaluation.run_out import Interval, RunOut, in_words
from cbwk_core.evaluation.targets import FixedArm, FromFunction, Target, Uniform
from cbwk_core.evaluation.trained import Trained
from cbwk_core.evaluation.weights import Caution, Overlap
from cbwk_core.evaluation.what_if import ASSUMPTION, Flights, WhatIf, what_if_budgets

__all__ = [
    "ASSUMPTION",
    "PROGRESS_TOTAL",
    "RESTRICTION",
    "Caution",
    "Estimate",
    "Evaluation",
    "FixedArm",
    "Flights",
    "FromFunction",
    "Interval",
    "Log",
    "OutcomeModel",
    "Overlap",
    "RunOut",
    "Target",
    "Trained",
    "Uniform",
    "WhatIf",
    "evaluate",
    "in_words",
    "marginal_values",
    "what_if_budgets",
]
