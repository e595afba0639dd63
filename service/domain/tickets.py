"""The ticket of a decision, stored in column `numbers` and rebuilt with the other columns of its row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import Ticket
from cbwk_core.ticket import pace_in, predicted_in
from service.domain.campaign import Campaign


def numbers_kept(ticket: Ticket) -> list[bytes]:
    """Returns column `numbers` of n decisions, float64: predicted reward, value, predicted costs, pace."""
    stored = ticket.stored.astype("<f8", copy=False)
    whole, width = stored.tobytes(), 8 * stored.shape[1]
    return [whole[at : at + width] for at in range(0, len(whole), width)]


def predicted(numbers: bytes) -> NDArray[np.float64]:
    """Returns the predicted reward and costs (in max costs) of the chosen arm, (1 + d,)."""
    return predicted_in(np.frombuffer(numbers, dtype="<f8"))


def pace(numbers: bytes) -> NDArray[np.float64]:
    """Returns the pace in max costs per round, (d,)."""
    return pace_in(np.frombuffer(numbers, dtype="<f8"))


def tickets_from(campaign: Campaign, rows: Sequence[Any]) -> Ticket:
    """Returns the tickets of stored decisions, from rows with arm, round, context, actions, numbers and hold."""
    d = campaign.policy.resources
    return Ticket.from_store(
        arm=[row["arm"] for row in rows],
        features=_features_of(campaign, rows),
        stored=np.frombuffer(b"".join([row["numbers"] for row in rows]), dtype="<f8").reshape(len(rows), -1),
        round=[row["round"] for row in rows],
        hold=[[0] * d if row["hold"] is None else orjson.loads(row["hold"]) for row in rows],
    )


def _features_of(campaign: Campaign, rows: Sequence[Any]) -> NDArray[np.float64]:
    """Returns the features of the chosen arms."""
    contexts = campaign.encoder.encode_many(orjson.loads(row["context"]) for row in rows).vectors
    if campaign.arm_encoder is None:
        return contexts
    features = np.empty((len(rows), campaign.policy.dimension))
    for index, (context, row) in enumerate(zip(contexts, rows, strict=True)):
        if row["actions"]:
            action = orjson.loads(row["actions"])[row["arm"]]
            arm = campaign.arm_encoder.encode(action["features"]).vector
        else:
            assert campaign.arm_vectors is not None
            arm = campaign.arm_vectors[row["arm"]]
        features[index] = campaign.features(context[None], arm[None])[0, 0]
    return features
