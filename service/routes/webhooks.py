"""`/admin/webhooks`: addresses that get messages about budgets, models, evaluations and ends."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from service import reads
from service.access import UnlimitedAdmin
from service.dependencies import PageQuery, components_of, show, submitted
from service.engine.commands import CreateWebhook, DeleteWebhook
from service.openapi import documented
from service.problems import Invalid
from service.responses import parsed
from service.schemas import webhooks as bodies
from service.webhooks.addresses import Refused, target_of
from service.words import error_at

router = APIRouter(prefix="/admin/webhooks", tags=["admin"])

WebhookId = Annotated[str, Path(description="id of the webhook", examples=["webhook-3f9a"])]


@router.post("", **documented(bodies.WebhookMade, 404, 409, body=bodies.WebhookRequest, status=201))
async def create_webhook(request: Request, principal: UnlimitedAdmin) -> Response:
    """Send messages to an address from now on; only this response contains the secret that signs them."""
    body = parsed(await request.body(), bodies.WebhookRequest)
    try:
        await target_of(body.url, private=components_of(request).settings.webhook_private)
    except Refused as refused:
        errors = [error_at("url", str(refused))]
        raise Invalid("no message could go to this address", kind="url-refused", errors=errors) from None
    campaigns = None if body.campaigns is None else tuple(body.campaigns)
    command = CreateWebhook(body.url, tuple(body.events), tuple(body.thresholds), campaigns, principal.key_id)
    return await submitted(request, command)


@router.get("", **documented(bodies.WebhookPage, 422))
async def list_webhooks(request: Request, principal: UnlimitedAdmin, page: PageQuery) -> Response:
    """List webhooks without their secrets."""
    return await show(request, reads.webhooks, **page)


@router.delete("/{webhook_id}", **documented(bodies.WebhookDeleted, 404))
async def delete_webhook(request: Request, webhook_id: WebhookId, principal: UnlimitedAdmin) -> Response:
    """Delete a webhook with its messages, also those that wait."""
    return await submitted(request, DeleteWebhook(webhook_id, principal.key_id))


@router.get("/{webhook_id}/deliveries", **documented(bodies.DeliveryPage, 404, 422))
async def list_deliveries(
    request: Request, webhook_id: WebhookId, principal: UnlimitedAdmin, page: PageQuery
) -> Response:
    """List the messages of a webhook and what became of them, newest first."""
    return await show(request, reads.deliveries, webhook_id, **page)
