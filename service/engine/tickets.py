"""A decision's ticket, as its row keeps it: what can be read from other columns is not kept twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import Ticket
from service.engine.campaign import Campaign


def numbers_kept(ticket: Ticket) -> list[bytes]:
    """What the column `numbers` keeps of n decisions, float64: predicted reward, value, predicted costs, pace."""
    d, numbers = ticket.resources, ticket.numbers
    # The round has a column of its own, and so has the hold, which comes last.
    if len(numbers) == 1:
        row = numbers.astype("<f8", copy=False).tobytes()
        return [row[: 8 * 2] + row[8 * 3 : 8 * (3 + 2 * d)]]
    kept = np.empty((len(numbers), 2 + 2 * d), dtype="<f8")
    kept[:, :2], kept[:, 2:] = numbers[:, :2], numbers[:, 3 : 3 + 2 * d]
    whole, width = kept.tobytes(), 8 * (2 + 2 * d)
    return [whole[at : at + width] for at in range(0, width * len(numbers), width)]


def predicted(kept: bytes, resources: int) -> NDArray[np.float64]:
    """Of the column `numbers`, (1 + d,): reward and costs, in max costs, as they were predicted for the arm."""
    numbers = np.frombuffer(kept, dtype="<f8")
    return np.concatenate([numbers[:1], numbers[2 : 2 + resources]])


def pace(kept: bytes, resources: int) -> NDArray[np.float64]:
    """Of the column `numbers`, (d,): max costs per round."""
    return np.frombuffer(kept, dtype="<f8")[2 + resources :]


def tickets_from(campaign: Campaign, rows: Sequence[Any]) -> Ticket:
    """The tickets of stored decisions; the rows have arm, round, context, actions, numbers and hold."""
    features = _features_of(campaign, rows)
    d = campaign.policy.resources
    kept = np.frombuffer(b"".join([row["numbers"] for row in rows]), dtype="<f8").reshape(-1, 2 + 2 * d)
    numbers = np.empty((len(rows), 3 + 3 * d))
    numbers[:, :2], numbers[:, 3 : 3 + 2 * d] = kept[:, :2], kept[:, 2:]
    numbers[:, 2] = [row["round"] for row in rows]
    numbers[:, 3 + 2 * d :] = [[0] * d if row["hold"] is None else orjson.loads(row["hold"]) for row in rows]
    return Ticket(np.array([row["arm"] for row in rows], dtype=np.int64), features, numbers)


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
