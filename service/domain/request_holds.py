"""The holds of a request whose caller knows better than the campaign what each arm can cost, or brings the arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbwk_core import ContextEncoder
from service.domain.campaign import Campaign
from service.features import misfit_at
from service.money import amount, micros
from service.problems import Invalid
from service.words import error_at, not_among

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
        holds[:, _place(campaign, ("max_cost", resource))] = micros(cost)
    if own and campaign.inactive:
        inactive = list(campaign.inactive)
        holds[inactive] = np.minimum(holds[inactive], declared[inactive])
    for arm, costs in max_costs.items():
        if own and arm not in index:
            raise _refused(("max_costs", arm), not_among("arms", arm, campaign.arms))
        for resource, cost in costs.items():
            place = _place(campaign, ("max_costs", arm, resource))
            if arm in index:
                holds[index[arm], place] = micros(cost)
    above = np.argwhere(holds > declared)
    if len(above):
        at, place = above[0].tolist()
        arm, resource = arms[at], campaign.resources[place]
        field = ("max_costs", arm) if resource in max_costs.get(arm, NONE) else ("max_cost",)
        limit = amount(int(declared[at, place]))
        raise _refused((*field, resource), f"must be at most {limit}, the max cost declared for arm {arm}")
    return holds


def _place(campaign: Campaign, path: tuple[str, ...]) -> int:
    """The place of the resource that a path in the request ends with."""
    if path[-1] not in campaign.resources:
        raise _refused(path, not_among("resources", path[-1], campaign.resources))
    return campaign.resources.index(path[-1])


def _refused(path: tuple[str, ...], message: str) -> Invalid:
    error = error_at(path, message)
    return Invalid(f"{error['field']} {message}", kind="invalid-max-cost", errors=[error])


def offered_actions(
    campaign: Campaign, encoder: ContextEncoder, actions: Sequence[Mapping[str, Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the vectors of a request's actions, and their holds in millionths, (actions, d). Raises Invalid."""
    vectors = []
    for at, action in enumerate(actions):
        try:
            vectors.append(encoder.encode(action["features"]).vector)
        except ValueError as error:
            raise _bad_actions(misfit_at(("actions", at, "features"), encoder, action["features"], error)) from error
    declared = [campaign.hold_of(action.get("max_cost"), campaign.dearest) for action in actions]
    holds = np.array(declared, dtype=np.float64)
    above = np.argwhere(holds > campaign.dearest)
    if len(above):
        at, place = above[0].tolist()
        message = f"must be at most {amount(campaign.dearest[place])}, the max cost of the dearest arm"
        raise _bad_actions(error_at(("actions", at, "max_cost", campaign.resources[place]), message))
    return np.stack(vectors), holds


def _bad_actions(fault: dict[str, str]) -> Invalid:
    return Invalid(f"{fault['field']} {fault['message']}", kind="invalid-actions", errors=[fault])
