"""What distinguishes the presets, and every constant of `practical` with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from cbwk_core.arrays import Array


@dataclass(frozen=True)
class Preset:
    """One way to run the algorithm.

    constant: a constant feature is appended, so that a cost that is always the same (an impression) can be expressed.
    explore_null: the null arm takes part in inverse gap weighting like any other arm.
    value_prices: prices in units of value with relative steps, and pacing by what is left; otherwise the paper's dual.
    exits: one exhausted resource ends everything (Algorithm 1, line "Exit"); otherwise only what needs it is masked.
    notebook_gamma: γ of the authors' code instead of the theorem's.
    projected: θ is kept in the unit ball.
    ridge: A_0 = ridge · I. scaled_ridge: more in linear models of many parameters (`linear_ridge`).
    watches: the Newton oracle begins anew when its errors say that the world has changed, unless told how to forget.
    linked_costs: a link chosen for the reward is that of the costs too, with the Newton oracle.
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
        """A_0 = this · I in a linear model of so many parameters, the constant's among them.

        The ridge is the variance of a residual over that of a parameter. Parameters of length 1 in all have variance
        1/m if they share it, and 1 if it may be any one's alone: scaled, it is the geometric mean of the two answers,
        but no less than `ridge`, which is more below 13 parameters.

        >>> practical = PRESETS["practical"]
        >>> practical.linear_ridge(9), round(practical.linear_ridge(53), 3), PRESETS["paper"].linear_ridge(53)
        (0.3, 0.607, 1.0)
        """
        return max(self.ridge, RESIDUAL_PRIOR * sqrt(parameters)) if self.scaled_ridge else self.ridge


PRESETS = {
    "paper": Preset(
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
    ),
    "authors": Preset(
        constant=False,
        explore_null=True,
        value_prices=False,
        exits=True,
        notebook_gamma=True,
        projected=True,
        ridge=1.0,
        scaled_ridge=False,
        watches=False,
        linked_costs=False,
    ),
    # linked_costs: where money is paid for clicks, a linear cost is wrong where the linear reward is, and the errors
    # cancel in r - λ·c, whose sign decides; with a logistic reward beside a linear cost they do not.
    # ridge: a prior deviation of θ of about two residual deviations; with few features anything from 0.1 to 1 did
    # nearly as well. Kernels keep it however many features they have: more of them approximate the same prior better.
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
# ridge of 0.3 the prior's deviation of the constant takes in 1 % and 25 %. From 0, a rate of ½, every open decision
# would count as half a max cost until the first outcomes come: prices that move at such costs stop moving for good.
FIRST_SCORE = -3.0
# Step and ceiling of the prices in units of value (dual.ValueDual): p* is at most 1; half as much again lets a price
# overshoot for a while when more was spent than planned.
PRICE_STEP = 0.15
PRICE_CEILING = 1.5
# How much of "cost minus predicted cost" moves the price when a cost becomes known. Where predictions are right the
# difference is noise only, and of a click that comes in one round of fifty it is fifty times the pace; where they are
# wrong the pace, which counts what was really spent, makes up for it.
PRICE_CORRECTION = 0.3
# Arms whose gap exceeds WIDTHS joint standard deviations and PRIOR_WIDTH joint leverages are played at a fiftieth of
# their inverse gap probability: some support for off-policy estimates and for a model that turns out wrong. A leverage
# falls like 1/n, a deviation like 1/√n: the first is how far the prior, which takes what was never seen for 0, may pull
# (at most ridge·‖A⁻¹φ‖ for parameters of length 1), and what Bernstein's inequality adds for rare events.
WIDTHS = 0.5
PRIOR_WIDTH = 0.2
DAMPING = 0.02
# γ = GAMMA_FACTOR·√(candidates·(round + 1) / (noise·parameters)): the balance of 2K/γ, what a round of inverse gap
# weighting costs, and γ/4 times noise·parameters/round, the squared error of a linear model with so many of them.
GAMMA_FACTOR = 4.0
# Residual covariance before the first outcome: that of a uniform variable on [0, 1], counted as this many outcomes.
RESIDUAL_PRIOR = 1.0 / 12.0
RESIDUAL_PRIOR_COUNT = 2.0
# Noise is kept above this where it divides: outcomes may have none.
NOISE_MIN = 1e-12
# With this many decisions open and fewer settled nothing is known of the costs: spend at the even pace at most.
BLIND_COUNT = 30
# A budget of no more than this many max costs is given out as it is asked for, blind or not: to callers who ask for a
# hundred at once and may have a hundred null would look like a fault, and so little money cannot buy much learning.
UNPACED_BUDGET_MAX = 128.0


def first_residuals(lanes: int, targets: int) -> Array:
    """Σ of outer products before the first outcome: the prior's, (lanes, q, q)."""
    return np.tile(np.eye(targets) * (RESIDUAL_PRIOR * RESIDUAL_PRIOR_COUNT), (lanes, 1, 1))


def residual_covariance(outer_sum: Array, count: Array) -> Array:
    """Σ̂ of (reward, costs) around their predictions: (lanes, q, q) from sums of outer products and counts (lanes,)."""
    return np.asarray(outer_sum / (count + RESIDUAL_PRIOR_COUNT)[:, None, None])


def practical_gamma(
    candidates: int, rounds: Array, noise: Array, parameters: int, learnt: Array, forgotten: Array | float
) -> Array:
    """γ that grows with the round, in units of the Lagrangian's noise uᵀΣ̂u: (lanes, 1).

    Rounds count by the share of the outcomes learnt that is not forgotten: the model's error does.
    """
    counted = (rounds + 1.0) * ((learnt + 1.0 - forgotten) / (learnt + 1.0))
    return np.asarray(GAMMA_FACTOR * np.sqrt(candidates * counted / (noise * parameters)))[:, None]


def elimination_damping(scores: Array, leverage: Array, noise: Array) -> Array:
    """1 for candidates whose gap to the best is within w_a + w_best, else DAMPING: (n, c + 1), null last.

    scores (n, c + 1) with -inf where a candidate is not allowed, leverage φᵀA⁻¹φ (n, c), noise uᵀΣ̂u (1,) or (n,);
    w = WIDTHS·√(noise·leverage) + PRIOR_WIDTH·leverage, and 0 for the null arm, which is known.
    """
    width = np.zeros_like(scores)
    # Rounding can leave a leverage a little below 0 where features are very large.
    known = np.maximum(leverage, 0.0)
    np.sqrt(known * noise[:, None], out=width[:, :-1])
    width[:, :-1] *= WIDTHS
    width[:, :-1] += PRIOR_WIDTH * known
    rows, best = np.arange(scores.shape[0]), scores.argmax(axis=1)
    gap = scores[rows, best][:, None] - scores
    width += width[rows, best][:, None]
    return np.where(gap <= width, 1.0, DAMPING)
