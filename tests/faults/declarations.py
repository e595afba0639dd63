"""What a configuration declares, as the model of `model.py` has it: accounts, windows, arms, holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

Fields = dict[str, Any]
ONE = 1_000_000


def millionths(number: float) -> int:
    """Return an amount in whole millionths, rounded up from its decimal form.

    >>> millionths(0.29), millionths(1.0000001)
    (290000, 1000001)
    """
    return int((Decimal(repr(number)) * ONE).to_integral_value(ROUND_CEILING))


def first_books(config: Fields) -> Fields:
    """Return the accounts and the windows of a new campaign or portfolio."""
    return {
        "accounts": {
            one["id"]: {"granted": millionths(one["budget"]), "held": 0, "spent": 0, "overrun": 0}
            for one in config["resources"]
        },
        "zone": config.get("timezone", "UTC"),
        "windows": new_windows({}, config["resources"]),  # limits by resource and period
        "periods": {},  # an account for each period that has begun, by resource, period and the period's name
    }


def is_below_spent(account: Fields, budget: int) -> bool:
    return bool(budget < account["granted"] and budget < account["spent"] + account["held"])


def new_windows(before: Fields, resources: Iterable[Fields]) -> Fields:
    """Return the limits after a change of some resources, of which each replaces all windows that it names."""
    replaced = {one["id"]: _windows(one) for one in resources if "windows" in one}
    kept = {key: limit for key, limit in before.items() if key[0] not in replaced}
    return kept | {key: limit for windows in replaced.values() for key, limit in windows.items()}


def _windows(resource: Fields) -> Fields:
    return {(resource["id"], one["period"]): millionths(one["limit"]) for one in resource.get("windows") or ()}


def holds_for(campaign: Fields, request: Any) -> Fields | None:
    """Return what each arm would hold; None if a request's max costs are unknown or above those declared."""
    declared = {arm: _hold(campaign["limits"], one) for arm, one in campaign["arms"].items()}
    found = {arm: dict(hold) for arm, hold in declared.items()}
    if not {*request.max_cost, *(one for costs in request.max_costs.values() for one in costs)} <= {
        *campaign["limits"]
    }:
        return None
    if not {*request.max_costs} <= {*found}:
        return None
    for arm, hold in found.items():
        hold |= {one: millionths(cost) for one, cost in request.max_cost.items()}
        if campaign["arms"][arm]["status"] != "active":
            hold |= {one: min(cost, declared[arm][one]) for one, cost in hold.items()}
        hold |= {one: millionths(cost) for one, cost in request.max_costs.get(arm, {}).items()}
    above = any(cost > declared[arm][one] for arm, hold in found.items() for one, cost in hold.items())
    return None if above else found


def _hold(limits: Fields, arm: Fields) -> Fields:
    """Return what an arm holds; one that is paused or retired may have had a larger max cost than its resource."""
    return {one: min(limit, arm["own"].get(one, limit)) for one, limit in limits.items()}


def arm_of(arm: Fields) -> Fields:
    return {
        "own": {one: millionths(cost) for one, cost in (arm.get("max_cost") or {}).items()},
        "status": arm.get("status", "active"),
    }


def changed_arm(change: Fields) -> Fields:
    given = {"own": "max_cost" in change, "status": "status" in change}
    return {name: value for name, value in arm_of(change).items() if given[name]}


def can_be_paid(
    campaign: Fields, limits: Fields, arms: Fields, budgets: Fields, windows: Fields, changes: Fields
) -> bool:
    """Whether no active arm costs more than its resource allows; if costs change, whether some arm can be paid.

    The whole budget and every window must pay for it. A campaign that pays for none may change as it likes.
    """
    active = [arm["own"] for arm in arms.values() if arm["status"] == "active"]
    if any(cost > limits[one] for own in active for one, cost in own.items()):
        return False
    if not changes.keys() & {"resources", "arms", "add_arms"} or _only_pauses(changes):
        return True
    before = {one: account["granted"] for one, account in campaign["accounts"].items()}
    was_dead = is_dead(means_of(before, campaign["windows"]), campaign["limits"], campaign["arms"])
    return was_dead or not is_dead(means_of(before | budgets, windows), limits, arms)


def means_of(budgets: Fields, windows: Fields) -> list[tuple[str, int]]:
    return [*budgets.items(), *((one, limit) for (one, _), limit in windows.items())]


def is_dead(means: Sequence[tuple[str, int]], limits: Fields, arms: Fields) -> bool:
    """Whether every arm that is not retired holds more than a budget or a window has."""
    holds = [_hold(limits, arm) for arm in arms.values() if arm["status"] != "retired"]
    return bool(holds) and all(any(hold[one] > most for one, most in means) for hold in holds)


def _only_pauses(changes: Fields) -> bool:
    arms = changes.get("arms", ())
    return changes.keys() == {"arms"} and all("max_cost" not in arm and arm["status"] == "paused" for arm in arms)
