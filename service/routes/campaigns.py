"""`/campaigns`: create, show and change them."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from service import reads
from service.access import Admin, CampaignId, ReadableCampaign, Reader, UnlimitedAdmin, WritableCampaign
from service.dependencies import IdempotencyKey, PageQuery, show, submitted, submitted_once
from service.engine.administer import check_creation
from service.engine.commands import CreateCampaign, PatchCampaign, SetStatus
from service.ids import is_id
from service.openapi import documented, replayable
from service.problems import Invalid, NotFound
from service.responses import parsed
from service.schemas.admin import CampaignChanged, CampaignCreated
from service.schemas.body import Status
from service.schemas.campaign import CampaignConfig, CampaignPage, CampaignPatch, CampaignView
from service.words import error_at, no_such

router = APIRouter(prefix="/campaigns", tags=["campaigns"])


@router.post("", **replayable(documented(CampaignCreated, 409, body=CampaignConfig, status=201)))
async def create_campaign(request: Request, principal: UnlimitedAdmin, key: IdempotencyKey) -> Response:
    """Create a campaign and grant its budgets."""
    config = parsed(await request.body(), CampaignConfig).as_json()
    check_creation(config)
    return await submitted_once(request, CreateCampaign(config, principal.key_id), key)


@router.put("/{campaign_id}", **documented(CampaignCreated, 404, 409, body=CampaignConfig, status=(201, 200)))
async def ensure_campaign(request: Request, campaign_id: CampaignId, principal: UnlimitedAdmin) -> Response:
    """Create a campaign, or answer 200 if it exists and its present configuration is this one."""
    if not is_id(campaign_id):
        raise NotFound(f"{no_such('campaign', campaign_id)}, and none can have this id", kind="campaign-not-found")
    body = parsed(await request.body(), CampaignConfig)
    config = {**body.as_json(), "id": campaign_id}
    if "id" in body.model_fields_set and body.id != campaign_id:
        errors = [error_at("id", "must be the id in the path, or left out")]
        raise Invalid("the body names another campaign than the path", errors=errors)
    check_creation(config)
    chosen = () if "seed" in body.model_fields_set else ("seed",)
    return await submitted(request, CreateCampaign(config, principal.key_id, chosen))


@router.get("", **documented(CampaignPage, 422))
async def list_campaigns(
    request: Request,
    principal: Reader,
    page: PageQuery,
    status: Annotated[Status | None, Query(description="only campaigns with this status")] = None,
) -> Response:
    """List the campaigns that the key may see, in the order of their creation."""
    return await show(request, reads.campaigns, visible=principal.campaigns, status=status, **page)


@router.get("/{campaign_id}", **documented(CampaignView, 404))
async def show_campaign(request: Request, campaign_id: ReadableCampaign) -> Response:
    """Show a campaign: configuration and its version, status, round, accounts, prices."""
    return await show(request, reads.campaign, campaign_id)


@router.patch("/{campaign_id}", **documented(CampaignChanged, 404, 409, body=CampaignPatch))
async def change_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Change budgets, start, end, arms or feedback terms; the campaign keeps what it has learnt."""
    body = parsed(await request.body(), CampaignPatch)
    return await submitted(request, PatchCampaign(campaign_id, body.as_json(), principal.key_id))


_CHANGED = documented(CampaignChanged, 404, 409)


@router.post("/{campaign_id}/pause", **_CHANGED)
async def pause_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Answer every request with the null arm until the campaign is resumed."""
    return await submitted(request, SetStatus(campaign_id, "pause", principal.key_id))


@router.post("/{campaign_id}/resume", **_CHANGED)
async def resume_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """Decide again after a pause."""
    return await submitted(request, SetStatus(campaign_id, "resume", principal.key_id))


@router.post("/{campaign_id}/archive", **_CHANGED)
async def archive_campaign(request: Request, campaign_id: WritableCampaign, principal: Admin) -> Response:
    """End the campaign for good; its log is kept."""
    return await submitted(request, SetStatus(campaign_id, "archive", principal.key_id))
