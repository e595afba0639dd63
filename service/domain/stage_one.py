"""Stage one of two (Algorithm 2): its rounds, whether it is over, and its sample from stored rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from cbwk_core import NULL_ARM, State, two_stage
from cbwk_core.state import Stage
from service.domain.campaign import Campaign
from service.domain.decision_rows import tickets_from

# The kind of the change that ends the stage.
STAGE = "stage"


def drawn_rounds_of(campaign: Campaign) -> int:
    """Returns how many rounds of stage one draw an arm: T0 for every arm."""
    return campaign.policy.arms * two_stage.length(campaign.policy)


def rounds_of(campaign: Campaign) -> int:
    """Returns how many rounds stage one has: those that draw an arm, then T0 that only observe contexts."""
    return (campaign.policy.arms + 1) * two_stage.length(campaign.policy)


def is_under_way(campaign: Campaign, state: State) -> bool:
    """Whether the next decision belongs to stage one."""
    return not state.stage.running[0] and int(state.round[0]) < rounds_of(campaign)


def is_handed_out(campaign: Campaign, state: State) -> bool:
    """Whether stage one has made all its decisions and stage two has not started."""
    return not state.stage.running[0] and int(state.round[0]) >= rounds_of(campaign)


def sample_of(
    campaign: Campaign, decisions: Sequence[Mapping[Any, Any]], outcomes: Sequence[Mapping[Any, Any]]
) -> Stage:
    """Returns the sample: final outcomes in the order of the log, and the contexts of the rounds that only observe.

    `decisions` are the rows of all rounds of stage one, `outcomes` those that ended the rounds with an arm.
    """
    policy, drawn = campaign.policy, drawn_rounds_of(campaign)
    played = {row["sequence"]: row for row in decisions if row["round"] < drawn and row["arm"] != NULL_ARM}
    assert {outcome["decision"] for outcome in outcomes} == set(played), "every decision of stage one has one end"
    contexts = np.stack([campaign.encode(orjson.loads(row["context"])) for row in decisions if row["round"] >= drawn])
    features = campaign.features(contexts, campaign.arm_vectors)
    nothing = [0.0] * (1 + policy.resources)
    taught = [nothing if row["taught"] is None else orjson.loads(row["taught"]) for row in outcomes]
    values = np.array(taught, dtype=np.float64).reshape(-1, 1 + policy.resources)
    return two_stage.gathered(
        policy,
        tickets_from(campaign, [played[outcome["decision"]] for outcome in outcomes]),
        values[:, 0],
        values[:, 1:],
        np.array([float(outcome["taught"] is not None) for outcome in outcomes]),
        features if features.ndim == 3 else features[:, None],
    )
