"""The holds of a request whose caller knows better than the campaign what each arm can cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.campaign import Campaign
from service.money import amount, micros
from service.problems import Invalid

MaxCost = Mapping[str, float]
NONE: Mapping[str, Any] = {}


def request_holds(
    campaign: Campaign,
    arms: Sequence[str],
    declared: NDArray[np.float64],
    max_cost: MaxCost = NONE,
    max_costs: Mapping[str, MaxCost] = NONE,
) -> NDArray[np.float64]:
    """Returns the hold of each arm, (arms, d), in millionths like those declared. Raises Invalid.

    `max_costs` of an arm wins over `max_cost`, resource by resource; what neither names stays as declared. An amount
    above the declared one is refused, except `max_cost` for an arm that is retired or paused. `arms` are the campaign's
    or the ids of a request's actions; an id in `max_costs` that is no action is ignored.
    """
    holds, own = declared.copy(), arms is campaign.arms
    index = campaign.arm_index if own else {arm: at for at, arm in enumerate(arms)}
    for resource, cost in max_cost.items():
        holds[:, _place(campaign, "max_cost", resource)] = micros(cost)
    if own and campaign.inactive:
        inactive = list(campaign.inactive)
        holds[inactive] = np.minimum(holds[inactive], declared[inactive])
    for arm, costs in max_costs.items():
        if own and arm not in index:
            raise _refused(f"max_costs.{arm}", "is none of the arms")
        for resource, cost in costs.items():
            place = _place(campaign, f"max_costs.{arm}", resource)
            if arm in index:
                holds[index[arm], place] = micros(cost)
    above = np.argwhere(holds > declared)
    if len(above):
        at, place = above[0].tolist()
        arm, resource = arms[at], campaign.resources[place]
        field = f"max_costs.{arm}" if resource in max_costs.get(arm, NONE) else "max_cost"
        limit = amount(int(declared[at, place]))
        raise _refused(f"{field}.{resource}", f"must be at most {limit}, the max cost declared for arm {arm}")
    return holds


def _place(campaign: Campaign, field: str, resource: str) -> int:
    if resource not in campaign.resources:
        raise _refused(f"{field}.{resource}", "is none of the resources")
    return campaign.resources.index(resource)


def _refused(field: str, message: str) -> Invalid:
    return Invalid(f"{field} {message}", kind="invalid-max-cost", errors=[{"field": field, "message": message}])
