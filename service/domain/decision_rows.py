"""Decisions as their table keeps them: columns, rows, and the response bodies made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any

import orjson

from cbwk_core import NULL_ARM
from service.domain.campaign import Campaign
from service.domain.explanation import explanation_of
from service.domain.holdout import would_have
from service.money import amount
from service.times import second_text

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


@lru_cache(maxsize=4096)  # one entry per arm
def _amounts(resources: tuple[str, ...], hold: str | None) -> Mapping[str, float]:
    if hold is None:
        return {}
    return {resource: amount(held) for resource, held in zip(resources, orjson.loads(hold), strict=True)}


def _time(micros: int | None) -> str | None:
    return None if micros is None else second_text(micros)


def rows_of(columns: Columns) -> Iterator[dict[str, Any]]:
    """Columns as rows."""
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))
