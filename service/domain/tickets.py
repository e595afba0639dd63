"""A decision's ticket, as its row keeps it: what can be read from other columns is not kept twice."""

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
    """What the column `numbers` keeps of n decisions, float64: predicted reward, value, predicted costs, pace."""
    stored = ticket.stored.astype("<f8", copy=False)
    whole, width = stored.tobytes(), 8 * stored.shape[1]
    return [whole[at : at + width] for at in range(0, len(whole), width)]


def predicted(kept: bytes) -> NDArray[np.float64]:
    """Of the column `numbers`, (1 + d,): reward and costs, in max costs, as they were predicted for the arm."""
    return predicted_in(np.frombuffer(kept, dtype="<f8"))


def pace(kept: bytes) -> NDArray[np.float64]:
    """Of the column `numbers`, (d,): max costs per round."""
    return pace_in(np.frombuffer(kept, dtype="<f8"))


def tickets_from(campaign: Campaign, rows: Sequence[Any]) -> Ticket:
    """The tickets of stored decisions; the rows have arm, round, context, actions, numbers and hold."""
    d = campaign.policy.resources
    return Ticket.from_store(
        arm=[row["arm"] for row in rows],
        features=_features_of(campaign, rows),
        stored=np.frombuffer(b"".join([row["numbers"] for row in rows]), dtype="<f8").reshape(len(rows), -1),
        round=[row["round"] for row in rows],
        hold=[[0] * d if row["hold"] is None else orjson.loads(row["hold"]) for row in rows],
    )


def _features_of(campaign: Campaign, rows: Sequence[Any]) -> NDArray[np.float64]:
    """What the policy saw of the arms that were chosen."""
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
