"""The hot endpoints: from bytes to commands, and from the engine's answers to a response.

`endpoint` serves them through FastAPI; `service.hot.exchange` serves most requests without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from msgspec.json import Decoder
from starlette.requests import Request
from starlette.responses import Response

from service.access import authorised
from service.auth import Principal
from service.dependencies import components_of, submit_together
from service.engine.commands import Answer, Command, Feedback
from service.hot.bodies import DecideBatch, DecideItem, DecideRequest, FeedbackBatch, FeedbackRequest, read
from service.openapi import HotRoute
from service.problems import BadRequest, Problem
from service.responses import Json
from service.schemas.deciding import Decision, Decisions, FeedbackResult, FeedbackResults

ROLE = "decider"
CAMPAIGN_HEADER = "x-campaign-id"  # by which a balancer chooses a replica; given twice, it names no campaign

_DECIDE, _DECIDE_BATCH = Decoder(DecideRequest), Decoder(DecideBatch)
_FEEDBACK, _FEEDBACK_BATCH = Decoder(FeedbackRequest), Decoder(FeedbackBatch)


class Submission(NamedTuple):
    """The commands of one request, run in one transaction, and what makes one answer of their answers or raises."""

    commands: Sequence[Command]
    respond: Callable[[Sequence[Answer | Problem]], Answer]


def decide(principal: Principal, body: bytes, hint: str | None = None) -> Submission:
    """Which arm for this request?"""
    request = read(body, _DECIDE)
    _check_hint(hint, request.campaign_id)
    principal.check_campaign(request.campaign_id)
    return Submission([request.command(request.campaign_id, explain=request.explain)], _single)


def decide_batch(principal: Principal, body: bytes, hint: str | None = None) -> Submission:
    """Which arm for each of these requests?"""
    batch = read(body, _DECIDE_BATCH)
    _check_hint(hint, batch.campaign_id)
    principal.check_campaign(batch.campaign_id)
    items: Sequence[DecideItem | Problem] = batch.items
    commands = [item if isinstance(item, Problem) else item.command(batch.campaign_id) for item in items]
    return _batch(commands, "decisions", of_whole=("campaign-not-found", "rules-unknown", "too-much-work"))


def feedback(principal: Principal, body: bytes, hint: str | None = None) -> Submission:
    """What became of a decision."""
    report = read(body, _FEEDBACK)
    _check_hint(hint, report.campaign_id)
    principal.check_campaign(report.campaign_id)
    return Submission([report.command(report.campaign_id)], _single)


def feedback_batch(principal: Principal, body: bytes, hint: str | None = None) -> Submission:
    """What became of several decisions."""
    commands = read(body, _FEEDBACK_BATCH).commands()
    if hint is not None:
        for command in commands:
            if not isinstance(command, Problem):
                _check_hint(hint, command.campaign_id)
    if principal.limited:
        commands = [_if_seen(principal, command) for command in commands]
    return _batch(commands, "results")


def _check_hint(hint: str | None, campaign_id: str) -> None:
    """Raise BadRequest if the header that routes the request names another campaign than the body."""
    if hint is not None and hint != campaign_id:
        raise BadRequest("X-Campaign-Id names another campaign than the body", kind="campaign-differs")


def _if_seen(principal: Principal, command: Feedback | Problem) -> Feedback | Problem:
    try:
        if not isinstance(command, Problem):
            principal.check_campaign(command.campaign_id)
    except Problem as problem:
        return problem
    return command


def _single(answers: Sequence[Answer | Problem]) -> Answer:
    (answer,) = answers
    if isinstance(answer, Problem):
        raise answer
    return answer


def _batch(commands: Sequence[Command | Problem], name: str, *, of_whole: Collection[str] = ()) -> Submission:
    """Several commands, answered in order; a problem stands in its place as `error`.

    A problem of a kind in `of_whole` answers the whole batch. The batch is a repeat if all its commands are.
    """
    taken = [command for command in commands if not isinstance(command, Problem)]

    def respond(answers: Sequence[Answer | Problem]) -> Answer:
        results = answers
        if len(taken) < len(commands):
            given = iter(answers)
            results = [command if isinstance(command, Problem) else next(given) for command in commands]
        bodies: list[dict[str, Any]] = []
        replayed = bool(results)
        for at, result in enumerate(results):
            if isinstance(result, Problem):
                if result.kind in of_whole:
                    raise result
                bodies.append({"error": result.document() if result is commands[at] else _of_item(result, at)})
                replayed = False
            else:
                bodies.append(result.body)
                replayed = replayed and result.replayed
        return Answer({name: bodies}, replayed)

    return Submission(taken, respond)


def _of_item(problem: Problem, at: int) -> dict[str, Any]:
    """The document of a problem that the engine found in an item: its fields with their place in the batch."""
    document = problem.document()
    errors = [
        {
            **error,
            "field": f"items.{at}" + ("" if error["field"] == "body" else f".{error['field']}"),
            "pointer": f"/items/{at}{error['pointer']}",
        }
        for error in document.get("errors", ())
    ]
    return {**document, "errors": errors} if errors else document


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
        hints = request.headers.getlist(CAMPAIGN_HEADER)
        submission: Submission = route.parse(principal, await request.body(), ", ".join(hints) if hints else None)
        commands = submission.commands
        answered = submission.respond(await submit_together(request, commands) if commands else [])
        response = Json(answered.body, answered.status, replayed=answered.replayed)
        if route.timed:
            components_of(request).metrics.decide_seconds.observe(perf_counter() - started)
        return response

    return answer
