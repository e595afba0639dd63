"""Campaigns whose null arm is the last resort: the floor arm among the candidates of a request, and as stored.

A request that brings its own actions has the floor arm if an action has its id; if none has, it excludes the floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core.must_play import beyond
from service.domain.campaign import Campaign
from service.domain.portfolio import Portfolio
from service.money import amount


def floor_among(campaign: Campaign, arm_ids: Sequence[str]) -> int:
    """Returns the place of the floor arm among the candidates of a request, -1 if none of them is."""
    assert campaign.floor is not None
    name = campaign.arms[campaign.floor]
    return arm_ids.index(name) if name in arm_ids else -1


def own_arm(campaign: Campaign, row: Any) -> int:
    """Returns the arm of a stored decision as the policy counts it: an action is the floor arm if it has its id."""
    assert campaign.floor is not None
    arm = int(row["arm"])
    if not row["actions"] or arm < 0:
        return arm
    is_floor = orjson.loads(row["actions"])[arm]["id"] == campaign.arms[campaign.floor]
    return campaign.floor if is_floor else len(campaign.arms)


def value_of(
    campaign: Campaign, predictions: NDArray[np.float64], arm_ids: Sequence[str], arm: int
) -> NDArray[np.float64]:
    """Returns what a decision for this candidate counts as, (1,): what it is predicted to earn beyond the floor."""
    floor, candidates = floor_among(campaign, arm_ids), predictions.shape[1]
    return beyond(predictions, np.array([candidates if floor < 0 else floor]), np.array([arm]))


def warnings_of(campaign: Campaign, portfolio: Portfolio | None) -> list[str]:
    """Returns what a new campaign should be warned of: a floor arm that a budget cannot pay in every round."""
    horizon = campaign.config["horizon"]
    if campaign.floor is None or horizon is None:
        return []
    needed = [most * horizon for most in campaign.holds[campaign.floor]]
    found = [
        f"{_asked(horizon, most, resource)}, the budget is {amount(budget)}: the reserve counts on what it really costs"
        for resource, most, budget in zip(campaign.resources, needed, campaign.budgets, strict=True)
        if most > budget
    ]
    if portfolio is None:
        return found
    shared = zip(campaign.resources, needed, portfolio.places(campaign.resources), strict=True)
    return found + [
        f"{_asked(horizon, most, resource)}, the portfolio has {amount(portfolio.budgets[place])} and keeps no reserve"
        for resource, most, place in shared
        if place is not None and most > portfolio.budgets[place]
    ]


def _asked(horizon: int, most: int, resource: str) -> str:
    return f"floor_arm: {horizon} decisions at its max cost need {amount(most)} of {resource}"
