"""Decisions with a way out: what is played when no answer comes, and what becomes of one that came too late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from service.client import calls
from service.client.answers import Decision
from service.client.calls import Ask, Call
from service.client.conversation import Chance, Clock, Conversation, asked
from service.client.errors import NoAnswerError, RefusedError

Answer = TypeVar("Answer")
VoidLater = Callable[[str, Iterable[str]], None]


class NoFallback(Enum):
    """Stands for no fallback, since None is one: play nothing."""

    RAISE = "raise"


RAISE = NoFallback.RAISE
Fallback = str | None | NoFallback


def decided(
    campaign_id: str,
    ask: Ask,
    *,
    explain: bool,
    fallback: Fallback,
    seconds: float,
    clock: Clock,
    chance: Chance,
    void_later: VoidLater,
) -> Conversation[Decision]:
    """One decision."""
    body = ask.body()

    def instead(arm: str | None) -> Decision:
        return Decision.fallback(campaign_id, body["decision_id"], arm)

    call = calls.decide(campaign_id, body, explain=explain)
    late = _unclaimed([ask], [body], fallback)
    return _answered(asked(call, seconds, clock, chance), fallback, instead, lambda: void_later(campaign_id, late))


def decided_together(
    campaign_id: str,
    asks: Sequence[Ask],
    *,
    fallback: Fallback,
    seconds: float,
    clock: Clock,
    chance: Chance,
    void_later: VoidLater,
) -> Conversation[list[Decision | RefusedError]]:
    """Several decisions in one request."""
    bodies = [ask.body() for ask in asks]

    def instead(arm: str | None) -> list[Decision | RefusedError]:
        return [Decision.fallback(campaign_id, body["decision_id"], arm) for body in bodies]

    call: Call[list[Decision | RefusedError]] = calls.decide_batch(campaign_id, bodies)
    late = _unclaimed(asks, bodies, fallback)
    return _answered(asked(call, seconds, clock, chance), fallback, instead, lambda: void_later(campaign_id, late))


def _unclaimed(asks: Sequence[Ask], bodies: Sequence[Mapping[str, Any]], fallback: Fallback) -> list[str]:
    """Decisions that nobody will claim if no answer comes: all but those whose caller may ask again with its own id."""
    paired = zip(asks, bodies, strict=True)
    return [body["decision_id"] for ask, body in paired if fallback is not RAISE or ask.decision_id is None]


def _answered(
    asking: Conversation[Answer],
    fallback: Fallback,
    instead: Callable[[str | None], Answer],
    give_up: Callable[[], None],
) -> Conversation[Answer]:
    try:
        return (yield from asking)
    except NoAnswerError as error:
        if error.may_have_been_done:
            give_up()
        if isinstance(fallback, NoFallback):
            raise
        return instead(fallback)
    except GeneratorExit:  # the caller was cancelled or interrupted in the middle
        give_up()
        raise
