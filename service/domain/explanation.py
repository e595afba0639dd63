"""The policy's estimates for every arm: packed for column `explanation`, and as the interface shows them.

Per arm: the predicted reward, the predicted costs in max costs, and the probability. A decision whose request asked for
an explanation stores them in double precision, so that a repeated request gets the same response. Others store
predictions in half precision (three digits in a quarter of the space) and probabilities in single precision. The exact
probability of the chosen arm has a column of its own.
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

# Decisions among more arms store no explanation.
EXPLAINED_ARMS_MAX = 32
# The first byte names the precision.
_SHORT, _FULL = b"s", b"f"
_MOST = np.finfo(np.float16).max


def packed(
    thought: Thought, probabilities: NDArray[np.float64], in_full: Sequence[bool]
) -> Sequence[bytes] | Sequence[None]:
    """Returns column `explanation` of decisions with (n, arms + 1) probabilities: the first `len(in_full)` of them."""
    if thought.predictions.shape[1] > EXPLAINED_ARMS_MAX:
        return [None] * len(in_full)
    with np.errstate(over="ignore"):  # `unpacked` clips infinity to the largest number
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


def unpacked(stored: bytes | None, resources: int) -> NDArray[np.float64]:
    """Returns (arms, 2 + d): predicted reward and costs in max costs, probability; no arms if nothing is stored."""
    if not stored:
        return np.zeros((0, 2 + resources))
    prediction, share = ("<f2", "<f4") if stored[:1] == _SHORT else ("<f8", "<f8")
    arms = (len(stored) - 1) // (np.dtype(prediction).itemsize * (1 + resources) + np.dtype(share).itemsize)
    predictions = np.frombuffer(stored, dtype=prediction, offset=1, count=arms * (1 + resources))
    if stored[:1] == _SHORT:
        predictions = predictions.clip(-_MOST, _MOST)
    shares = np.frombuffer(stored, dtype=share, offset=1 + predictions.nbytes)
    return np.column_stack([predictions.reshape(arms, 1 + resources), shares]).astype(np.float64)


def shares(stored: Sequence[bytes | None], resources: int, arms: int) -> NDArray[np.float64]:
    """Returns the probabilities of n decisions, (n, arms); 0 for arms that came later and if nothing is stored.

    >>> shares([None, b"f" + np.array([0.1, 0.2, 0.75]).tobytes()], resources=1, arms=2)
    array([[0.  , 0.  ],
           [0.75, 0.  ]])
    """
    result = np.zeros((len(stored), arms))
    by_layout: dict[tuple[bytes, int], list[int]] = {}
    for row, data in enumerate(stored):
        if data:
            by_layout.setdefault((data[:1], len(data)), []).append(row)
    for (kind, length), rows in by_layout.items():
        width, share = (2 * (1 + resources), "<f4") if kind == _SHORT else (8 * (1 + resources), "<f8")
        count = (length - 1) // (width + np.dtype(share).itemsize)
        table = np.frombuffer(b"".join(stored[row] or b"" for row in rows), dtype=np.uint8).reshape(len(rows), length)
        result[rows, :count] = np.ascontiguousarray(table[:, 1 + count * width :]).view(share)
    return result


def explanation_of(campaign: Campaign, row: Any) -> dict[str, Any]:
    """Returns, per arm, predicted reward, costs and score in the campaign's units, and why it was not eligible."""
    ids = [action["id"] for action in orjson.loads(row["actions"])] if row["actions"] else campaign.arms
    prices = np.frombuffer(row["prices"], dtype="<f8")
    d = len(campaign.resources)
    table = unpacked(row["explanation"], d)
    rho = pace(row["numbers"])
    excluded = set(orjson.loads(row["exclude"])) if row["exclude"] else set()
    units = np.array(campaign.units) / 1e6
    # The policy could play an arm but gives none a probability: only a round of stage one that only observes does that.
    otherwise = "stage_one" if row["reason"] == POLICY and not table[:, -1].any() else "not_affordable"
    arms = []
    for index, (reward, *costs, probability) in enumerate(table.tolist()):
        # At the predicted cost: with late outcomes the policy may count the blocked amount instead (rules/pace.py).
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
