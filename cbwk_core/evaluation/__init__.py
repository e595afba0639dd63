"""Off-policy evaluation: estimates from the log of a campaign what other policies or other budgets would have earned.

>>> import numpy as np
>>> rng = np.random.default_rng(1)
>>> arm = rng.integers(2, size=2000)
>>> log = Log.of(features=np.ones((2000, 1)), eligible=np.ones((2000, 2), dtype=bool), arm=arm,
...              propensity=np.full(2000, 0.5), reward=rng.random(2000) < 0.2 + 0.4 * arm,
...              costs=np.full((2000, 1), 0.5))
>>> reports = []
>>> found = evaluate(log, FixedArm(1), rng=rng, budget=500.0, progress=lambda done, total: reports.append(done))
>>> run_out_sentence(found.run_out).split(";")[0]
'Under these budgets this policy would have run out of resource 0 at 50 % (50–50 %) of the flight'
>>> reports[-1] == PROGRESS_TOTAL, found.restriction == RESTRICTION
(True, True)
"""

from cbwk_core.evaluation.evaluate import PROGRESS_TOTAL, RESTRICTION, Evaluation, evaluate
from cbwk_core.evaluation.intervals import Estimate
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.outcome_model import OutcomeModel
from cbwk_core.evaluation.run_out import Interval, RunOut, run_out_sentence
from cbwk_core.evaluation.targets import FixedArm, FromFunction, Target, Uniform
from cbwk_core.evaluation.trained import Trained
from cbwk_core.evaluation.weights import Caution, Overlap
from cbwk_core.evaluation.what_if import ASSUMPTION, Flights, WhatIf, marginal_values, what_if_budgets

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
    "marginal_values",
    "run_out_sentence",
    "what_if_budgets",
]
