"""`POST /feedback` and `/feedback/batch`: hot, so plain Starlette endpoints, from bytes to bytes."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from service.answers import command_answer, item_problem
from service.auth import Principal
from service.engine.commands import Feedback
from service.problems import Problem
from service.routes.access import authorised, see
from service.routes.batches import batch_answer
from service.routes.parts import parsed, submit
from service.schemas.deciding import FeedbackBatch, FeedbackRequest


async def feedback(request: Request) -> Response:
    """What became of a decision."""
    principal = await authorised(request, "decider")
    body = await parsed(request, FeedbackRequest)
    see(principal, body.campaign_id)
    return command_answer(await submit(request, _command(body)))


async def feedback_batch(request: Request) -> Response:
    """What became of several decisions."""
    principal = await authorised(request, "decider")
    body = await parsed(request, FeedbackBatch)
    commands = [_item(principal, item, f"items.{index}") for index, item in enumerate(body.items)]
    return await batch_answer(request, commands, "results")


def _item(principal: Principal, item: Any, place: str) -> Feedback | Problem:
    try:
        report = FeedbackRequest.model_validate(item)
        see(principal, report.campaign_id)
    except ValidationError as error:
        return item_problem(error, item, place)
    except Problem as problem:
        return problem
    return _command(report)


def _command(report: FeedbackRequest) -> Feedback:
    return Feedback(report.campaign_id, report.decision_id, report.reward, report.costs, report.void)
