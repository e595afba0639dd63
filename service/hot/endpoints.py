"""The hot endpoints. Here is the long way to them, through FastAPI; `service.hot.exchange` is the short one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter

from starlette.requests import Request
from starlette.responses import Response

from service.hot.decide import decide, decide_batch
from service.hot.feedback import feedback, feedback_batch
from service.openapi import HotRoute
from service.routes.access import authorised
from service.routes.dependencies import metrics_of, submit_together
from service.schemas.deciding import (
    DecideBatch,
    DecideRequest,
    Decision,
    Decisions,
    FeedbackBatch,
    FeedbackRequest,
    FeedbackResult,
    FeedbackResults,
)

ROLE = "decider"
HOT_ROUTES = (
    HotRoute("/decide", decide, "decide", DecideRequest, Decision, timed=True),
    HotRoute("/decide/batch", decide_batch, "decide", DecideBatch, Decisions),
    HotRoute("/feedback", feedback, "feedback", FeedbackRequest, FeedbackResult),
    HotRoute("/feedback/batch", feedback_batch, "feedback", FeedbackBatch, FeedbackResults),
)


def endpoint(route: HotRoute) -> Callable[[Request], Awaitable[Response]]:
    """A hot endpoint as Starlette takes it."""

    async def answer(request: Request) -> Response:
        started = perf_counter()
        principal = await authorised(request, ROLE)
        asked = route.reads(principal, await request.body())
        response: Response = asked.answered(await submit_together(request, asked.commands) if asked.commands else [])
        if route.timed:
            metrics_of(request).decide_seconds.observe(perf_counter() - started)
        return response

    return answer
