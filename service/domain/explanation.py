"""What the policy thought of every arm, as a decision keeps it and as people are shown it.

Kept are, per arm, the predicted reward, the predicted costs in max costs, and the probability. Where the request asked
for an explanation they are kept in double precision, so that its repeat gets the same answer; else predictions are kept
in half precision, which is three digits for a quarter of the room, and probabilities in single. The exact probability
of the arm given is a column of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core.ticket import POLICY, Thought
from service.domain.campaign import Campaign
from service.domain.tickets import pace

# A decision keeps what the policy thought of this many arms at the most.
EXPLAINED_ARMS_MAX = 32
# The first byte says how it is kept.
_SHORT, _FULL = b"s", b"f"
_MOST = np.finfo(np.float16).max


def packed(
    thought: Thought, probabilities: NDArray[np.float64], in_full: Sequence[bool]
) -> Sequence[bytes] | Sequence[None]:
    """What to keep of decisions with these (n, arms + 1) probabilities, as many as `in_full` says; nothing of too many
    arms."""
    if thought.predictions.shape[1] > EXPLAINED_ARMS_MAX:
        return [None] * len(in_full)
    with np.errstate(over="ignore"):  # what is too large for it is shown as the largest
        halves = thought.predictions.astype("<f2")
    singles = probabilities[:, :-1].astype("<f4")
    if len(probabilities) == 1 and not any(in_full):
        return [_SHORT + halves.tobytes() + singles.tobytes()]
    predictions, shares = halves.reshape(len(probabilities), -1).view(np.uint8), singles.view(np.uint8)
    wide = predictions.shape[1]
    table = np.full((len(shares), 1 + wide + shares.shape[1]), _SHORT[0], dtype=np.uint8)
    table[:, 1 : 1 + wide], table[:, 1 + wide :] = predictions, shares
    short, width = table.tobytes(), table.shape[1]
    if not any(in_full):
        return [short[at : at + width] for at in range(0, width * len(in_full), width)]
    return [
        _full(thought.predictions[row], probabilities[row, :-1]) if full else short[row * width : (row + 1) * width]
        for row, full in enumerate(in_full)
    ]


def _full(predictions: NDArray[np.float64], shares: NDArray[np.float64]) -> bytes:
    return _FULL + predictions.astype("<f8").tobytes() + shares.astype("<f8").tobytes()


def unpacked(kept: bytes | None, resources: int) -> NDArray[np.float64]:
    """(arms, 2 + d): predicted reward and costs in max costs, probability; no arms where nothing was kept."""
    if not kept:
        return np.zeros((0, 2 + resources))
    prediction, share = ("<f2", "<f4") if kept[:1] == _SHORT else ("<f8", "<f8")
    arms = (len(kept) - 1) // (np.dtype(prediction).itemsize * (1 + resources) + np.dtype(share).itemsize)
    predictions = np.frombuffer(kept, dtype=prediction, offset=1, count=arms * (1 + resources))
    if kept[:1] == _SHORT:
        predictions = predictions.clip(-_MOST, _MOST)
    shares = np.frombuffer(kept, dtype=share, offset=1 + predictions.nbytes)
    return np.column_stack([predictions.reshape(arms, 1 + resources), shares]).astype(np.float64)


def shares(kept: Sequence[bytes | None], resources: int, arms: int) -> NDArray[np.float64]:
    """(n, arms): of n decisions only the probabilities, 0 for arms that were not there and where nothing was kept.

    >>> shares([None, b"f" + np.array([0.1, 0.2, 0.75]).tobytes()], resources=1, arms=2)
    array([[0.  , 0.  ],
           [0.75, 0.  ]])
    """
    result = np.zeros((len(kept), arms))
    alike: dict[tuple[bytes, int], list[int]] = {}
    for row, one in enumerate(kept):
        if one:
            alike.setdefault((one[:1], len(one)), []).append(row)
    for (kind, length), rows in alike.items():
        width, share = (2 * (1 + resources), "<f4") if kind == _SHORT else (8 * (1 + resources), "<f8")
        count = (length - 1) // (width + np.dtype(share).itemsize)
        table = np.frombuffer(b"".join(kept[row] or b"" for row in rows), dtype=np.uint8).reshape(len(rows), length)
        result[rows, :count] = np.ascontiguousarray(table[:, 1 + count * width :]).view(share)
    return result


def explanation_of(campaign: Campaign, row: Any) -> dict[str, Any]:
    """What the policy thought: per arm predicted reward, costs and score in the units of the campaign, and why not."""
    ids = [action["id"] for action in orjson.loads(row["actions"])] if row["actions"] else campaign.arms
    prices = np.frombuffer(row["prices"], dtype="<f8")
    d = len(campaign.resources)
    table = unpacked(row["explanation"], d)
    rho = pace(row["numbers"])
    excluded = set(orjson.loads(row["exclude"])) if row["exclude"] else set()
    units = np.array(campaign.units) / 1e6
    # Something could be played and nothing would be: only where stage one does no more than look.
    otherwise = "stage_one" if row["reason"] == POLICY and not table[:, -1].any() else "not_affordable"
    arms = []
    for index, (reward, *costs, probability) in enumerate(table.tolist()):
        # At its predicted cost: where outcomes are late the policy may have counted it as what it blocks (pace.py).
        score = reward + float(prices @ (rho - np.array(costs)))
        why = None
        if probability == 0.0:
            retired = index in campaign.retired and not row["actions"]
            why = "retired" if retired else "excluded" if ids[index] in excluded else otherwise
        arms.append(
            {
                "id": ids[index],
                "reward": reward,
                "cost": {name: cost * unit for name, cost, unit in zip(campaign.resources, costs, units, strict=True)},
                "score": score,
                "probability": probability,
                "eligible": why is None,
                "why_not": why,
            }
        )
    shown = {name: float(price / unit) for name, price, unit in zip(campaign.resources, prices, units, strict=True)}
    return {"arms": arms, "prices": shown, "gamma": row["gamma"]}
