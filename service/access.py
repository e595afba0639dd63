"""Authentication of requests and the permissions of their keys."""

from typing import Annotated

from fastapi import Depends, Path
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from service.auth import Principal, checked_role
from service.dependencies import keyring_of
from service.logs import request_id
from service.problems import Forbidden, Unauthorized


async def authorised(request: Request, role: str) -> Principal:
    """Return the holder of the request's key; raise a Problem if the key is not valid or lacks the role."""
    keyring, key = keyring_of(request), _key(request)
    certain, principal = keyring.remembered(key)
    if not certain:
        principal = await run_in_threadpool(keyring.lookup, key)
    if principal is None:
        keyring.note_refusal(request_id.get() or "")
    else:
        keyring.count_request(principal)
    return checked_role(principal, role)


def _key(request: Request) -> str:
    credentials = (value.partition(" ") for value in request.headers.getlist("authorization"))
    keys = [key for scheme, _, key in credentials if scheme.lower() == "bearer"]
    for key in keys + request.headers.getlist("x-api-key"):
        if key.strip():
            return key.strip()
    raise Unauthorized("send an API key as `Authorization: Bearer …` or `X-API-Key: …`", kind="key-missing")


async def reader(request: Request) -> Principal:
    """Require a key that may read."""
    return await authorised(request, "reader")


async def admin(request: Request) -> Principal:
    """Require a key that may change campaigns."""
    return await authorised(request, "admin")


Reader = Annotated[Principal, Depends(reader)]
Admin = Annotated[Principal, Depends(admin)]


async def unlimited_admin(principal: Admin) -> Principal:
    """Require an admin key that is not limited to campaigns."""
    if principal.limited:
        raise Forbidden("this key is limited to campaigns", kind="key-limited")
    return principal


async def unlimited_reader(principal: Reader) -> Principal:
    """Require a key that may read and is not limited to campaigns."""
    if principal.limited:
        raise Forbidden("this key is limited to campaigns", kind="key-limited")
    return principal


CampaignId = Annotated[str, Path(description="id of the campaign", examples=["summer-sale"])]


async def readable_campaign(campaign_id: CampaignId, principal: Reader) -> str:
    """Require a campaign that the key may read."""
    principal.check_campaign(campaign_id)
    return campaign_id


async def writable_campaign(campaign_id: CampaignId, principal: Admin) -> str:
    """Require a campaign that the key may change."""
    principal.check_campaign(campaign_id)
    return campaign_id


UnlimitedAdmin = Annotated[Principal, Depends(unlimited_admin)]
UnlimitedReader = Annotated[Principal, Depends(unlimited_reader)]
ReadableCampaign = Annotated[str, Depends(readable_campaign)]
WritableCampaign = Annotated[str, Depends(writable_campaign)]
