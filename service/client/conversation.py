"""Calls as conversations: generators that say what to send or how long to wait, and are told what came of it.

They do no input or output, so that the client with threads and the one with asyncio share every rule and differ only in
how a step is taken. Clock and chance are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from service.client.calls import Call
from service.client.errors import (
    NoAnswerError,
    TimedOutError,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
    refusal,
)
from service.problems import TYPE_PREFIX

# Pauses between attempts double from the first to the last, and chance takes up to half of each.
PAUSE_SECONDS_MIN = 0.005
PAUSE_SECONDS_MAX = 2.0
# An attempt is not begun with less time than this: it would only leave a decision behind that nobody waits for.
ATTEMPT_SECONDS_MIN = 0.02
# Problems of a service that has not begun to do what was asked.
_NOT_BEGUN = frozenset(TYPE_PREFIX + kind for kind in ("not-ready", "queue-full", "campaign-busy"))

Answer = TypeVar("Answer")
Clock = Callable[[], float]
Chance = Callable[[], float]  # uniform in [0, 1)


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Until a moment, whatever is waited for: httpcore asks anew before it connects, sends and receives."""

    clock: Clock
    until: float

    def get(self, phase: str, default: float | None = None) -> float:
        """How long the next phase may take."""
        return max(self.until - self.clock(), 0.001)


@dataclass(frozen=True, slots=True)
class Send:
    """Send this and tell the Reply, or the Failure."""

    method: str
    path: str
    content: bytes | None
    query: Mapping[str, str]
    time_left: TimeLeft


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait; None is until there is something to do."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever it says."""

    status: int
    content: bytes
    replayed: bool = False
    retry_after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer; `sent` unless the request surely never left."""

    detail: str
    sent: bool
    timed_out: bool


Told = Reply | Failure | None  # None after a Wait
Conversation = Generator[Send | Wait, Told, Answer]


def asked(call: Call[Answer], seconds: float, clock: Clock, chance: Chance) -> Conversation[Answer]:
    """Ask until there is an answer or the time is up; what cannot be repeated safely is sent once.

    An attempt may take half of the time left, so that a connection that hangs does not take all of it.
    """
    until = clock() + seconds
    may_have_been_done = False
    attempts = 0
    while True:
        now = clock()
        told = yield sent(call, TimeLeft(clock, now + (slot(until - now) if call.repeatable else until - now)))
        attempts += 1
        try:
            return judged(call, told)
        except NoAnswerError as error:
            may_have_been_done |= error.may_have_been_done
            error.may_have_been_done = may_have_been_done
            wait = max(pause(attempts, chance), error.retry_after_seconds)
            unsafe = may_have_been_done and not call.repeatable
            if unsafe or clock() + wait + ATTEMPT_SECONDS_MIN > until:
                raise
        yield Wait(wait)


def slot(left: float) -> float:
    """Half of the time left, or all of it if the other half would be too short for another attempt.

    >>> slot(0.1), slot(0.03)
    (0.05, 0.03)
    """
    return left / 2 if left / 2 >= ATTEMPT_SECONDS_MIN else left


def pause(attempts: int, chance: Chance) -> float:
    """How long to wait after so many attempts that failed.

    >>> [pause(attempts, lambda: 0.0) for attempts in (1, 2, 3, 20)]
    [0.005, 0.01, 0.02, 2.0]
    """
    longest: float = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2.0 ** (attempts - 1))
    return longest * (1.0 - chance() / 2)


def sent(call: Call[Any], time_left: TimeLeft) -> Send:
    """The step that sends a call."""
    option = orjson.OPT_SERIALIZE_NUMPY
    content = None if call.body is None else orjson.dumps(call.body, default=_plain, option=option)
    return Send(call.method, call.path, content, call.query, time_left)


def _plain(value: Any) -> Any:
    """Mappings and sequences of other kinds as those JSON knows; anything else is a TypeError where it was given."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError


def judged(call: Call[Answer], told: Told) -> Answer:
    """The answer, or the error that what was told amounts to."""
    assert told is not None, "a Send is followed by what came of it"
    if isinstance(told, Failure):
        kind = TimedOutError if told.timed_out else UnreachableError
        raise kind(told.detail, may_have_been_done=told.sent)
    body = _json(told.content)
    if 200 <= told.status < 300:
        try:
            return call.read(body, told.replayed)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnexpectedAnswerError(f"{call.method} {call.path} has an answer of another service") from error
    if told.status >= 500 or told.status == 429:
        said = body if isinstance(body, dict) else {}
        raise UnavailableError(
            f"{told.status}: {said.get('detail', 'no reason was given')}",
            may_have_been_done=told.status != 429 and said.get("type") not in _NOT_BEGUN,
            retry_after_seconds=told.retry_after_seconds,
        )
    refused = refusal(body, told.status)
    if refused is None:
        raise UnexpectedAnswerError(f"{call.method} {call.path} is answered {told.status} by another service")
    raise refused


def _json(content: bytes) -> Any:
    """None if it is no JSON, which no answer of ours is either."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
