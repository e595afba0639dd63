"""`/admin/campaigns/{id}/evaluations` and `/uplift`: comparisons of the policy with others, by its log."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from service import reads
from service.access import Admin, ReadableCampaign, WritableCampaign
from service.dependencies import PageQuery, components_of, database_of, read, show
from service.evaluation.request import check_request
from service.openapi import documented
from service.responses import Json, parsed
from service.schemas.evaluations import EvaluationPage, EvaluationRequest, EvaluationStarted, EvaluationView, UpliftView
from service.schemas.view import DECISION_ID

router = APIRouter(prefix="/admin/campaigns/{campaign_id}", tags=["admin"])


@router.post("/evaluations", **documented(EvaluationStarted, 404, 409, body=EvaluationRequest, status=202))
async def start_evaluation(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Estimate from the log the results of other policies or other budgets; a separate process computes them."""
    body = parsed(await request.body(), EvaluationRequest).model_dump()
    await read(request, check_request, campaign_id, body)
    parts, arguments = components_of(request), (database_of(request), campaign_id, body, principal.key_id)
    started = await to_thread.run_sync(parts.evaluations.submit, *arguments, limiter=parts.read_limiter)
    return Json(started, 202)


@router.get("/evaluations", **documented(EvaluationPage, 404, 422))
async def list_evaluations(request: Request, campaign_id: ReadableCampaign, page: PageQuery) -> Response:
    """List evaluations, newest first, without their results."""
    return await show(request, reads.evaluations, campaign_id, **page)


@router.get("/evaluations/{evaluation_id}", **documented(EvaluationView, 404))
async def show_evaluation(
    request: Request,
    campaign_id: ReadableCampaign,
    evaluation_id: Annotated[str, Path(description="id of the evaluation", examples=[DECISION_ID])],
) -> Response:
    """Show the progress of an evaluation and, once it is done, its result."""
    return await show(request, reads.evaluation, campaign_id, evaluation_id)


@router.get("/uplift", **documented(UpliftView, 404))
async def show_uplift(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Compare the policy with its hold-out, or show what it would have done in shadow mode."""
    return await show(request, reads.uplift, campaign_id)
