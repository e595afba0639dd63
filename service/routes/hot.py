"""The hot endpoints, and the short way to them, past FastAPI's routing and middleware, which cost more than they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from service.answers import database_problem, problem_answer
from service.openapi import HotRoute
from service.problems import Problem
from service.routes.decide import decide, decide_batch
from service.routes.feedback import feedback, feedback_batch
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

HOT_ROUTES = (
    HotRoute("/decide", decide, "decide", DecideRequest, Decision),
    HotRoute("/decide/batch", decide_batch, "decide", DecideBatch, Decisions),
    HotRoute("/feedback", feedback, "feedback", FeedbackRequest, FeedbackResult),
    HotRoute("/feedback/batch", feedback_batch, "feedback", FeedbackBatch, FeedbackResults),
)


class ShortWay:
    """Serves POST requests to the hot endpoints as FastAPI would, problems included."""

    def __init__(self, app: Any, routes: Sequence[HotRoute]) -> None:
        self._app = app
        self._endpoints: Mapping[str, Any] = {route.path: route.endpoint for route in routes}

    def takes(self, scope: Scope) -> bool:
        """Whether this is the way for the request."""
        return scope["type"] == "http" and scope["path"] in self._endpoints and scope["method"] == "POST"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that is for here."""
        endpoint = self._endpoints[scope["path"]]
        scope["app"], scope["endpoint"] = self._app, endpoint
        try:
            response = await endpoint(Request(scope, receive))
        except Problem as problem:
            response = problem_answer(problem)
        except SQLAlchemyError as error:
            response = problem_answer(database_problem(error))
        await response(scope, receive, send)
