"""`/admin/campaigns/{id}/evaluations` and `/uplift`: what if, asked of the log, and of a baseline beside the policy."""

from __future__ import annotations

from typing import Annotated, cast

from anyio import to_thread
from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from service import reads
from service.evaluation.asking import check_asked
from service.evaluation.runner import Evaluations
from service.limits import PAGE_DEFAULT
from service.openapi import answers, takes
from service.responses import json_answer
from service.routes.access import Admin, ReadableCampaign, WritableCampaign
from service.routes.campaigns import PageCursor, PageLimit
from service.routes.dependencies import database_of, parsed, read
from service.schemas.evaluations import EvaluationPage, EvaluationRequest, EvaluationStarted, EvaluationView
from service.schemas.uplift import UpliftView

router = APIRouter(prefix="/admin", tags=["admin"])


@router.post(
    "/campaigns/{campaign_id}/evaluations",
    status_code=202,
    responses=answers(EvaluationStarted, 400, 401, 403, 404, 409, 413, 422, 503, status=202),
    openapi_extra=takes(EvaluationRequest),
)
async def start_evaluation(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Ask the log what other policies, or other budgets, would have come to; a process of its own works it out."""
    asked = (await parsed(request, EvaluationRequest)).model_dump()
    await read(request, check_asked, campaign_id, asked)
    evaluations = cast(Evaluations, request.app.state.evaluations)
    started = await to_thread.run_sync(
        evaluations.submit,
        database_of(request),
        campaign_id,
        asked,
        principal.key_id,
        limiter=request.app.state.read_limiter,
    )
    return json_answer(started, 202)


@router.get("/campaigns/{campaign_id}/evaluations", responses=answers(EvaluationPage, 401, 403, 404, 422, 503))
async def list_evaluations(
    request: Request, campaign_id: ReadableCampaign, limit: PageLimit = PAGE_DEFAULT, cursor: PageCursor = None
) -> Response:
    """List evaluations, newest first, without their results."""
    return json_answer(await read(request, reads.evaluations, campaign_id, limit=limit, cursor=cursor))


@router.get(
    "/campaigns/{campaign_id}/evaluations/{evaluation_id}", responses=answers(EvaluationView, 401, 403, 404, 503)
)
async def show_evaluation(
    request: Request,
    campaign_id: ReadableCampaign,
    evaluation_id: Annotated[
        str, Path(description="the evaluation's id", examples=["0197f0c4-8a00-7000-8000-5d1c2f0b9e11"])
    ],
) -> Response:
    """Show an evaluation: how far it is, and its result once it is there."""
    return json_answer(await read(request, reads.evaluation, campaign_id, evaluation_id))


@router.get("/campaigns/{campaign_id}/uplift", responses=answers(UpliftView, 401, 403, 404, 503))
async def show_uplift(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Show how the policy does beside its hold-out, or what it would have done in shadow mode."""
    return json_answer(await read(request, reads.uplift, campaign_id))
