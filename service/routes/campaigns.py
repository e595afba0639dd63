"""`/campaigns`: make them, look at them, change them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from service import reads
from service.engine.commands import CreateCampaign, PatchCampaign, SetStatus
from service.limits import PAGE_DEFAULT, PAGE_MAX
from service.openapi import answers, takes
from service.responses import json_answer
from service.routes.access import Admin, ReadableCampaign, Reader, UnlimitedAdmin, WritableCampaign
from service.routes.dependencies import parsed, read, submitted
from service.schemas.admin import CampaignChanged
from service.schemas.campaign import CampaignConfig, CampaignPage, CampaignPatch, CampaignView

router = APIRouter(prefix="/campaigns", tags=["campaigns"])

PageLimit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="how many items at the most")]
PageCursor = Annotated[str | None, Query(max_length=256, description="the next_cursor of the page before")]
Status = Annotated[Literal["active", "paused", "archived"] | None, Query(description="only campaigns of this status")]


@router.post(
    "",
    status_code=201,
    responses=answers(CampaignChanged, 400, 401, 403, 409, 413, 422, 503, status=201),
    openapi_extra=takes(CampaignConfig),
)
async def create_campaign(request: Request, principal: UnlimitedAdmin) -> Response:
    """Make a campaign and grant its budgets."""
    body = await parsed(request, CampaignConfig)
    return await submitted(request, CreateCampaign(body.plain(), principal.key_id))


@router.get("", responses=answers(CampaignPage, 401, 403, 422, 503))
async def list_campaigns(
    request: Request,
    principal: Reader,
    status: Status = None,
    limit: PageLimit = PAGE_DEFAULT,
    cursor: PageCursor = None,
) -> Response:
    """List campaigns in the order they were made, those the key may see."""
    named = {"visible": principal.campaigns, "status": status, "limit": limit, "cursor": cursor}
    return json_answer(await read(request, reads.campaigns, **named))


@router.get("/{campaign_id}", responses=answers(CampaignView, 401, 403, 404, 503))
async def show_campaign(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Show a campaign: configuration and its version, status, round, accounts, prices."""
    return json_answer(await read(request, reads.campaign, campaign_id))


@router.patch(
    "/{campaign_id}",
    responses=answers(CampaignChanged, 400, 401, 403, 404, 409, 413, 422, 503),
    openapi_extra=takes(CampaignPatch),
)
async def change_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Change budgets, horizon, arms or feedback terms; nothing learnt is lost."""
    body = await parsed(request, CampaignPatch)
    return await submitted(request, PatchCampaign(campaign_id, body.plain(), principal.key_id))


async def _set_status(request: Request, campaign_id: str, action: str, actor: str) -> Response:
    return await submitted(request, SetStatus(campaign_id, action, actor))


_CHANGED = answers(CampaignChanged, 401, 403, 404, 409, 503)


@router.post("/{campaign_id}/pause", responses=_CHANGED)
async def pause_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Answer every request with the null arm until resumed."""
    return await _set_status(request, campaign_id, "pause", principal.key_id)


@router.post("/{campaign_id}/resume", responses=_CHANGED)
async def resume_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Decide again."""
    return await _set_status(request, campaign_id, "resume", principal.key_id)


@router.post("/{campaign_id}/archive", responses=_CHANGED)
async def archive_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """End the campaign for good; its log stays."""
    return await _set_status(request, campaign_id, "archive", principal.key_id)
