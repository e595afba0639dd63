"""What stage one of Algorithm 2 found out: ÔPT, the margin M(T0), and the radius Z for stage two.

The linear program (eq-Z-est-LP) on the contexts of stage one gives ÔPT, and

    Z = min(T/B, (T/B)·(ÔPT + M(T0))).

M(T0) is either the paper's formula, which at practical sizes exceeds 1 so that Z is T/B, or measured from the outcomes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array, Integers
from cbwk_core.configuration import Configuration
from cbwk_core.oracles.online_to_batch import OnlineToBatch
from cbwk_core.state import Stage
from cbwk_core.static_optimum import static_optimum
from cbwk_core.two_stage import paper_margin, widest

# Confidence of the measured margin: it is meant to hold in 95 of 100 campaigns.
MARGIN_DELTA = 0.05
# Groups of the jackknife: with nine degrees of freedom the 99 % quantile is a fifth above the normal one, and eleven
# fits are affordable.
GROUPS = 10


class Estimate(NamedTuple):
    """What stage one found out, per lane."""

    optimum: Array  # (lanes,), ÔPT
    margin: Array  # (lanes,), M(T0)
    radius: Array  # (lanes,), Z


def estimate(policy: Configuration, stage: Stage, mode: str) -> Estimate:
    """ÔPT, M(T0) and Z from the outcomes and contexts of stage one.

    `paper` predicts by online-to-batch averages, each arm by its own outcomes, as Algorithm 2 does. `measured` takes
    the policy's own oracle after all outcomes, which is the better fit: the average still contains the first guess.
    """
    lanes = stage.running.shape[0]
    if mode == "paper":
        predictions = _averaged_fit(policy, stage)
        margin = np.full(lanes, paper_margin(policy.problem, policy.rules))
    else:
        fits = _jackknife_fits(policy, stage)
        predictions = fits[0]
        margin = measured_margin(policy, stage, fits)
    rho = policy.problem.rho.min()
    optimum = np.array(
        [
            static_optimum(
                predictions[:, lane, :, 0],
                predictions[:, lane, :, 1:] * policy.problem.scale,
                np.full(policy.resources, rho + 2.0 * margin[lane]),
            ).value
            for lane in range(lanes)
        ]
    )
    return Estimate(optimum, margin, np.minimum(1.0, optimum + margin) * widest(policy))


def _averaged_fit(policy: Configuration, stage: Stage) -> Array:
    """f̂_0 and ĝ_0 of every arm in every context: (contexts, lanes, arms, 1 + d), each arm by its own outcomes."""
    x, y, arms, weights = _rows(policy, stage)
    oracle = OnlineToBatch(policy.make_oracle(policy.arms), iterates_max=max(stage.arms.shape[0], 1))
    fitted = oracle.update(oracle.init(stage.running.shape[0]), x, y, arms, weights)
    seen = policy.lifted(stage.contexts.reshape(-1, *stage.contexts.shape[2:]))
    if policy.model == "per_arm":
        predictions = oracle.predict(fitted, seen)
    else:
        own = [oracle.predict(fitted, seen[:, [arm]])[:, arm] for arm in range(policy.arms)]
        predictions = np.stack(own, axis=1)
    return predictions.reshape(*stage.contexts.shape[:2], policy.arms, 1 + policy.resources)


def _jackknife_fits(policy: Configuration, stage: Stage) -> Array:
    """Predictions (1 + GROUPS, contexts, lanes, arms, 1 + d) after all outcomes, then after all but those of a group.

    Outcomes are assigned to the groups in rotation, so that every group has its share of every arm.
    """
    x, y, arms, weights = _rows(policy, stage)
    samples, lanes = stage.arms.shape
    oracle = policy.make_oracle(policy.regressor.blocks)
    block = arms if oracle.blocks > 1 else None
    group = np.repeat(np.arange(samples) % GROUPS, lanes)
    seen = policy.lifted(stage.contexts.reshape(-1, *stage.contexts.shape[2:]))
    shape = (*stage.contexts.shape[:2], policy.arms, 1 + policy.resources)
    fits = np.empty((1 + GROUPS, *shape))
    for fit in range(1 + GROUPS):
        fitted = oracle.update(oracle.init(lanes), x, y, block, weights * (group != fit - 1))
        fits[fit] = oracle.predict(fitted, seen).reshape(shape)
    return fits


def _rows(policy: Configuration, stage: Stage) -> tuple[Array, Array, Integers, Array]:
    """The outcomes of stage one as an oracle learns them: features, targets, arms and weights."""
    rows = stage.arms.size
    return (
        policy.lifted(stage.features.reshape(rows, policy.dimension)),
        stage.targets.reshape(rows, 1 + policy.resources),
        stage.arms.reshape(-1),
        stage.weights.reshape(-1),
    )


def measured_margin(policy: Configuration, stage: Stage, fits: Array) -> Array:
    """M(T0) from what was seen, (lanes,): max(D_0, D_1/2, …, D_d/2, L/n), to hold with probability 1 - MARGIN_DELTA.

    For Z >= T·OPT/B the proof of lem-opt-error needs that the program's reward is off by at most M and each of its
    costs by at most 2M, the slack in eq-Z-est-LP. By duality ÔPT is the minimum over λ of λᵀ(ρ + 2M) + mean_x h(x, λ)
    with h = max(0, max_a f - λᵀg), so it is enough that this mean is off by at most D_0 + Σ λ_j·D_j, where

        D_j = t·√(mean_x max_a (v_j + b_j²)(x, a) + V_j/T0)

    and t is the quantile of Student's distribution for 1 + d statements at once. v_j and b_j are variance and bias of
    the fit by the jackknife, leaving out one group of outcomes at a time: every oracle has them, and they need no
    constant of a theorem. V_j = ½·mean max_a (f̂_j(x, a) - f̂_j(x', a))² over successive contexts x, x'; a maximum moves
    no more than its terms, so the deviation of h over contexts is at most √V_0 + Σ λ_j·√V_j.
    L/n with L = ln((1 + d)/MARGIN_DELTA) is what n outcomes cannot show: a reward that rare may never have been seen.
    Where an arm has fewer outcomes than there are groups, nothing is measured: M = 1, and Z is T/B.
    """
    contexts, groups = fits.shape[1], fits.shape[0] - 1
    of_arm = stage.arms == np.arange(policy.arms)[:, None, None]
    fewest = (of_arm * stage.weights).sum(axis=1).min(axis=0)
    if contexts < 2 or fewest.max() < groups:
        return np.ones(fewest.shape)
    whole, parts = fits[0], fits[1:]
    centre = parts.mean(axis=0)
    variance = ((parts - centre) ** 2).sum(axis=0) * (groups - 1) / groups
    bias = (centre - whole) * (groups - 1)
    error = (variance + bias**2).max(axis=2).mean(axis=0)
    sampling = (np.diff(whole, axis=0) ** 2).max(axis=2).mean(axis=0) / (2.0 * contexts)
    share = MARGIN_DELTA / (1 + policy.resources)
    # scipy.special takes long to import, and few policies end a stage.
    from scipy.special import stdtrit  # noqa: PLC0415

    deviation = stdtrit(groups - 1, 1.0 - share) * np.sqrt(error + sampling)
    deviation[:, 1:] *= policy.problem.scale / 2.0
    unseen = math.log(1.0 / share) / np.maximum(fewest, 1.0)
    return np.where(fewest < groups, 1.0, np.maximum(deviation.max(axis=1), unseen))
