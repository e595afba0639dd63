"""Decisions that a baseline makes: the hold-out's arm, and in shadow mode the caller's.

The policy decides first; then its choice is replaced by the baseline's, with a ticket and a hold of its own. Ledger,
prices and oracle continue as if the policy had chosen that arm. Such campaigns decide one request at a time, because
the baseline's hold differs from the one the policy counted with.

A uniform of its own, from the campaign's seed and the round, draws the hold-out. The probability of a decision is that
of its arm before this draw, (1 - f)·π(arm) + f·[arm is the baseline's]: exact for both groups, as are those in the
explanation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import NULL_ARM, Choice, State, Ticket
from cbwk_core.arrays import frozen
from cbwk_core.ticket import BUDGET_EXHAUSTED, POLICY
from service.domain import must_play
from service.domain.campaign import Campaign, uniforms_of
from service.domain.stage_one import is_under_way
from service.domain.windows import WINDOW_EXHAUSTED
from service.problems import Invalid, Problem
from service.words import error_at, not_among

HOLDOUT, SHADOW = "holdout", "shadow"
# The first version of the rules in which the value of a baseline's decision is that of the baseline's arm.
VALUED_ARM_RULES = 3


@dataclass(frozen=True, slots=True)
class Options:
    """What one request can choose from."""

    features: NDArray[np.float64]  # as the policy took them: (1, m), or (1, arms, m) if the model is shared
    holds: Sequence[Sequence[int]]
    arm_ids: Sequence[str]
    baseline: tuple[str | None, ...]  # the arm that the caller plays; empty in live mode
    free: Sequence[int]
    unlimited: Sequence[int]  # free without windows


def baseline_problem(
    campaign: Campaign,
    baseline: tuple[str | None, ...],
    actions: Sequence[Mapping[str, Any]] | None,
    exclude: Collection[str],
) -> Problem | None:
    """Returns what is wrong with a request's `baseline_arm`, if anything."""
    if not campaign.shadows:
        return _refused("is for campaigns in shadow mode") if baseline else None
    if not baseline:
        return _refused("must be given in shadow mode: what will be played, null for nothing")
    (arm,) = baseline
    known = campaign.arms if actions is None else [action["id"] for action in actions]
    if arm is not None and arm not in known:
        return _refused(not_among("arms", arm, known))
    if arm is not None and arm in exclude:
        return _refused("is excluded by the same request")
    return None


def _refused(message: str) -> Problem:
    errors = [error_at("baseline_arm", message)]
    return Invalid(f"baseline_arm {message}", kind="invalid-baseline", errors=errors)


def baseline_choice(campaign: Campaign, state: State, choice: Choice, options: Options) -> tuple[Choice, str | None]:
    """Returns what is played instead of the policy's choice; in shadow mode also that choice, for column `shadow`."""
    if campaign.shadows:
        return _shadow_choice(campaign, choice, options)
    if choice.reason[0] != POLICY or is_under_way(campaign, state):
        return choice, None
    return _holdout_choice(campaign, choice, options), None


def _shadow_choice(campaign: Campaign, choice: Choice, options: Options) -> tuple[Choice, str | None]:
    (baseline,) = options.baseline
    own, ticket = int(choice.arm[0]), choice.ticket
    # The policy's choice and its predictions: the reward in [0, 1], the costs in max costs.
    shadow = {
        "arm": None if own == NULL_ARM else options.arm_ids[own],
        "reason": choice.reason[0],
        "probability": float(choice.probability[0]),
        "reward": float(ticket.reward[0]),
        "costs": ticket.costs[0].tolist(),
        "baseline": baseline,
    }
    if choice.reason[0] == POLICY:
        arm, reason = NULL_ARM if baseline is None else options.arm_ids.index(baseline), SHADOW
        if arm != NULL_ARM and any(
            needed > free for needed, free in zip(options.holds[arm], options.free, strict=True)
        ):
            short = any(needed > free for needed, free in zip(options.holds[arm], options.unlimited, strict=True))
            arm, reason = NULL_ARM, BUDGET_EXHAUSTED if short else WINDOW_EXHAUSTED
        choice = _choice_of(campaign, choice, options, arm, reason, 1.0)
    return choice, orjson.dumps(shadow).decode()


def _holdout_choice(campaign: Campaign, choice: Choice, options: Options) -> Choice:
    terms = campaign.config["holdout"]
    fraction, baseline = float(terms["fraction"]), NULL_ARM
    if terms["arm"] in options.arm_ids:
        index = options.arm_ids.index(terms["arm"])
        # An arm that is excluded, retired or too expensive cannot be the baseline: nothing is played.
        baseline = index if choice.probabilities[0, index] > 0.0 else NULL_ARM
    if baseline == NULL_ARM and campaign.floor is not None:  # nothing is no alternative: the policy decides
        return choice
    mixed = (1.0 - fraction) * choice.probabilities
    mixed[0, baseline] += fraction  # null is the last column
    mixed = frozen(mixed)
    if group_uniform(campaign.config["seed"], int(choice.ticket.round[0])) < fraction:
        choice = _choice_of(campaign, choice, options, baseline, HOLDOUT, float(mixed[0, baseline]))
        return choice._replace(probabilities=mixed)
    return choice._replace(probabilities=mixed, probability=mixed[np.arange(1), choice.arm])


def group_uniform(seed: int, round_number: int) -> float:
    """Returns the uniform that draws the group of a round, independent of the one that draws its arm.

    >>> 0.0 <= group_uniform(7, 0) < 1.0
    True
    """
    return float(uniforms_of([b"%d:holdout:%d" % (seed, round_number)])[0])


def _choice_of(
    campaign: Campaign, choice: Choice, options: Options, arm: int, reason: str, probability: float
) -> Choice:
    """Returns the choice of another arm, with the ticket that the policy would have given it."""
    assert choice.thought is not None, "our policy explains its choice"
    old, real = choice.ticket, arm != NULL_ARM
    predicted = choice.thought.predictions[:, arm] if real else np.zeros_like(choice.thought.predictions[:, 0])
    features = options.features[:, arm] if options.features.ndim == 3 else options.features
    hold = np.array([options.holds[arm]], dtype=np.float64) if real else np.zeros_like(old.hold)
    costs = predicted[:, 1:]
    # Rules 1 and 2 counted what the policy's own arm was predicted to earn; stored campaigns go on with it.
    value = old.value if campaign.rules < VALUED_ARM_RULES else np.maximum(predicted[:, 0], 0.0)
    if campaign.floor is not None:
        value = must_play.value_of(campaign, choice.thought.predictions, options.arm_ids, arm)
    ticket = Ticket.of(
        arm=frozen(np.array([arm])),
        features=frozen(features * float(real)),
        reward=predicted[:, 0],
        costs=np.maximum(costs, 0.0) if campaign.policy.variant.value_prices else costs,
        rho=old.rho,
        value=value,
        round=old.round,
        hold=hold,
        context=old.context,
    )
    return choice._replace(
        arm=frozen(np.array([arm])), probability=frozen(np.array([probability])), reason=(reason,), ticket_source=ticket
    )
