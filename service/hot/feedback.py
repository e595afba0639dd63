"""`POST /feedback` and `/feedback/batch`: hot, so from bytes to commands, and from answers to bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from service.auth import Principal
from service.engine.commands import Feedback
from service.hot.bodies import UsualFeedback, usual_feedback, usual_feedback_batch
from service.hot.request import Asked, one, several
from service.problems import Problem
from service.responses import item_problem, parsed, parsed_if_sound
from service.routes.access import see
from service.schemas.deciding import FeedbackBatch, FeedbackRequest, SoundFeedbackBatch


def feedback(principal: Principal, body: bytes) -> Asked:
    """What became of a decision."""
    report = usual_feedback(body) or parsed(body, FeedbackRequest)
    see(principal, report.campaign_id)
    return one(_command(report))


def feedback_batch(principal: Principal, body: bytes) -> Asked:
    """What became of several decisions."""
    return several(_batch(principal, body), "results")


def _batch(principal: Principal, body: bytes) -> Sequence[Feedback | Problem]:
    usual = usual_feedback_batch(body)
    if usual is not None:
        if principal.limited:
            return [_seen(principal, report) for report in usual]
        return [_command(report) for report in usual]
    sound = parsed_if_sound(body, SoundFeedbackBatch)
    if sound is not None:
        return [_seen(principal, report) for report in sound.items]
    request = parsed(body, FeedbackBatch)
    return [_item(principal, item, f"items.{index}") for index, item in enumerate(request.items)]


def _item(principal: Principal, item: Any, place: str) -> Feedback | Problem:
    try:
        return _seen(principal, FeedbackRequest.model_validate(item))
    except ValidationError as error:
        return item_problem(error, item, place)


def _seen(principal: Principal, report: FeedbackRequest | UsualFeedback) -> Feedback | Problem:
    try:
        see(principal, report.campaign_id)
    except Problem as problem:
        return problem
    return _command(report)


def _command(report: FeedbackRequest | UsualFeedback) -> Feedback:
    return Feedback(report.campaign_id, report.decision_id, report.reward, report.costs, report.void)
