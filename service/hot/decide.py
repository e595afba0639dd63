"""`POST /decide` and `/decide/batch`: hot, so from bytes to commands, and from answers to bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from service.auth import Principal
from service.engine.commands import Decide
from service.hot.bodies import usual_decide, usual_decide_batch
from service.hot.request import Asked, one, several
from service.problems import Problem
from service.responses import item_problem, parsed, parsed_if_sound
from service.routes.access import see
from service.schemas.deciding import DecideBatch, DecideItem, DecideRequest, SoundDecideBatch


def decide(principal: Principal, body: bytes) -> Asked:
    """Which arm for this request?"""
    usual = usual_decide(body)
    if usual is not None:
        see(principal, usual.campaign_id)
        return one(
            Decide(usual.campaign_id, usual.decision_id, usual.context, usual.exclude or (), None, usual.explain)
        )
    request = parsed(body, DecideRequest)
    see(principal, request.campaign_id)
    return one(_command(request.campaign_id, request, explain=request.explain))


def decide_batch(principal: Principal, body: bytes) -> Asked:
    """Which arm for each of these requests?"""
    campaign_id, commands = _batch(body)
    see(principal, campaign_id)
    return several(commands, "decisions", of_all=("campaign-not-found", "rules-unknown"))


def _batch(body: bytes) -> tuple[str, Sequence[Decide | Problem]]:
    usual = usual_decide_batch(body)
    if usual is not None:
        campaign_id = usual.campaign_id
        return campaign_id, [
            Decide(campaign_id, item.decision_id, item.context, item.exclude or ()) for item in usual.items
        ]
    sound = parsed_if_sound(body, SoundDecideBatch)
    if sound is not None:
        campaign_id = sound.campaign_id
        return campaign_id, [_command(campaign_id, item) for item in sound.items]
    request = parsed(body, DecideBatch)
    campaign_id = request.campaign_id
    return campaign_id, [_item(campaign_id, item, f"items.{index}") for index, item in enumerate(request.items)]


def _item(campaign_id: str, item: Any, place: str) -> Decide | Problem:
    try:
        return _command(campaign_id, DecideItem.model_validate(item))
    except ValidationError as error:
        return item_problem(error, item, place)


def _command(campaign_id: str, item: DecideItem, *, explain: bool = False) -> Decide:
    baseline = (item.baseline_arm,) if "baseline_arm" in item.model_fields_set else ()
    excluded = item.exclude or ()
    return Decide(campaign_id, item.decision_id, item.context, excluded, item.plain_actions(), explain, baseline)
