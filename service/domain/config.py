"""Whether the parts of a campaign's configuration fit each other: checked by building the campaign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cbwk_core import RULES_VERSION, ContextEncoder
from service.domain.campaign import HORIZON_UNKNOWN, PAUSED, Campaign
from service.limits import ARMS_MAX, PARAMETERS_MAX
from service.money import micros
from service.problems import Invalid, Misfit, misfit_of
from service.times import moment_microseconds
from service.words import allowed, error_at, listed, suggestion

_UNPAYABLE = "must leave an arm that the whole budget and every window can pay: each arm may cost more than that"

_NAMES = ("display_name", "metadata", "unit")


def check_new_config(config: Mapping[str, Any]) -> None:
    """Raises Invalid if the configuration of a new campaign does not fit together, or if no arm could be paid."""
    try:
        check_config({**config, "rules": RULES_VERSION})
    except Misfit as misfit:
        raise Invalid("the body cannot be taken as it is", errors=[misfit.error]) from None
    short = _unpayable(config)
    if short:
        errors = [error_at(field, _UNPAYABLE) for field in short]
        raise Invalid("no arm could ever be played", errors=errors)


def check_change(older: Mapping[str, Any], config: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Raises Misfit, with the field of the change, if the configuration that it leads to does not fit together.

    One that pays for no arm is refused only if the older one paid for some: no step of a repair is in the way.
    """
    limits, arms = _max_costs(config), {arm["id"]: arm for arm in config["arms"]}
    for index, change in enumerate(changes.get("arms") or ()):
        _check_max_cost(f"arms.{index}.max_cost", arms[change["id"]], limits)
    for index, change in enumerate(changes.get("resources") or ()):
        if any(_exceeds(arm, {change["id"]: limits[change["id"]]}) for arm in config["arms"]):
            raise Misfit(f"resources.{index}.max_cost", "must be at least that of every active arm")
    check_config(config)
    costs = [name for name in ("resources", "arms") if any(map(_may_cost, changes.get(name) or ()))]
    costs += ["add_arms"] if changes.get("add_arms") else []
    if costs and _unpayable(config) and not _unpayable(older):
        raise Misfit(costs[0], _UNPAYABLE)


def _may_cost(change: Mapping[str, Any]) -> bool:
    """Whether a change of a resource or an arm does more than name it or pause an arm, which is always possible."""
    return bool(change.keys() - {"id", "status", *_NAMES}) or change.get("status") == "active"


def _unpayable(config: Mapping[str, Any]) -> list[str]:
    """Returns the fields that are short, if every arm costs more than the budget or a window of some resource has."""
    campaign = Campaign(number=0, id=config["id"], version=0, config=dict(config))
    short = [
        {j for j, most in enumerate(campaign.payable) if hold[j] > most} for hold in campaign.holds_that_may_return
    ]
    if not all(short):
        return []
    return [
        f"resources.{j}.{'max_cost' if campaign.payable[j] == campaign.budgets[j] else 'windows'}"
        for j in sorted(set().union(*short))
    ]


def check_config(config: Mapping[str, Any]) -> None:
    """Raises Misfit if the parts of a new or changed configuration do not fit each other."""
    if len(config["arms"]) > ARMS_MAX:
        raise Misfit("arms", f"must be at most {ARMS_MAX}, retired ones included")
    baseline = (config.get("holdout") or {}).get("arm")
    if baseline is not None and baseline not in {arm["id"] for arm in config["arms"]}:
        raise Misfit("holdout.arm", allowed(baseline, [arm["id"] for arm in config["arms"]]))
    _check_floor(config)
    starts, ends = config.get("starts_at"), config["ends_at"]
    if starts is not None and ends is not None and moment_microseconds(starts) >= moment_microseconds(ends):
        raise Misfit("starts_at", "must be before ends_at")
    if config.get("mode") == "shadow" and config.get("holdout") is not None:
        raise Misfit("holdout", "is for live campaigns: in shadow mode the caller decides everything")
    limits = _max_costs(config)
    known = {**config, "horizon": config["horizon"] or HORIZON_UNKNOWN}
    campaign = Campaign(number=0, id=config["id"], version=0, config=known)
    for index, arm in enumerate(config["arms"]):
        _check_arm(f"arms.{index}", arm, limits, campaign.arm_encoder)
    blocks = len(campaign.arms) if config["model"] == "per_arm" else 1
    if config["policy"]["oracle"]["kind"] == "newton" and blocks * (campaign.dimension + 1) ** 2 > PARAMETERS_MAX:
        raise Misfit(
            "arms",
            f"or features are too many: the newton oracle keeps arms·(features + 1)² numbers, "
            f"at most {PARAMETERS_MAX}; the gradient oracle keeps fewer",
        )
    if config["horizon"] is None and config["policy"]["two_stage"] not in ("auto", "off", False):
        raise Misfit("policy.two_stage", "needs a horizon")
    with misfit_of("policy"):
        _ = replace(campaign, config={**known, "policy": {**config["policy"], "two_stage": "off"}}).policy
    with misfit_of("policy.two_stage"):
        _ = campaign.policy


def _check_floor(config: Mapping[str, Any]) -> None:
    floor = config.get("floor_arm")  # configurations from before there were floors have none
    if floor is None:
        return
    if floor not in {arm["id"] for arm in config["arms"]}:
        raise Misfit("floor_arm", allowed(floor, [arm["id"] for arm in config["arms"]]))
    if config["policy"]["preset"] != "practical":
        raise Misfit("null_arm", "must be allowed unless the preset is practical: the others explore the null arm")
    if (config.get("holdout") or {"arm": floor})["arm"] is None:
        raise Misfit("holdout.arm", "must be an arm: with null_arm last_resort nothing is no alternative")


def _max_costs(config: Mapping[str, Any]) -> dict[str, int]:
    return {resource["id"]: micros(resource["max_cost"]) for resource in config["resources"]}


def _exceeds(arm: Mapping[str, Any], limits: Mapping[str, int]) -> bool:
    """Whether an arm that may be chosen costs more than a resource allows; one that returns is checked then."""
    if arm.get("retired") or arm.get("status") == PAUSED:
        return False
    return any(micros(cost) > limits[name] for name, cost in (arm.get("max_cost") or {}).items() if name in limits)


def _check_max_cost(field: str, arm: Mapping[str, Any], limits: Mapping[str, int]) -> None:
    for name in arm.get("max_cost") or ():
        if name not in limits:
            known = f"{listed([*limits])}{suggestion(name, limits)}"
            raise Misfit(field, f"must have resources of the campaign only, which are {known}")
    if _exceeds(arm, limits):
        raise Misfit(field, "must be at most that of its resource")


def _check_arm(field: str, arm: Mapping[str, Any], limits: Mapping[str, int], encoder: ContextEncoder | None) -> None:
    _check_max_cost(f"{field}.max_cost", arm, limits)
    features = arm.get("features")
    if (encoder is None) != (features is None):
        raise Misfit(f"{field}.features", 'must be given if model is "shared", and only then')
    if encoder is not None and features is not None:
        with misfit_of(f"{field}.features"):
            encoder.encode(features)
