"""`/campaigns`: create, show and change them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from service import reads
from service.access import Admin, ReadableCampaign, Reader, UnlimitedAdmin, WritableCampaign
from service.dependencies import PageQuery, parsed, show, submitted
from service.engine.administer import check_creation
from service.engine.commands import CreateCampaign, PatchCampaign, SetStatus
from service.openapi import answers, takes
from service.schemas.admin import CampaignChanged
from service.schemas.base import Status
from service.schemas.campaign import CampaignConfig, CampaignPage, CampaignPatch, CampaignView

router = APIRouter(prefix="/campaigns", tags=["campaigns"])


@router.post(
    "",
    status_code=201,
    responses=answers(CampaignChanged, 400, 401, 403, 409, 413, 422, 503, status=201),
    openapi_extra=takes(CampaignConfig),
)
async def create_campaign(request: Request, principal: UnlimitedAdmin) -> Response:
    """Create a campaign and grant its budgets."""
    config = (await parsed(request, CampaignConfig)).as_json()
    check_creation(config)
    return await submitted(request, CreateCampaign(config, principal.key_id))


@router.get("", responses=answers(CampaignPage, 401, 403, 422, 503))
async def list_campaigns(
    request: Request,
    principal: Reader,
    page: PageQuery,
    status: Annotated[Status | None, Query(description="only campaigns with this status")] = None,
) -> Response:
    """List the campaigns that the key may see, in the order of their creation."""
    return await show(request, reads.campaigns, visible=principal.campaigns, status=status, **page)


@router.get("/{campaign_id}", responses=answers(CampaignView, 401, 403, 404, 503))
async def show_campaign(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Show a campaign: configuration and its version, status, round, accounts, prices."""
    return await show(request, reads.campaign, campaign_id)


@router.patch(
    "/{campaign_id}",
    responses=answers(CampaignChanged, 400, 401, 403, 404, 409, 413, 422, 503),
    openapi_extra=takes(CampaignPatch),
)
async def change_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Change budgets, horizon, arms or feedback terms; the campaign keeps what it has learnt."""
    body = await parsed(request, CampaignPatch)
    return await submitted(request, PatchCampaign(campaign_id, body.as_json(), principal.key_id))


_CHANGED = answers(CampaignChanged, 401, 403, 404, 409, 503)


@router.post("/{campaign_id}/pause", responses=_CHANGED)
async def pause_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Answer every request with the null arm until the campaign is resumed."""
    return await submitted(request, SetStatus(campaign_id, "pause", principal.key_id))


@router.post("/{campaign_id}/resume", responses=_CHANGED)
async def resume_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Decide again after a pause."""
    return await submitted(request, SetStatus(campaign_id, "resume", principal.key_id))


@router.post("/{campaign_id}/archive", responses=_CHANGED)
async def archive_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """End the campaign for good; its log is kept."""
    return await submitted(request, SetStatus(campaign_id, "archive", principal.key_id))
