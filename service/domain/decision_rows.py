"""Decisions as their table keeps them: columns, rows, tickets, explanations, and the response bodies made of them.

Column `numbers` has the ticket. Column `explanation` has the policy's estimates for every arm: predicted reward,
predicted costs in max costs, and probability. A decision whose request asked for an explanation stores them in double
precision, so that a repeated request gets the same response. Others store predictions in half precision (three digits
in a quarter of the space) and probabilities in single precision. The exact probability of the chosen arm has a column
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import NULL_ARM, Ticket
from cbwk_core.ticket import POLICY, Thought, pace_in, predicted_in
from service.domain.campaign import Campaign
from service.domain.must_play import own_arm
from service.money import ONE, amount

# Rows of a table, column by column, all of one length.
Columns = dict[str, Sequence[Any]]

# The columns of the table `hold`, and the columns of `decision` they come from.
_OF_HOLD = (("campaign", "campaign"), ("decision", "sequence"), ("amounts", "hold"), ("expires_at", "expires_at"))


def holds_of(columns: Columns) -> Columns:
    """The rows of the table `hold`, one for each decision that does not play the null arm."""
    held = {name: columns[column] for name, column in _OF_HOLD}
    if NULL_ARM not in columns["arm"]:
        return held
    return {name: [*compress(column, columns["hold"])] for name, column in held.items()}


def bodies_of(
    campaign_ids: Iterable[str], resources: Iterable[tuple[str, ...]], columns: Columns
) -> list[dict[str, Any]]:
    """The response bodies of decisions without explanations, given the campaign and resources of each."""
    times = {time: _time(time) for time in set(columns["expires_at"])}
    return [
        *map(
            _body,
            campaign_ids,
            columns["decision_id"],
            columns["arm_id"],
            columns["reason"],
            columns["probability"],
            map(_amounts, resources, columns["hold"]),
            map(times.__getitem__, columns["expires_at"]),
            columns["round"],
            columns["policy_version"],
        )
    ]


def answer_of(campaign: Campaign, row: Any, explain: bool) -> dict[str, Any]:
    """The response body of a decision, from its row alone, so that a repeated request gets the first response."""
    body = _body(
        campaign.id,
        row["decision_id"],
        row["arm_id"],
        row["reason"],
        row["probability"],
        _amounts(campaign.resources, row["hold"]),
        _time(row["expires_at"]),
        row["round"],
        row["policy_version"],
    )
    if row["shadow"] is not None:
        body["would_have"] = would_have(campaign, row["shadow"])
    return body | explanation_of(campaign, row) if explain else body


def _body(
    campaign_id: str,
    decision_id: str,
    arm: str | None,
    reason: str,
    probability: float,
    hold: Mapping[str, float],
    expires_at: str | None,
    round_number: int,
    policy_version: int,
) -> dict[str, Any]:
    return {
        "decision_id": decision_id,
        "campaign_id": campaign_id,
        "arm": arm,
        "reason": reason,
        "probability": probability,
        "hold": hold,
        "expires_at": expires_at,
        "round": round_number,
        "policy_version": policy_version,
    }


@lru_cache(maxsize=4096)  # one entry per arm, and per hold of requests that bring max costs
def _amounts(resources: tuple[str, ...], hold: str | None) -> Mapping[str, float]:
    if hold is None:
        return {}
    return {resource: amount(held) for resource, held in zip(resources, orjson.loads(hold), strict=True)}


def _time(micros: int | None) -> str | None:
    """Returns a moment in UTC, rounded down to a whole second."""
    return None if micros is None else f"{datetime.fromtimestamp(micros // ONE, UTC).isoformat()[:19]}Z"


def would_have(campaign: Campaign, shadow: str) -> dict[str, Any]:
    """Returns what the policy would have done, from column `shadow`, in the caller's units."""
    own = orjson.loads(shadow)
    low, high = campaign.config["reward"]["min"], campaign.config["reward"]["max"]
    units = [unit / ONE for unit in campaign.policy.problem.unit.tolist()]
    costs = zip(campaign.resources, own["costs"], units, strict=True)
    return {
        "arm": own["arm"],
        "reason": own["reason"],
        "probability": own["probability"],
        "reward": 0.0 if own["arm"] is None else low + own["reward"] * (high - low),
        "cost": {name: cost * unit for name, cost, unit in costs},
    }


def rows_of(columns: Columns) -> Iterator[dict[str, Any]]:
    """Columns as rows."""
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))


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
        arm=[row["arm"] if campaign.floor is None else own_arm(campaign, row) for row in rows],
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


# Decisions among more arms store an explanation only if the request asks for it.
EXPLAINED_ARMS_MAX = 32
NOT_STORED = "not_stored"
# The first byte names the precision.
_SHORT, _FULL = b"s", b"f"
_MOST = np.finfo(np.float16).max


def packed(thought: Thought, probabilities: NDArray[np.float64], in_full: Sequence[bool]) -> Sequence[bytes | None]:
    """Returns column `explanation` of decisions with (n, arms + 1) probabilities: the first `len(in_full)` of them."""
    if thought.predictions.shape[1] > EXPLAINED_ARMS_MAX:
        return [
            _full(thought.predictions[row], probabilities[row, :-1]) if full else None
            for row, full in enumerate(in_full)
        ]
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


def lessons_from(campaign: Campaign, outcomes: Sequence[Mapping[Any, Any]]) -> tuple[Any, Any, Any, Any]:
    """Returns what stored outcomes teach, as `policy.teach` takes it: rewards, costs, and whether each is learnt.

    Costs that are not booked with the reward were learnt when they were booked, from rules 4 on.
    """
    taught = [orjson.loads(row["taught"]) for row in outcomes]
    numbers = np.array([[reward or 0.0, *costs] for reward, *costs in taught], dtype=np.float64)
    if not campaign.policy.learns_costs_first:
        return numbers[:, 0], numbers[:, 1:], True, True
    learn_reward = np.array([reward is not None for reward, *_ in taught])
    learn_costs = np.array([row["spent"] is not None for row in outcomes])
    return numbers[:, 0], numbers[:, 1:], learn_reward, learn_costs


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
    """Returns, per arm, predicted reward, costs and score in the campaign's units, and why it was not eligible.

    The campaign must be in the version in which the decision was made: arms are paused, retired and return.
    """
    ids = [action["id"] for action in orjson.loads(row["actions"])] if row["actions"] else campaign.arms
    prices = np.frombuffer(row["prices"], dtype="<f8")
    d = len(campaign.resources)
    table = unpacked(row["explanation"], d)
    rho = pace(row["numbers"])
    excluded = set(orjson.loads(row["exclude"])) if row["exclude"] else set()
    units = np.array(campaign.units) / 1e6
    # The policy could play an arm but gives none a probability: only a round of stage one that only observes does that.
    short = "reserved" if campaign.floor is not None and row["arm"] != NULL_ARM else "not_affordable"
    otherwise = "stage_one" if row["reason"] == POLICY and not table[:, -1].any() else short
    arms = []
    for index, (reward, *costs, probability) in enumerate(table.tolist()):
        # At the predicted cost: with late outcomes the policy may count the blocked amount instead (rules/pace.py).
        score = reward + float(prices @ (rho - np.array(costs)))
        why = None
        if probability == 0.0:
            inactive = None if row["actions"] else campaign.inactive.get(index)
            why = inactive or ("excluded" if ids[index] in excluded else otherwise)
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
    explanation = {"arms": arms, "prices": shown, "gamma": row["gamma"]}
    return explanation if arms else explanation | {"why_no_arms": NOT_STORED}
