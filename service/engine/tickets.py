"""A decision's ticket, as its row keeps it: what can be read from other columns is not kept twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import Ticket
from service.engine.campaign import Campaign


def numbers_kept(ticket: Ticket) -> NDArray[np.float64]:
    """(n, 2 + 2d), for the column `numbers`: predicted reward, value, predicted costs, pace."""
    numbers, d = ticket.numbers, ticket.resources
    kept = np.empty((numbers.shape[0], 2 + 2 * d), dtype="<f8")
    kept[:, :2], kept[:, 2:] = numbers[:, :2], numbers[:, 3 : 3 + 2 * d]
    return kept


def predicted(kept: bytes, resources: int) -> NDArray[np.float64]:
    """Of the column `numbers`, (1 + d,): reward and costs, in max costs, as they were predicted for the arm."""
    numbers = np.frombuffer(kept, dtype="<f8")
    return np.concatenate([numbers[:1], numbers[2 : 2 + resources]])


def pace(kept: bytes, resources: int) -> NDArray[np.float64]:
    """Of the column `numbers`, (d,): max costs per round."""
    return np.frombuffer(kept, dtype="<f8")[2 + resources :]


def tickets_from(campaign: Campaign, rows: Sequence[Any]) -> Ticket:
    """The tickets of stored decisions; the rows have arm, round, context, actions, numbers and hold."""
    features = np.empty((len(rows), campaign.policy.dimension))
    for index, row in enumerate(rows):
        features[index] = _features_of(campaign, row)
    d = campaign.policy.resources
    kept = np.frombuffer(b"".join([row["numbers"] for row in rows]), dtype="<f8").reshape(-1, 2 + 2 * d)
    numbers = np.empty((len(rows), 3 + 3 * d))
    numbers[:, :2], numbers[:, 3 : 3 + 2 * d] = kept[:, :2], kept[:, 2:]
    numbers[:, 2] = [row["round"] for row in rows]
    numbers[:, 3 + 2 * d :] = [[0] * d if row["hold"] is None else orjson.loads(row["hold"]) for row in rows]
    return Ticket(np.array([row["arm"] for row in rows], dtype=np.int64), features, numbers)


def _features_of(campaign: Campaign, row: Any) -> NDArray[np.float64]:
    """What the policy saw of the arm that was chosen."""
    context = campaign.encode(orjson.loads(row["context"]))
    if campaign.arm_encoder is None:
        return context
    if row["actions"]:
        action = orjson.loads(row["actions"])[row["arm"]]
        arm = campaign.arm_encoder.encode(action["features"]).vector
    else:
        assert campaign.arm_vectors is not None
        arm = campaign.arm_vectors[row["arm"]]
    return np.asarray(campaign.features(context[None], arm[None])[0, 0])
