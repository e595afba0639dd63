"""`POST /decide` and `/decide/batch`: hot, so plain Starlette endpoints, from bytes to bytes."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from service.answers import command_answer, item_problem
from service.engine.commands import Decide
from service.problems import Problem
from service.routes.access import authorised, see
from service.routes.batches import batch_answer
from service.routes.parts import metrics_of, parsed, submit
from service.schemas.deciding import DecideBatch, DecideItem, DecideRequest


async def decide(request: Request) -> Response:
    """Which arm for this request?"""
    started = perf_counter()
    principal = await authorised(request, "decider")
    body = await parsed(request, DecideRequest)
    see(principal, body.campaign_id)
    answer = await submit(request, _command(body.campaign_id, body, explain=body.explain))
    metrics_of(request).decide_seconds.observe(perf_counter() - started)
    return command_answer(answer)


async def decide_batch(request: Request) -> Response:
    """Which arm for each of these requests?"""
    principal = await authorised(request, "decider")
    body = await parsed(request, DecideBatch)
    see(principal, body.campaign_id)
    commands = [_item(body.campaign_id, item, f"items.{index}") for index, item in enumerate(body.items)]
    return await batch_answer(request, commands, "decisions", of_all="campaign-not-found")


def _item(campaign_id: str, item: Any, place: str) -> Decide | Problem:
    try:
        return _command(campaign_id, DecideItem.model_validate(item))
    except ValidationError as error:
        return item_problem(error, item, place)


def _command(campaign_id: str, item: DecideItem, *, explain: bool = False) -> Decide:
    return Decide(campaign_id, item.decision_id, item.context, item.exclude, item.plain_actions(), explain)
