"""`/admin`: budgets, the log, statistics, exports, models, keys and the audit log."""

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from service import reads
from service.access import Admin, ReadableCampaign, Reader, UnlimitedAdmin, WritableCampaign
from service.dependencies import IdempotencyKey, PageQuery, keyring_of, read, show, submitted, submitted_once
from service.engine.commands import Adjust, CreateKey, ImportModel, RevokeKey
from service.engine.model_export import exported_model
from service.ids import is_id
from service.limits import TIMELINE_POINTS_DEFAULT, TIMELINE_POINTS_MAX
from service.openapi import OCTETS, documented, gives_octets, replayable, streams, takes
from service.problems import NotFound
from service.responses import Json, parsed
from service.routes.selecting import SELECTING, Selected, only_parameters
from service.schemas import admin as bodies
from service.words import no_such

router = APIRouter(prefix="/admin", tags=["admin"])

Points = Annotated[int, Query(ge=2, le=TIMELINE_POINTS_MAX, description="maximum number of points")]
Format = Annotated[
    Literal["jsonl", "csv", "parquet", "obp", "dsjson"],
    Query(
        description="one JSON object per line, comma-separated values, Apache Parquet (if pyarrow is installed), "
        "arrays for the Open Bandit Pipeline, lines for Vowpal Wabbit; the last two have only learnt decisions"
    ),
]


@router.get("/budgets", **documented(bodies.BudgetPage, 422))
async def list_budgets(request: Request, principal: Reader, page: PageQuery) -> Response:
    """Show the accounts of every campaign that the key may see."""
    return await show(request, reads.budgets, visible=principal.campaigns, **page)


@router.get("/campaigns/{campaign_id}/budget", **documented(bodies.BudgetView, 404))
async def show_budget(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Show the accounts of a campaign; pace is the spent share of the budget over the passed share of the flight."""
    return await show(request, reads.budget, campaign_id)


@router.get("/campaigns/{campaign_id}/ledger", **documented(bodies.LedgerPage, 404, 422))
async def list_movements(request: Request, campaign_id: ReadableCampaign, page: PageQuery) -> Response:
    """List every movement of the accounts, newest first."""
    return await show(request, reads.ledger, campaign_id, **page)


@router.post(
    "/campaigns/{campaign_id}/adjust",
    **replayable(documented(bodies.Adjusted, 404, 409, body=bodies.AdjustRequest)),
)
async def adjust_spent(
    request: Request, campaign_id: WritableCampaign, principal: Admin, key: IdempotencyKey
) -> Response:
    """Correct the spent amount by a signed amount; the audit log keeps the reason."""
    body = parsed(await request.body(), bodies.AdjustRequest)
    command = Adjust(campaign_id, body.resource, body.amount, body.reason, principal.key_id)
    return await submitted_once(request, command, key)


@router.get("/campaigns/{campaign_id}/verify", **documented(bodies.Verification, 404))
async def verify_campaign(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Compute the accounts again from the log, in one snapshot, and compare."""
    return await show(request, reads.verify, campaign_id)


@router.get("/campaigns/{campaign_id}/timeline", **documented(bodies.Timeline, 404, 422))
async def show_timeline(
    request: Request, campaign_id: ReadableCampaign, points: Points = TIMELINE_POINTS_DEFAULT
) -> Response:
    """Show the history of the campaign in at most a few hundred points."""
    return await show(request, reads.timeline, campaign_id, points=points)


@router.get("/campaigns/{campaign_id}/feedback", **documented(bodies.FeedbackHealth, 404))
async def show_feedback(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Show open holds, the delays of feedback, and the errors of the oracle's predictions."""
    return await show(request, reads.feedback, campaign_id)


@router.get("/campaigns/{campaign_id}/arms", **documented(bodies.ArmPage, 404))
async def list_arms(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Show share, mean reward, mean cost and last play of every arm."""
    return await show(request, reads.arms, campaign_id)


@router.get("/campaigns/{campaign_id}/decisions", **documented(bodies.DecidedPage, 404, 422))
async def list_decisions(
    request: Request, campaign_id: ReadableCampaign, page: PageQuery, selection: Selected
) -> Response:
    """List decisions and their outcomes, newest first. With `arm` or `status`, a page may have fewer than `limit`."""
    only_parameters(request, "limit", "cursor", *SELECTING)
    return await show(request, reads.decisions, campaign_id, selection=selection, **page)


@router.get("/campaigns/{campaign_id}/decisions/{decision_id}", **documented(bodies.DecidedDetail, 404))
async def show_decision(
    request: Request,
    campaign_id: ReadableCampaign,
    decision_id: Annotated[str, Path(description="id of the decision", examples=["checkout-7f3a"])],
) -> Response:
    """Show a decision with its request, its explanation and its outcomes."""
    return await show(request, reads.decision, campaign_id, decision_id)


@router.get(
    "/campaigns/{campaign_id}/export",
    response_class=Response,
    responses=streams([form.media_type for form in reads.FORMATS.values()], 401, 403, 404, 422, 503),
)
async def export_decisions(
    request: Request,
    campaign_id: ReadableCampaign,
    selection: Selected,
    form: Annotated[Format, Query(alias="format")] = "jsonl",
) -> Response:
    """Stream decisions up to now and their outcomes, oldest first: all of them, or those selected."""
    only_parameters(request, "format", *SELECTING)
    export = await read(request, reads.export_start, campaign_id, form, selection)
    # The first page is read before the response starts, so that its errors are still answered with a problem.
    first = await read(request, reads.export_page, export, 0)
    kind = reads.FORMATS[form]
    headers = {"Content-Disposition": f'attachment; filename="{campaign_id}.{kind.suffix}"'}
    return StreamingResponse(_pages(request, export, first), media_type=kind.media_type, headers=headers)


async def _pages(request: Request, export: reads.Export, first: tuple[bytes, int | None]) -> AsyncIterator[bytes]:
    page, after = first
    yield page
    while after is not None:
        page, after = await read(request, reads.export_page, export, after)
        yield page
    for piece in export.form.end():
        yield piece


_MODEL_HEADERS = {
    "Content-Disposition": "name of the file",
    "ETag": "checksum of the model",
    "Model-Version": "1 for what the campaign learnt from its start; one more with every import",
    "Policy-Version": "number of outcomes the model has learnt",
}


@router.get(
    "/campaigns/{campaign_id}/model",
    response_class=Response,
    responses=gives_octets(_MODEL_HEADERS, 401, 403, 404, 503),
)
async def export_model(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Return what the campaign has learnt, as bytes with a checksum: the oracle and its residuals, not the accounts."""
    found = await read(request, exported_model, campaign_id)
    headers = {
        "Content-Disposition": f'attachment; filename="{campaign_id}.model"',
        "ETag": f'"{found.checksum}"',
        "Model-Version": str(found.model_version),
        "Policy-Version": str(found.policy_version),
    }
    return Response(found.data, headers=headers, media_type="application/octet-stream")


@router.put(
    "/campaigns/{campaign_id}/model",
    openapi_extra=takes(OCTETS),
    **documented(bodies.ModelChanged, 400, 404, 409, 413, 422),
)
async def import_model(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Continue from a model of the same shape, of this or another campaign; round, prices and accounts stay."""
    data = await request.body()
    # A large model takes long to read; in the engine it would delay every other request.
    model, shape = await read(request, reads.fitting_model, campaign_id, data)
    return await submitted(request, ImportModel(campaign_id, model, shape, data, principal.key_id))


@router.get("/key", **documented(bodies.KeyHolder))
async def show_own_key(principal: Reader) -> Response:
    """Show the permissions of the key of this request."""
    campaigns = None if principal.campaigns is None else sorted(principal.campaigns)
    holder = {"id": principal.key_id, "name": principal.name, "role": principal.role, "campaigns": campaigns}
    return Json({**holder, "requests_per_second": principal.requests_per_second})


@router.post("/keys", **documented(bodies.KeyMade, 404, body=bodies.KeyRequest, status=201))
async def create_key(request: Request, principal: UnlimitedAdmin) -> Response:
    """Create a key; only this response contains its text."""
    body = parsed(await request.body(), bodies.KeyRequest)
    campaigns = None if body.campaigns is None else tuple(body.campaigns)
    rate = body.requests_per_second
    answer = await submitted(request, CreateKey(body.name, body.role, campaigns, principal.key_id, rate))
    keyring_of(request).forget()
    return answer


@router.get("/keys", **documented(bodies.KeyPage, 422))
async def list_keys(request: Request, principal: UnlimitedAdmin, page: PageQuery) -> Response:
    """List all keys, including revoked ones, without their text."""
    return await show(request, reads.keys, **page)


@router.delete("/keys/{key_id}", **documented(bodies.KeyRevoked, 404, 409))
async def revoke_key(
    request: Request,
    key_id: Annotated[str, Path(description="id of the key", examples=["key-3f9a"])],
    principal: UnlimitedAdmin,
) -> Response:
    """Revoke a key for good; the last admin key cannot be revoked."""
    if not is_id(key_id):
        raise NotFound(no_such("key", key_id), kind="key-not-found")
    answer = await submitted(request, RevokeKey(key_id, principal.key_id))
    keyring_of(request).forget()
    return answer


@router.get("/audit", **documented(bodies.AuditPage, 422))
async def list_audit(request: Request, principal: UnlimitedAdmin, page: PageQuery) -> Response:
    """List the changes of campaigns and keys, newest first."""
    return await show(request, reads.audit, **page)
