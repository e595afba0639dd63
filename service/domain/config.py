"""Whether the parts of a campaign's configuration fit each other: checked by building the campaign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cbwk_core import RULES_VERSION, ContextEncoder
from service.domain.campaign import HORIZON_UNKNOWN, Campaign
from service.limits import ARMS_MAX, PARAMETERS_MAX
from service.money import micros
from service.problems import Invalid, Misfit, misfit_of
from service.times import moment_microseconds


def check_new_config(config: Mapping[str, Any]) -> None:
    """Raises Invalid if the configuration of a new campaign does not fit together."""
    try:
        check_config({**config, "rules": RULES_VERSION})
    except Misfit as misfit:
        raise Invalid("the body cannot be taken as it is", errors=[misfit.error]) from None


def check_config(config: Mapping[str, Any]) -> None:
    """Raises Misfit if the parts of a new or changed configuration do not fit each other."""
    if len(config["arms"]) > ARMS_MAX:
        raise Misfit("arms", f"must be at most {ARMS_MAX}, retired ones included")
    baseline = (config.get("holdout") or {}).get("arm")
    if baseline is not None and baseline not in {arm["id"] for arm in config["arms"]}:
        raise Misfit("holdout.arm", "must be one of the arms")
    starts, ends = config.get("starts_at"), config["ends_at"]
    if starts is not None and ends is not None and moment_microseconds(starts) >= moment_microseconds(ends):
        raise Misfit("starts_at", "must be before ends_at")
    limits = {resource["id"]: micros(resource["max_cost"]) for resource in config["resources"]}
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


def _check_arm(field: str, arm: Mapping[str, Any], limits: Mapping[str, int], encoder: ContextEncoder | None) -> None:
    own = arm.get("max_cost") or {}
    if not limits.keys() >= own.keys():
        raise Misfit(f"{field}.max_cost", "must have resources of the campaign only")
    if any(micros(cost) > limits[resource] for resource, cost in own.items()):
        raise Misfit(f"{field}.max_cost", "must be at most that of its resource")
    features = arm.get("features")
    if (encoder is None) != (features is None):
        raise Misfit(f"{field}.features", 'must be given if model is "shared", and only then')
    if encoder is not None and features is not None:
        with misfit_of(f"{field}.features"):
            encoder.encode(features)
