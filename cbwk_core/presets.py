"""What distinguishes the presets, and every constant of `practical` with its reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

# The version of the rules that a new policy plays. 1: as released with 0.1. 2: as the paper reads where 1 differed; in
# `practical` only γ with the kernel oracle. 3: a baseline's decision has the value of its own arm, and in `practical` a
# surprising cost counts in the root of its own price step. 4: in `practical` with a model per arm, an arm is tried by
# how plausible it is that it is the best, with a noise of its own; dear arms have limits, alarms go on trial, and costs
# are learnt before their reward. 5: with windows, prices rest while nothing can be paid, and the energy of their steps
# fades; at prices of a portfolio such arms are tried by upper bounds (DESIGN.md, "Presets, and versions of the rules").
RULES_VERSION = 5
RULES_KNOWN = (1, 2, 3, 4, 5)


def check_rules(rules: object) -> None:
    """Raise ValueError unless this version has these rules.

    >>> check_rules(9)
    Traceback (most recent call last):
    ValueError: rules must be one of (1, 2, 3, 4, 5), got 9
    """
    if type(rules) is not int or rules not in RULES_KNOWN:
        raise ValueError(f"rules must be one of {RULES_KNOWN}, got {repr(rules)[:20]}")


@dataclass(frozen=True)
class Preset:
    """One way to run the algorithm.

    constant: the policy appends a constant feature, so that a linear model can express a cost that never changes.
    explore_null: the null arm takes part in inverse gap weighting like any other arm.
    value_prices: prices are in units of value, with relative steps and a pace of what is left; otherwise the paper's
        dual is used.
    exits: one exhausted resource ends the campaign (Algorithm 1, line "Exit"); otherwise it masks the arms
        that need it.
    notebook_gamma: γ is that of the authors' code instead of the theorem's.
    projected: the oracle keeps θ in the unit ball.
    ridge: A_0 = ridge · I. scaled_ridge: more in linear models of many parameters (`linear_ridge`).
    watches: the Newton oracle restarts when its errors show that the world has changed, unless `forgetting` is set.
    linked_costs: with the Newton oracle, the link chosen for the reward is also that of the costs.

    >>> PRESETS["paper"].explore_null, PRESETS["practical"].explore_null
    (True, False)
    """

    constant: bool
    explore_null: bool
    value_prices: bool
    exits: bool
    notebook_gamma: bool
    projected: bool
    ridge: float
    scaled_ridge: bool
    watches: bool
    linked_costs: bool

    def linear_ridge(self, parameters: int) -> float:
        """The factor of I in A_0 for a linear model with that many parameters, the constant included.

        The ridge is the variance of a residual over the variance of a parameter. If parameters of total length 1 share
        that length, each has variance 1/m; if one of them may have all of it, 1. `scaled_ridge` takes the geometric
        mean of the two answers, but at least `ridge`, which is larger below 13 parameters.

        >>> practical = PRESETS["practical"]
        >>> practical.linear_ridge(9), round(practical.linear_ridge(53), 3), PRESETS["paper"].linear_ridge(53)
        (0.3, 0.607, 1.0)
        """
        return max(self.ridge, RESIDUAL_PRIOR * sqrt(parameters)) if self.scaled_ridge else self.ridge


_paper = Preset(
    constant=False,
    explore_null=True,
    value_prices=False,
    exits=True,
    notebook_gamma=False,
    projected=True,
    ridge=1.0,
    scaled_ridge=False,
    watches=False,
    linked_costs=False,
)
PRESETS = {
    "paper": _paper,
    "authors": replace(_paper, notebook_gamma=True),
    # linked_costs: where money is paid for clicks, a linear cost errs where the linear reward errs, and the errors
    # cancel in r - λ·c, whose sign decides; with a logistic reward beside a linear cost they do not cancel.
    # ridge: a prior deviation of θ of about two residual deviations; with few features any value from 0.1 to 1 did
    # nearly as well. Kernels keep it for any number of features: more of them approximate the same prior better.
    "practical": Preset(
        constant=True,
        explore_null=False,
        value_prices=True,
        exits=False,
        notebook_gamma=False,
        projected=False,
        ridge=0.3,
        scaled_ridge=True,
        watches=True,
        linked_costs=True,
    ),
}

# The score of a logistic target before its first outcome, the weight of the constant feature: a rate of 5 %. With a
# ridge of 0.3 the prior deviation of the constant covers 1 % and 25 %. From 0, a rate of ½, every open decision would
# count as half a max cost until the first outcomes come, and prices that move at such costs stop moving for good.
FIRST_SCORE = -3.0
# Step and ceiling of the prices in units of value (rules/dual.py): p* is at most 1; half as much again lets a price
# overshoot for a while when more was spent than planned.
PRICE_STEP = 0.15
PRICE_CEILING = 1.5
# With windows, what the energy of the steps keeps of itself at each decision: the last 64 or so count, so that a price
# finds its way within a day whatever went before. 32 to 100 did nearly as well, in days of 300 and hours of 50 rounds.
ENERGY_KEPT = 1.0 - 1.0 / 64.0
# The share of "cost minus predicted cost" that moves the price when a cost becomes known. Where predictions are right
# the difference is noise, and for a click that comes in one round of fifty it is fifty times the pace; where they are
# wrong, the pace, which counts what was really spent, makes up for it.
PRICE_CORRECTION = 0.3
# An arm whose gap exceeds WIDTHS joint standard deviations plus PRIOR_WIDTH joint leverages keeps a fiftieth of its
# inverse gap probability: support for off-policy estimates and for a model that turns out wrong. A leverage falls like
# 1/n, a deviation like 1/√n. The leverage bounds the pull of the prior, which predicts 0 for what was never seen (at
# most ridge·‖A⁻¹φ‖ for parameters of length 1), and is the term that Bernstein's inequality adds for rare events.
WIDTHS = 0.5
PRIOR_WIDTH = 0.2
DAMPING = 0.02
# Where every arm has parameters of its own (from rules 4 on), the variance of a predicted worth is PLAUSIBLE_VARIANCE·
# noise·leverage·ln(1 + plays left·leverage / parameters), and PLAUSIBLE_PRIOR leverages are the pull of the prior. The
# logarithm is that of MOSS: what is left to gain by trying an arm depends on the plays left for each parameter. Every
# arm keeps 1/PLAUSIBLE_FLOOR of an equal share, before its gap: the lemma of inverse gap weighting with that constant.
PLAUSIBLE_VARIANCE = 0.5
PLAUSIBLE_PRIOR = 0.1
PLAUSIBLE_FLOOR = 200.0
# A candidate that is dearer than others, and that the free budget pays N times, gets N² / DEAR_PLAYS plays while it is
# unknown (rules/dear_arms.py): none of 7, 25 of 100. Fewer waste money on what the budget cannot bear, more learn too
# late; 200 to 800 did nearly as well.
DEAR_PLAYS = 400.0
# γ = GAMMA_FACTOR·√(candidates·(round + 1) / (noise·parameters)) balances 2K/γ, the cost of a round of inverse gap
# weighting, and γ/4 times noise·parameters/round, the squared error of a linear model with that many parameters.
GAMMA_FACTOR = 4.0
# Residual covariance before the first outcome: that of a uniform variable on [0, 1], counted as this many outcomes.
RESIDUAL_PRIOR = 1.0 / 12.0
RESIDUAL_PRIOR_COUNT = 2.0
# The least noise where it divides: outcomes may have none.
NOISE_MIN = 1e-12
# With this many decisions open and fewer settled nothing is known of the costs: spend at the even pace at most.
BLIND_COUNT = 30
# A budget of at most this many max costs is given out as it is asked for, blind or not. A caller who asks for a hundred
# decisions at once, and could have them, would take null for a fault; and so little money buys little learning.
UNPACED_BUDGET_MAX = 128.0
# Must play. The risk of each test that the reserve is enough; a run has about ten tests that differ, so at most one run
# in a hundred fails (rules/reserve.py).
RESERVE_RISK = 0.001
# The least pace beyond the floor that a price step is scaled to, as a share of the even pace: a floor that takes the
# whole budget leaves none, and a step would have no bound.
SURPLUS_SHARE_MIN = 0.02
