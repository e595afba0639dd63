"""Trains a campaign's model on the log of another system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import State, Ticket
from cbwk_core.model import decode, units_of, with_model
from service.domain.campaign import Campaign
from service.money import micros_rounded_up
from service.problems import Problem

# Rows that are predicted from one state and then learnt.
CHUNK_ROWS = 256


class LineError(Exception):
    """A line that cannot be read; the message begins with its number."""


@dataclass
class ImportReport:
    """What an import learnt."""

    rows: int = 0
    skipped: int = 0  # rows without an arm or without a known outcome
    with_probability: int = 0
    # Squared errors of the reward: unweighted, and weighted by 1 / probability.
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    weights: float = 0.0

    @property
    def error(self) -> float | None:
        """Root mean square error of the predicted rewards, in [0, 1], each predicted just before it was learnt."""
        return float(np.sqrt(self.squares[0] / self.rows)) if self.rows else None

    @property
    def error_weighted(self) -> float | None:
        """The same error as if every arm had been played equally often; None unless every row has a probability."""
        if not self.weights or self.with_probability < self.rows:
            return None
        return float(np.sqrt(self.squares[1] / self.weights))


class _Row(NamedTuple):
    features: NDArray[np.float64]
    arm: int
    reward: float
    costs: list[int]
    probability: float | None


def trained_model(config: dict[str, Any], model: bytes, lines: Iterable[bytes]) -> tuple[bytes, ImportReport]:
    """Returns the model after learning the rows of a log, and a report.

    A line is a JSON object with `context`, `arm`, `reward`, `costs` and optionally `probability` and, where the model
    is shared and the arm is not one of the campaign's, `features`. An export as JSON lines is such a log.
    """
    campaign = Campaign(0, config["id"], 1, config | _units(model))
    policy, report = campaign.policy, ImportReport()
    state = with_model(policy.init(), decode(policy, model, is_own=True))
    rows = _rows(campaign, lines, report)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        state = _learn(campaign, state, chunk, report)
    return policy.encode_model(state), report


def _units(model: bytes) -> dict[str, Any]:
    """Returns what a stored configuration says of the units and rules of the model: max costs may have changed since.

    A service of version 0.1, where they do not change, names none.
    """
    found = units_of(model)
    if found is None:
        return {}
    own = {} if found.arm_unit is None else {"arm_units": [[*map(int, row)] for row in found.arm_unit]}
    return {"rules": found.rules, "units": [*map(int, found.unit)], **own}


def _rows(campaign: Campaign, lines: Iterable[bytes], report: ImportReport) -> Iterator[_Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            item = orjson.loads(line)
            if not isinstance(item, dict):
                raise ValueError("must be a JSON object")
            known = item["arm"] is not None and item.get("reward") is not None and item.get("costs") is not None
            # Our own export marks with `learned` whether an outcome is reliable.
            if known and item.get("learned") is not False:
                yield _row(campaign, item)
            else:
                report.skipped += 1
        except KeyError as error:
            raise LineError(f"line {number}: {error.args[0]} is missing") from None
        except Problem as problem:
            raise LineError(f"line {number}: {problem.detail}") from None
        except (ValueError, TypeError) as error:
            raise LineError(f"line {number}: {error}") from None


def _row(campaign: Campaign, item: dict[str, Any]) -> _Row:
    context = campaign.encode(item["context"])
    arm = campaign.arm_index.get(item["arm"], -1)
    if campaign.arm_encoder is None:
        if arm < 0:
            raise ValueError("arm is not one of the campaign's")
        features = context
    else:
        arm_features = item.get("features") or (campaign.config["arms"][arm]["features"] if arm >= 0 else None)
        if arm_features is None:
            raise ValueError("arm is not one of the campaign's and has no features")
        vector = campaign.arm_encoder.encode(arm_features).vector
        features, arm = campaign.features(context[None], vector[None])[0, 0], 0
    if not set(item["costs"]) <= set(campaign.resources):
        raise ValueError("costs name a resource the campaign does not have")
    costs = [micros_rounded_up(item["costs"].get(name, 0))[0] for name in campaign.resources]
    probability = item.get("probability")
    if probability is not None and not 0.0 < float(probability) <= 1.0 + 1e-6:
        raise ValueError("probability must lie above 0 and be at most 1")
    return _Row(features, arm, campaign.reward(float(item["reward"]))[0], costs, probability)


def _learn(campaign: Campaign, state: State, rows: list[_Row], report: ImportReport) -> State:
    policy, size = campaign.policy, len(rows)
    features, arm = np.stack([row.features for row in rows]), np.array([row.arm for row in rows])
    inputs = features if campaign.arm_encoder is None else features[:, None]
    predicted = policy.predict(state, inputs)[np.arange(size), arm]
    rewards = np.array([row.reward for row in rows])
    ticket = Ticket.of(
        arm=arm,
        features=features,
        reward=predicted[:, 0],
        costs=np.maximum(predicted[:, 1:], 0.0),
        rho=np.zeros((size, policy.resources)),
        value=np.zeros(size),
        round=np.zeros(size, dtype=np.int64),
        hold=np.zeros((size, policy.resources)),
    )
    weights = np.array([0.0 if row.probability is None else 1.0 / row.probability for row in rows])
    errors = (predicted[:, 0] - rewards) ** 2
    report.squares += [errors.sum(), weights @ errors]
    report.weights += float(weights.sum())
    report.rows += size
    report.with_probability += int((weights > 0.0).sum())
    learnt = policy.teach(state, ticket, rewards, np.array([row.costs for row in rows], dtype=np.float64))
    if not policy.is_finite(learnt):
        raise LineError("learning this log would leave the model without finite numbers")
    return learnt
