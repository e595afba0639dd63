"""Checks an evaluation request against its campaign."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from service.domain.campaign import Campaign
from service.domain.config import check_config
from service.problems import Conflict, Invalid, Misfit
from service.reads.shared import stored_campaign
from service.words import error_at, not_among

ONE_STAGE = ("auto", "off", False)


def check_request(connection: Connection, campaign_id: str, request: dict[str, Any]) -> None:
    """Raises a Problem that lists every arm, resource and policy setting the campaign cannot have."""
    campaign = stored_campaign(connection, campaign_id).campaign
    if not campaign.arms:
        raise Conflict("the campaign has no arms of its own, so there is no log of them", kind="nothing-to-evaluate")
    errors = [
        {"field": f"budgets.{name}", "message": "is not a resource of the campaign"}
        for name in request["budgets"]
        if name not in campaign.resources
    ]
    for index, candidate in enumerate(request["candidates"]):
        errors += _candidate_errors(campaign, candidate, f"candidates.{index}")
    if errors:
        raise Invalid("the evaluation cannot be made", kind="invalid-evaluation", errors=errors)


def _candidate_errors(campaign: Campaign, candidate: dict[str, Any], field: str) -> list[dict[str, str]]:
    if candidate["type"] == "fixed" and candidate["arm"] not in campaign.arm_index:
        return [error_at(f"{field}.arm", not_among("arms", candidate["arm"], campaign.arms))]
    if candidate["type"] == "policy":
        if candidate["policy"]["two_stage"] not in ONE_STAGE:
            return [error_at(f"{field}.policy.two_stage", "must be off: a log has no stage of its own")]
        try:
            check_config({**campaign.config, "policy": {**candidate["policy"], "two_stage": "off"}})
        except Misfit as misfit:
            return [error_at(f"{field}.{misfit.field}", misfit.message)]
    return []
