"""`/livez`, `/readyz` and `/metrics`."""

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from service import reads
from service.access import authorised
from service.dependencies import components_of, engine_of, keyring_of, read
from service.metrics import CONTENT_TYPE
from service.openapi import answers, streams
from service.problems import Forbidden, Unavailable
from service.responses import Json
from service.schemas.admin import Liveness, Readiness

router = APIRouter(tags=["health"])


@router.get("/livez", responses=answers(Liveness))
async def livez() -> Response:
    """Answer while the process runs, whatever the state of the database."""
    return Json({"status": "ok"})


@router.get("/readyz", responses=answers(Readiness, 503))
async def readyz(request: Request) -> Response:
    """Answer if the process can serve requests: all its parts run and the database answers."""
    tasks = components_of(request).tasks
    if not engine_of(request).is_whole or any(task.done() for task in tasks):
        raise Unavailable("a part of the process has ended; restart it", kind="not-ready")
    keyring_of(request)
    await read(request, reads.ping)
    return Json({"status": "ready"})


@router.get(
    "/metrics",
    response_class=Response,
    responses=streams([CONTENT_TYPE.partition(";")[0]], 401, 403, 503),
    openapi_extra={"x-unlimited-key": True},
)
async def show_metrics(request: Request) -> Response:
    """Show Prometheus metrics; a reader key is needed unless they are public."""
    if not components_of(request).settings.metrics_public:
        principal = await authorised(request, "reader")
        if principal.limited:
            raise Forbidden("this key is limited to campaigns, and metrics are of all", kind="key-limited")
    text = await run_in_threadpool(components_of(request).metrics.text)
    return Response(text, media_type=CONTENT_TYPE)
