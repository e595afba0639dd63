"""Hold-out and shadow mode: the reasons of their decisions, and what a shadow row says."""

from __future__ import annotations

from typing import Any

import orjson

from service.domain.campaign import Campaign
from service.money import ONE

HOLDOUT, SHADOW = "holdout", "shadow"


def would_have(campaign: Campaign, kept: str) -> dict[str, Any]:
    """What the policy would have done, from a row's `shadow`, in the units of callers."""
    told = orjson.loads(kept)
    low, high = campaign.config["reward"]["min"], campaign.config["reward"]["max"]
    units = [unit / ONE for unit in campaign.policy.problem.unit.tolist()]
    costs = zip(campaign.resources, told["costs"], units, strict=True)
    return {
        "arm": told["arm"],
        "reason": told["reason"],
        "probability": told["probability"],
        "reward": 0.0 if told["arm"] is None else low + told["reward"] * (high - low),
        "cost": {name: cost * unit for name, cost, unit in costs},
    }
