"""`/admin/campaigns/{id}/evaluations` and `/uplift`: comparisons of the policy with others, by its log."""

from __future__ import annotations

from typing import Annotated, cast

from anyio import to_thread
from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from service import reads
from service.access import Admin, ReadableCampaign, WritableCampaign
from service.dependencies import PageQuery, database_of, parsed, read, show
from service.evaluation.request import check_request
from service.evaluation.runner import Evaluations
from service.openapi import answers, takes
from service.responses import json_answer
from service.schemas.base import DECISION_ID
from service.schemas.evaluations import EvaluationPage, EvaluationRequest, EvaluationStarted, EvaluationView
from service.schemas.uplift import UpliftView

router = APIRouter(prefix="/admin/campaigns/{campaign_id}", tags=["admin"])


@router.post(
    "/evaluations",
    status_code=202,
    responses=answers(EvaluationStarted, 400, 401, 403, 404, 409, 413, 422, 503, status=202),
    openapi_extra=takes(EvaluationRequest),
)
async def start_evaluation(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Estimate from the log the results of other policies or other budgets; a separate process computes them."""
    body = (await parsed(request, EvaluationRequest)).model_dump()
    await read(request, check_request, campaign_id, body)
    evaluations = cast(Evaluations, request.app.state.evaluations)
    arguments = (database_of(request), campaign_id, body, principal.key_id)
    started = await to_thread.run_sync(evaluations.submit, *arguments, limiter=request.app.state.read_limiter)
    return json_answer(started, 202)


@router.get("/evaluations", responses=answers(EvaluationPage, 401, 403, 404, 422, 503))
async def list_evaluations(request: Request, campaign_id: ReadableCampaign, page: PageQuery) -> Response:
    """List evaluations, newest first, without their results."""
    return await show(request, reads.evaluations, campaign_id, **page)


@router.get("/evaluations/{evaluation_id}", responses=answers(EvaluationView, 401, 403, 404, 503))
async def show_evaluation(
    request: Request,
    campaign_id: ReadableCampaign,
    evaluation_id: Annotated[str, Path(description="id of the evaluation", examples=[DECISION_ID])],
) -> Response:
    """Show the progress of an evaluation and, once it is done, its result."""
    return await show(request, reads.evaluation, campaign_id, evaluation_id)


@router.get("/uplift", responses=answers(UpliftView, 401, 403, 404, 503))
async def show_uplift(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Compare the policy with its hold-out, or show what it would have done in shadow mode."""
    return await show(request, reads.uplift, campaign_id)
