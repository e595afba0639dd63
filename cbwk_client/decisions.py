"""Decisions with a fallback: what to play when no answer comes, and which decisions to void then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from cbwk_client import calls
from cbwk_client.answers import Decision
from cbwk_client.calls import Ask
from cbwk_client.errors import NoAnswerError, RefusedError
from cbwk_client.replicas import Replicas
from cbwk_client.steps import Chance, Clock, Steps, call_steps

Answer = TypeVar("Answer")
VoidLater = Callable[[str, Iterable[str]], None]


class NoFallback(Enum):
    """Stands for no fallback, since None is one: play nothing."""

    RAISE = "raise"


RAISE = NoFallback.RAISE
Fallback = str | None | NoFallback


def decide(
    campaign_id: str,
    ask: Ask,
    *,
    explain: bool,
    fallback: Fallback,
    seconds: float,
    clock: Clock,
    chance: Chance,
    replicas: Replicas,
    try_seconds: float,
    void_later: VoidLater,
) -> Steps[Decision]:
    """Return the steps of one decision."""
    body = ask.body()

    def fallback_answer(arm: str | None) -> Decision:
        return Decision.fallback(campaign_id, body["decision_id"], arm)

    call = calls.decide(campaign_id, body, explain=explain)
    steps = call_steps(call, seconds, clock, chance, replicas, try_seconds)
    unclaimed = _unclaimed_ids([ask], [body], fallback)
    return _with_fallback(steps, fallback, fallback_answer, lambda: void_later(campaign_id, unclaimed))


def decide_batch(
    campaign_id: str,
    asks: Sequence[Ask],
    *,
    fallback: Fallback,
    seconds: float,
    clock: Clock,
    chance: Chance,
    replicas: Replicas,
    try_seconds: float,
    void_later: VoidLater,
) -> Steps[list[Decision | RefusedError]]:
    """Return the steps of several decisions in one request."""
    bodies = [ask.body() for ask in asks]

    def fallback_answer(arm: str | None) -> list[Decision | RefusedError]:
        return [Decision.fallback(campaign_id, body["decision_id"], arm) for body in bodies]

    call = calls.decide_batch(campaign_id, bodies)
    steps = call_steps(call, seconds, clock, chance, replicas, try_seconds)
    unclaimed = _unclaimed_ids(asks, bodies, fallback)
    return _with_fallback(steps, fallback, fallback_answer, lambda: void_later(campaign_id, unclaimed))


def _unclaimed_ids(asks: Sequence[Ask], bodies: Sequence[Mapping[str, Any]], fallback: Fallback) -> list[str]:
    """Return the decisions to void if no answer comes: all except those the caller can request again by its own id."""
    paired = zip(asks, bodies, strict=True)
    return [body["decision_id"] for ask, body in paired if fallback is not RAISE or ask.decision_id is None]


def _with_fallback(
    steps: Steps[Answer], fallback: Fallback, fallback_answer: Callable[[str | None], Answer], void: Callable[[], None]
) -> Steps[Answer]:
    try:
        return (yield from steps)
    except NoAnswerError as error:
        if error.may_have_been_done:
            void()
        if isinstance(fallback, NoFallback):
            raise
        return fallback_answer(fallback)
    except GeneratorExit:  # the caller was cancelled or interrupted
        void()
        raise
