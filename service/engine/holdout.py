"""Decisions that somebody else makes: the hold-out's baseline, and in shadow mode the caller.

The policy is asked as always; then its choice is exchanged for the other's, with a ticket and a hold of its own. So the
ledger, the prices and the oracle go on as if the policy had chosen it. Such campaigns decide one request at a time,
since what a baseline holds is not what the policy counted with.

The hold-out is drawn by a uniform of its own from the campaign's seed and the round. A decision's probability is that
of its arm before the group was drawn, (1 - f)·π(arm) + f·[arm is the baseline's]: exact for either group, and so are
those the explanation keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbwk_core import NULL_ARM, Choice, Ticket
from cbwk_core.arrays import frozen
from cbwk_core.ticket import BUDGET_EXHAUSTED, POLICY
from service.domain.campaign import Campaign
from service.domain.holdout import HOLDOUT, SHADOW
from service.engine.changes import Work, to_json
from service.engine.commands import Decide
from service.engine.stage_one import is_under_way
from service.problems import Invalid, Problem


@dataclass(frozen=True, slots=True)
class Options:
    """What one request could choose from."""

    features: NDArray[np.float64]  # as the policy took them: (1, m), or (1, arms, m) where the model is shared
    holds: Sequence[Sequence[int]]
    arm_ids: Sequence[str]


def unfit(campaign: Campaign, request: Decide) -> Problem | None:
    """What is wrong with a request's `baseline_arm`, if anything."""
    if not campaign.shadows:
        return _refused("is for campaigns in shadow mode") if request.baseline else None
    if not request.baseline:
        return _refused("must be given in shadow mode: what will be played, null for nothing")
    (arm,) = request.baseline
    known = campaign.arms if request.actions is None else [action["id"] for action in request.actions]
    if arm is not None and arm not in known:
        return _refused("is none of the arms")
    if arm is not None and arm in request.exclude:
        return _refused("is excluded by the same request")
    return None


def _refused(message: str) -> Problem:
    errors = [{"field": "baseline_arm", "message": message}]
    return Invalid(f"baseline_arm {message}", kind="invalid-baseline", errors=errors)


def diverted(work: Work, request: Decide, choice: Choice, options: Options) -> tuple[Choice, str | None]:
    """What is played instead of the policy's choice for one request, and in shadow mode what that was, for its row."""
    if work.campaign.shadows:
        return _shadowed(work, request, choice, options)
    if choice.reason[0] != POLICY or is_under_way(work):
        return choice, None
    return _held_out(work, choice, options), None


def _shadowed(work: Work, request: Decide, choice: Choice, options: Options) -> tuple[Choice, str | None]:
    (asked,) = request.baseline
    kept = to_json(_would_have(choice, options) | {"baseline": asked})
    if choice.reason[0] != POLICY:
        return choice, kept
    arm = NULL_ARM if asked is None else options.arm_ids.index(asked)
    if arm != NULL_ARM and not _can_be_held(work, options.holds[arm]):
        return _played(work.campaign, choice, options, NULL_ARM, BUDGET_EXHAUSTED, 1.0), kept
    return _played(work.campaign, choice, options, arm, SHADOW, 1.0), kept


def _would_have(choice: Choice, options: Options) -> dict[str, Any]:
    """The policy's own choice, with what it expected of it: reward in [0, 1], costs in max costs."""
    arm, ticket = int(choice.arm[0]), choice.ticket
    return {
        "arm": None if arm == NULL_ARM else options.arm_ids[arm],
        "reason": choice.reason[0],
        "probability": float(choice.probability[0]),
        "reward": float(ticket.reward[0]),
        "costs": ticket.costs[0].tolist(),
    }


def _held_out(work: Work, choice: Choice, options: Options) -> Choice:
    terms = work.campaign.config["holdout"]
    fraction, baseline = float(terms["fraction"]), NULL_ARM
    if terms["arm"] in options.arm_ids:
        index = options.arm_ids.index(terms["arm"])
        # One that was excluded or is retired, or cannot be paid, cannot be the baseline here: nothing is played.
        baseline = index if choice.probabilities[0, index] > 0.0 else NULL_ARM
    mixed = (1.0 - fraction) * choice.probabilities
    mixed[0, baseline] += fraction  # null is the last column
    mixed = frozen(mixed)
    if group_uniform(work.campaign.config["seed"], int(choice.ticket.round[0])) < fraction:
        probability = float(mixed[0, baseline])
        held_out = _played(work.campaign, choice, options, baseline, HOLDOUT, probability)
        return held_out._replace(probabilities=mixed)
    return choice._replace(probabilities=mixed, probability=mixed[np.arange(1), choice.arm])


def group_uniform(seed: int, round_number: int) -> float:
    """Which group a round is of: a uniform that has nothing to do with the one that draws its arm.

    >>> 0.0 <= group_uniform(7, 0) < 1.0
    True
    """
    digest = blake2b(f"{seed}:holdout:{round_number}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


def _can_be_held(work: Work, hold: Sequence[int]) -> bool:
    return all(needed <= free for needed, free in zip(hold, work.ledger.free(), strict=True))


def _played(campaign: Campaign, choice: Choice, options: Options, arm: int, reason: str, probability: float) -> Choice:
    """The choice of another arm, with the ticket the policy would have given it."""
    assert choice.thought is not None, "our policy says what it thought"
    old, real = choice.ticket, arm != NULL_ARM
    predicted = choice.thought.predictions[:, arm] if real else np.zeros_like(choice.thought.predictions[:, 0])
    features = options.features[:, arm] if options.features.ndim == 3 else options.features
    hold = np.array([options.holds[arm]], dtype=np.float64) if real else np.zeros_like(old.hold)
    costs = predicted[:, 1:]
    ticket = Ticket.of(
        arm=frozen(np.array([arm])),
        features=frozen(features * float(real)),
        reward=predicted[:, 0],
        costs=np.maximum(costs, 0.0) if campaign.policy.variant.value_prices else costs,
        rho=old.rho,
        value=old.value,
        round=old.round,
        hold=hold,
        context=old.context,
    )
    return choice._replace(
        arm=frozen(np.array([arm])), probability=frozen(np.array([probability])), reason=(reason,), ticket_source=ticket
    )
