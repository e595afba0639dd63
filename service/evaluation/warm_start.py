"""A model that has learnt from the log of another system, for a campaign to go on from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import State, Ticket
from cbwk_core.model import with_model
from service.domain.campaign import Campaign
from service.money import micros_rounded_up
from service.problems import Problem

# Rows that are predicted from one state and then learnt.
CHUNK_ROWS = 256


class BadLine(Exception):  # noqa: N818 - it is told to whoever brought the file
    """A line that is not understood; the message begins with its number."""


@dataclass
class Learnt:
    """What came of a log."""

    rows: int = 0
    skipped: int = 0  # nothing was played, or it is not known what came of it
    with_probability: int = 0
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))  # of the reward's errors: plain, weighted
    weights: float = 0.0

    @property
    def error(self) -> float | None:
        """Root mean square of how far predicted rewards were off just before they were learnt, in [0, 1]."""
        return float(np.sqrt(self.squares[0] / self.rows)) if self.rows else None

    @property
    def error_weighted(self) -> float | None:
        """The same as if every arm had been played alike, where probabilities are known."""
        if not self.weights or self.with_probability < self.rows:
            return None
        return float(np.sqrt(self.squares[1] / self.weights))


class _Row(NamedTuple):
    features: NDArray[np.float64]
    arm: int
    reward: float
    costs: list[int]
    probability: float | None


def warm_started(config: dict[str, Any], model: bytes, lines: Iterable[bytes]) -> tuple[bytes, Learnt]:
    """The model after the rows of a log, and what came of them.

    A line is a JSON object with `context`, `arm`, `reward`, `costs` and perhaps `probability` and, where the model is
    shared and the arm is not one of the campaign's, `features`: an export as JSON lines is such a log.
    """
    campaign = Campaign(0, config["id"], 1, config)
    policy, learnt = campaign.policy, Learnt()
    state = with_model(policy.init(), policy.decode_model(model))
    chunk: list[_Row] = []
    for row in _rows(campaign, lines, learnt):
        chunk.append(row)
        if len(chunk) == CHUNK_ROWS:
            state, chunk = _taught(campaign, state, chunk, learnt), []
    if chunk:
        state = _taught(campaign, state, chunk, learnt)
    return policy.encode_model(state), learnt


def _rows(campaign: Campaign, lines: Iterable[bytes], learnt: Learnt) -> Iterator[_Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            told = orjson.loads(line)
            if not isinstance(told, dict):
                raise ValueError("must be a JSON object")
            known = told["arm"] is not None and told.get("reward") is not None and told.get("costs") is not None
            # What our own export says was not learnt has no outcome that can be trusted.
            if not known or told.get("learned") is False:
                learnt.skipped += 1
                continue
            yield _row(campaign, told)
        except KeyError as error:
            raise BadLine(f"line {number}: {error.args[0]} is missing") from None
        except Problem as problem:
            raise BadLine(f"line {number}: {problem.detail}") from None
        except (ValueError, TypeError) as error:
            raise BadLine(f"line {number}: {error}") from None


def _row(campaign: Campaign, told: dict[str, Any]) -> _Row:
    context = campaign.encode(told["context"])
    arm = campaign.arm_index.get(told["arm"], -1)
    if campaign.arm_encoder is None:
        if arm < 0:
            raise ValueError("arm is not one of the campaign's")
        features = context
    else:
        described = told.get("features") or (campaign.config["arms"][arm]["features"] if arm >= 0 else None)
        if described is None:
            raise ValueError("arm is not one of the campaign's and has no features")
        vector = campaign.arm_encoder.encode(described).vector
        features, arm = campaign.features(context[None], vector[None])[0, 0], 0
    unknown = set(told["costs"]) - set(campaign.resources)
    if unknown:
        raise ValueError("costs name a resource the campaign does not have")
    costs = [micros_rounded_up(told["costs"].get(name, 0))[0] for name in campaign.resources]
    probability = told.get("probability")
    if probability is not None and not 0.0 < float(probability) <= 1.0 + 1e-6:
        raise ValueError("probability must lie above 0 and be at most 1")
    return _Row(features, arm, campaign.reward(float(told["reward"]))[0], costs, probability)


def _taught(campaign: Campaign, state: State, rows: list[_Row], learnt: Learnt) -> State:
    policy, size = campaign.policy, len(rows)
    features, arm = np.stack([row.features for row in rows]), np.array([row.arm for row in rows])
    seen = features if campaign.arm_encoder is None else features[:, None]
    predicted = policy.predict(state, seen)[np.arange(size), arm]
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
    learnt.squares += [errors.sum(), weights @ errors]
    learnt.weights += float(weights.sum())
    learnt.rows += size
    learnt.with_probability += int((weights > 0.0).sum())
    costs = np.array([row.costs for row in rows], dtype=np.float64)
    taught = policy.teach(state, ticket, rewards, costs)
    if not np.isfinite(policy.predict(taught, seen)).all():
        raise BadLine("what the log says would leave the model without finite numbers")
    return taught
