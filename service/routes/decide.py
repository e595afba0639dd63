"""`POST /decide` and `/decide/batch`: hot, so from bytes to commands, and from answers to bytes."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from service.answers import item_problem, parsed
from service.auth import Principal
from service.engine.commands import Decide
from service.problems import Problem
from service.routes.access import see
from service.routes.batches import Asked, one, several
from service.schemas.deciding import DecideBatch, DecideItem, DecideRequest


def decide(principal: Principal, body: bytes) -> Asked:
    """Which arm for this request?"""
    request = parsed(body, DecideRequest)
    see(principal, request.campaign_id)
    return one(_command(request.campaign_id, request, explain=request.explain))


def decide_batch(principal: Principal, body: bytes) -> Asked:
    """Which arm for each of these requests?"""
    request = parsed(body, DecideBatch)
    see(principal, request.campaign_id)
    commands = [_item(request.campaign_id, item, f"items.{index}") for index, item in enumerate(request.items)]
    return several(commands, "decisions", of_all="campaign-not-found")


def _item(campaign_id: str, item: Any, place: str) -> Decide | Problem:
    try:
        return _command(campaign_id, DecideItem.model_validate(item))
    except ValidationError as error:
        return item_problem(error, item, place)


def _command(campaign_id: str, item: DecideItem, *, explain: bool = False) -> Decide:
    return Decide(campaign_id, item.decision_id, item.context, item.exclude, item.plain_actions(), explain)
