"""`/admin`: budgets, the log, statistics, exports, keys and the audit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from service import reads
from service.engine.commands import Adjust, CreateKey, ImportModel, RevokeKey
from service.ids import is_id
from service.limits import PAGE_DEFAULT, TIMELINE_POINTS_DEFAULT, TIMELINE_POINTS_MAX
from service.openapi import answers, gives_octets, streams, takes, takes_octets
from service.problems import NotFound
from service.responses import json_answer
from service.routes.access import Admin, ReadableCampaign, Reader, UnlimitedAdmin, WritableCampaign
from service.routes.campaigns import PageCursor, PageLimit
from service.routes.dependencies import keyring_of, parsed, read, submitted
from service.schemas.admin import (
    Adjusted,
    AdjustRequest,
    ArmPage,
    AuditPage,
    BudgetPage,
    BudgetView,
    DecidedDetail,
    DecidedPage,
    FeedbackHealth,
    KeyHolder,
    KeyMade,
    KeyPage,
    KeyRequest,
    KeyRevoked,
    LedgerPage,
    ModelChanged,
    Timeline,
    Verification,
)

router = APIRouter(prefix="/admin", tags=["admin"])

Points = Annotated[int, Query(ge=2, le=TIMELINE_POINTS_MAX, description="how many points at the most")]
Format = Annotated[
    Literal["jsonl", "csv", "parquet", "obp", "dsjson"],
    Query(
        description="one JSON object per line, comma-separated values, Apache Parquet (where pyarrow is installed), "
        "arrays for the Open Bandit Pipeline, lines for Vowpal Wabbit; the last two have only what was learnt from"
    ),
]


@router.get("/budgets", responses=answers(BudgetPage, 401, 403, 422, 503))
async def list_budgets(
    request: Request, principal: Reader, limit: PageLimit = PAGE_DEFAULT, cursor: PageCursor = None
) -> Response:
    """Show the accounts of every campaign the key may see."""
    found = await read(request, reads.budgets, visible=principal.campaigns, limit=limit, cursor=cursor)
    return json_answer(found)


@router.get("/campaigns/{campaign_id}/budget", responses=answers(BudgetView, 401, 403, 404, 503))
async def show_budget(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Show the accounts of a campaign; pace is the share spent over the share of the flight."""
    return json_answer(await read(request, reads.budget, campaign_id))


@router.get("/campaigns/{campaign_id}/ledger", responses=answers(LedgerPage, 401, 403, 404, 422, 503))
async def list_movements(
    request: Request, campaign_id: ReadableCampaign, limit: PageLimit = PAGE_DEFAULT, cursor: PageCursor = None
) -> Response:
    """List every movement of the accounts, newest first."""
    return json_answer(await read(request, reads.ledger, campaign_id, limit=limit, cursor=cursor))


@router.post(
    "/campaigns/{campaign_id}/adjust",
    responses=answers(Adjusted, 400, 401, 403, 404, 409, 413, 422, 503),
    openapi_extra=takes(AdjustRequest),
)
async def adjust_spent(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Correct what was spent by a signed amount; the reason goes into the audit."""
    body = await parsed(request, AdjustRequest)
    command = Adjust(campaign_id, body.resource, body.amount, body.reason, principal.key_id)
    return await submitted(request, command)


@router.get("/campaigns/{campaign_id}/verify", responses=answers(Verification, 401, 403, 404, 503))
async def verify_campaign(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Compute the accounts anew from the log, in one snapshot."""
    return json_answer(await read(request, reads.verify, campaign_id))


@router.get("/campaigns/{campaign_id}/timeline", responses=answers(Timeline, 401, 403, 404, 422, 503))
async def show_timeline(
    request: Request, campaign_id: ReadableCampaign, points: Points = TIMELINE_POINTS_DEFAULT
) -> Response:
    """Show the campaign's history, thinned to a few hundred points."""
    return json_answer(await read(request, reads.timeline, campaign_id, points=points))


@router.get("/campaigns/{campaign_id}/feedback", responses=answers(FeedbackHealth, 401, 403, 404, 503))
async def show_feedback(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Show what is still awaited, how late feedback comes, and how far the oracle's predictions were off."""
    return json_answer(await read(request, reads.feedback, campaign_id))


@router.get("/campaigns/{campaign_id}/arms", responses=answers(ArmPage, 401, 403, 404, 503))
async def list_arms(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Show share, mean reward, mean cost and last play of every arm."""
    return json_answer(await read(request, reads.arms, campaign_id))


@router.get("/campaigns/{campaign_id}/decisions", responses=answers(DecidedPage, 401, 403, 404, 422, 503))
async def list_decisions(
    request: Request, campaign_id: ReadableCampaign, limit: PageLimit = PAGE_DEFAULT, cursor: PageCursor = None
) -> Response:
    """List decisions, newest first, each with what has become of it."""
    return json_answer(await read(request, reads.decisions, campaign_id, limit=limit, cursor=cursor))


@router.get("/campaigns/{campaign_id}/decisions/{decision_id}", responses=answers(DecidedDetail, 401, 403, 404, 503))
async def show_decision(
    request: Request,
    campaign_id: ReadableCampaign,
    decision_id: Annotated[str, Path(description="the decision's id", examples=["checkout-7f3a"])],
) -> Response:
    """Show a decision with its request, its explanation and its outcomes."""
    return json_answer(await read(request, reads.decision, campaign_id, decision_id))


@router.get(
    "/campaigns/{campaign_id}/export",
    response_class=Response,
    responses=streams([one.media_type for one in reads.FORMATS.values()], 401, 403, 404, 422, 503),
)
async def export_decisions(
    request: Request, campaign_id: ReadableCampaign, form: Annotated[Format, Query(alias="format")] = "jsonl"
) -> Response:
    """Stream every decision up to now with its outcome, oldest first."""
    export = await read(request, reads.export_start, campaign_id, form)
    # The first page is read before the answer begins, so that what fails then is still a proper problem.
    first = await read(request, reads.export_page, export, 0)
    kind = reads.FORMATS[form]
    name = f'attachment; filename="{campaign_id}.{kind.suffix}"'
    return StreamingResponse(
        _pages(request, export, first), media_type=kind.media_type, headers={"Content-Disposition": name}
    )


async def _pages(request: Request, export: reads.Export, first: tuple[bytes, int | None]) -> AsyncIterator[bytes]:
    page, after = first
    yield page
    while after is not None:
        page, after = await read(request, reads.export_page, export, after)
        yield page
    for piece in export.end():
        yield piece


_MODEL_HEADERS = {
    "Content-Disposition": "a name for the file",
    "ETag": "the model's own checksum",
    "Model-Version": "1 for what the campaign learnt from its start; one more with every import",
    "Policy-Version": "outcomes the model has learnt",
}


@router.get(
    "/campaigns/{campaign_id}/model",
    response_class=Response,
    responses=gives_octets(_MODEL_HEADERS, 401, 403, 404, 503),
)
async def export_model(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Give what the campaign has learnt, as bytes with a checksum: the oracle and its residuals, not its books."""
    found = await read(request, reads.model, campaign_id)
    headers = {
        "Content-Disposition": f'attachment; filename="{campaign_id}.model"',
        "ETag": f'"{found.checksum}"',
        "Model-Version": str(found.model_version),
        "Policy-Version": str(found.policy_version),
    }
    return Response(found.data, headers=headers, media_type="application/octet-stream")


@router.put(
    "/campaigns/{campaign_id}/model",
    responses=answers(ModelChanged, 400, 401, 403, 404, 409, 413, 422, 503),
    openapi_extra=takes_octets(),
)
async def import_model(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Go on from a model of the same shape, this campaign's own or another's; round, prices and accounts stay."""
    data = await request.body()
    # Large models take a while to read: not in the engine, where everybody would wait.
    model, shape = await read(request, reads.fitting_model, campaign_id, data)
    return await submitted(request, ImportModel(campaign_id, model, shape, data, principal.key_id))


@router.get("/key", responses=answers(KeyHolder, 401, 403, 503))
async def show_own_key(principal: Reader) -> Response:
    """Show what the key of this very request may do."""
    campaigns = None if principal.campaigns is None else sorted(principal.campaigns)
    holder = {"id": principal.key_id, "name": principal.name, "role": principal.role, "campaigns": campaigns}
    return json_answer(holder)


@router.post(
    "/keys",
    status_code=201,
    responses=answers(KeyMade, 400, 401, 403, 413, 422, 503, status=201),
    openapi_extra=takes(KeyRequest),
)
async def create_key(request: Request, principal: UnlimitedAdmin) -> Response:
    """Make a key; its text is in the answer and nowhere else."""
    body = await parsed(request, KeyRequest)
    campaigns = None if body.campaigns is None else tuple(body.campaigns)
    answer = await submitted(request, CreateKey(body.name, body.role, campaigns, principal.key_id))
    answer.headers["Cache-Control"] = "no-store"
    keyring_of(request).forget()
    return answer


@router.get("/keys", responses=answers(KeyPage, 401, 403, 422, 503))
async def list_keys(
    request: Request, principal: UnlimitedAdmin, limit: PageLimit = PAGE_DEFAULT, cursor: PageCursor = None
) -> Response:
    """List all keys, revoked ones too, without their text."""
    return json_answer(await read(request, reads.keys, limit=limit, cursor=cursor))


@router.delete("/keys/{key_id}", responses=answers(KeyRevoked, 401, 403, 404, 409, 503))
async def revoke_key(
    request: Request,
    key_id: Annotated[str, Path(description="the key's id", examples=["key-3f9a"])],
    principal: UnlimitedAdmin,
) -> Response:
    """Make a key invalid for good; the last admin key stays."""
    if not is_id(key_id):
        raise NotFound("there is no such key", kind="key-not-found")
    answer = await submitted(request, RevokeKey(key_id, principal.key_id))
    keyring_of(request).forget()
    return answer


@router.get("/audit", responses=answers(AuditPage, 401, 403, 422, 503))
async def list_audit(
    request: Request, principal: UnlimitedAdmin, limit: PageLimit = PAGE_DEFAULT, cursor: PageCursor = None
) -> Response:
    """List what was done to campaigns and keys, newest first."""
    return json_answer(await read(request, reads.audit, limit=limit, cursor=cursor))
