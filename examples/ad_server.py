"""A small OpenRTB bidder on FastAPI: cbwk chooses what to bid with, and gets the outcome of each bid.

    CBWK_URL=http://127.0.0.1:8000 CBWK_API_KEY=… .venv/bin/uvicorn --app-dir examples ad_server:app --port 9000

    POST /bid       an OpenRTB bid request: a bid, or 204 for none
    GET  /billing   the exchange bills an impression (burl): reports its cost
    GET  /loss      the auction was lost (lurl): releases the hold
    GET  /click     the visitor clicked: reports the reward and redirects to the landing page

The key needs the role admin at the first start, which creates the campaign, and decider afterwards.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import NAMESPACE_URL, uuid5

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from cbwk_client import AsyncClient, CampaignExistsError, ForbiddenError, Terms

CAMPAIGN = "rtb-example"
LANDING_PAGES = {"video": "https://shop.example/video", "banner": "https://shop.example/banner"}
# Some of OpenRTB's numbers for devices.
DEVICES = {1: "phone", 2: "desktop", 3: "tv", 4: "phone", 5: "tablet"}
CONFIG: dict[str, Any] = {
    "id": CAMPAIGN,
    "horizon": 1_000_000,
    "arms": [{"id": "video"}, {"id": "banner", "max_cost": {"usd": 0.004}}],
    "resources": [
        {"id": "usd", "budget": 2_500, "max_cost": 0.02},
        {"id": "impressions", "budget": 500_000, "max_cost": 1},
    ],
    "context": {
        "features": [
            {"name": "device", "type": "category", "values": ["phone", "tablet", "desktop", "tv"], "default": "phone"},
            {"name": "hour", "type": "number", "min": 0, "max": 23},
            {"name": "site", "type": "hash", "buckets": 16, "default": "unknown"},
        ]
    },
    # A click comes within half an hour; many bids end without a notice.
    "feedback": {"ttl_seconds": 1_800, "missing_reward": 0, "missing_cost": "none"},
}

DecisionId = Annotated[str, Query(alias="d")]
router = APIRouter()


def create_app(url: str, key: str, terms: Terms | None = None) -> FastAPI:
    """Returns the bidder for a service at this address; `terms` has its timeouts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # The end of this block delivers pending reports.
        async with AsyncClient(url, key, terms=terms or Terms()) as client:
            # An earlier start, or an administrator, created it.
            with suppress(CampaignExistsError, ForbiddenError):
                await client.create_campaign(CONFIG)
            app.state.cbwk = client
            yield

    app = FastAPI(title="An OpenRTB bidder", lifespan=lifespan)
    app.include_router(router)
    return app


@router.post("/bid")
async def bid(request: Request) -> Response:
    """Bids for the first impression of a request."""
    bid_request = await request.json()
    impression = bid_request["imp"][0]
    # The exchange may send a request twice: the same ids give the same decision.
    decision_id = str(uuid5(NAMESPACE_URL, f"{bid_request['id']}/{impression['id']}"))
    # Without an answer in time there is no bid, so that nothing is spent uncounted.
    decision = await _cbwk(request).decide(CAMPAIGN, context_of(bid_request), decision_id=decision_id, fallback=None)
    if decision.arm is None:
        return Response(status_code=204)
    notice = f"{request.base_url}{{}}?d={decision_id}"
    offered = {
        "id": decision_id,
        "impid": impression["id"],
        # Per thousand impressions. The bid equals the hold, so no impression can cost more than the hold.
        "price": 1_000 * decision.hold["usd"],
        "adid": decision.arm,
        "burl": notice.format("billing") + "&price=${AUCTION_PRICE}",
        "lurl": notice.format("loss"),
        "adm": f'<a href="{notice.format("click")}&amp;arm={decision.arm}">{decision.arm}</a>',
    }
    return JSONResponse({"id": bid_request["id"], "cur": "USD", "seatbid": [{"bid": [offered]}]})


@router.get("/billing", status_code=204)
async def billing(request: Request, decision_id: DecisionId, price: Annotated[float, Query(ge=0)]) -> None:
    """Books an impression at its price per thousand."""
    _cbwk(request).report(CAMPAIGN, decision_id, costs={"usd": price / 1_000, "impressions": 1})


@router.get("/loss", status_code=204)
async def loss(request: Request, decision_id: DecisionId) -> None:
    """Releases the hold of a lost auction."""
    _cbwk(request).report(CAMPAIGN, decision_id, void=True)


@router.get("/click")
async def click(request: Request, decision_id: DecisionId, arm: str) -> Response:
    """Reports a click. Without a click no call is needed: the decision expires with reward 0."""
    if arm not in LANDING_PAGES:
        return Response(status_code=404)
    _cbwk(request).report(CAMPAIGN, decision_id, reward=1)
    return RedirectResponse(LANDING_PAGES[arm])


def context_of(bid_request: dict[str, Any]) -> dict[str, Any]:
    """Returns the context of a bid request."""
    context: dict[str, Any] = {"hour": datetime.now(UTC).hour}
    device = DEVICES.get(bid_request.get("device", {}).get("devicetype"))
    if device is not None:
        context["device"] = device
    if "domain" in bid_request.get("site", {}):
        context["site"] = bid_request["site"]["domain"]
    return context


def _cbwk(request: Request) -> AsyncClient:
    client: AsyncClient = request.app.state.cbwk
    return client


def __getattr__(name: str) -> FastAPI:
    """Creates `app` when uvicorn imports it, so that importing this module needs no environment."""
    if name != "app":
        raise AttributeError(name)
    return create_app(os.environ["CBWK_URL"], os.environ["CBWK_API_KEY"])
