"""`/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from prometheus_client.core import Metric
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from service import reads
from service.metrics import CONTENT_TYPE, gauge
from service.money import ONE
from service.openapi import answers, streams
from service.problems import Forbidden
from service.responses import json_answer
from service.routes.access import authorised
from service.routes.dependencies import engine_of, keyring_of, metrics_of, read
from service.schemas.admin import Liveness, Readiness
from service.store.database import Database

router = APIRouter(tags=["health"])


@router.get("/livez", responses=answers(Liveness))
async def livez() -> Response:
    """Answer while the process runs, whatever the state of the database."""
    return json_answer({"status": "ok"})


@router.get("/readyz", responses=answers(Readiness, 503))
async def readyz(request: Request) -> Response:
    """Answer if the process can serve requests: the engine has started and the database answers."""
    engine_of(request)
    keyring_of(request)
    await read(request, reads.ping)
    return json_answer({"status": "ready"})


@router.get("/metrics", response_class=Response, responses=streams([CONTENT_TYPE.partition(";")[0]], 401, 403, 503))
async def show_metrics(request: Request) -> Response:
    """Show Prometheus metrics; a reader key is needed unless they are public."""
    if not request.app.state.settings.metrics_public:
        principal = await authorised(request, "reader")
        if principal.limited:
            raise Forbidden("this key is limited to campaigns, and metrics are of all", kind="key-limited")
    text = await run_in_threadpool(metrics_of(request).text)
    return Response(text, media_type=CONTENT_TYPE)


def gauges(database: Database | None) -> Iterator[Metric]:
    """Yield accounts, open holds and prices of all campaigns that are not archived."""
    found = reads.Gauges([], {}, {})
    if database is not None:
        with database.read() as connection:
            found = reads.gauges(connection)
    by_resource = ("campaign", "resource")
    for part in ("granted", "held", "spent", "overrun"):
        amounts = [
            ((account.campaign_id, account.resource), getattr(account, part) / ONE) for account in found.accounts
        ]
        yield gauge(f"cbwk_budget_{part}_units", f"Budget {part}, in units.", by_resource, amounts)
    holds = [((campaign,), count) for campaign, count in found.open_holds.items()]
    yield gauge("cbwk_open_holds", "Decisions waiting for feedback.", ("campaign",), holds)
    text = "Price of a unit at the last decision, in reward."
    yield gauge("cbwk_price", text, by_resource, found.prices.items())
