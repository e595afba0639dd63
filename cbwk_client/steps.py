"""Calls as generators that yield steps: what to send, or how long to wait. Each receives the result of its last step.

The generators do no input or output, so the client with threads and the client with asyncio share every rule and
differ only in how they carry out a step. The clock and the random numbers are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cbwk_client.calls import Call
from cbwk_client.encoding import decode, encode
from cbwk_client.errors import (
    TYPE_PREFIX,
    NoAnswerError,
    TimedOutError,
    TooManyRequestsError,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
    refusal,
)
from cbwk_client.replicas import Replicas

# Pauses between attempts double from the first to the last; a random part of up to half is taken off each.
PAUSE_SECONDS_MIN = 0.005
PAUSE_SECONDS_MAX = 2.0
# An attempt with less time than this would mostly leave a decision that the caller no longer waits for.
ATTEMPT_SECONDS_MIN = 0.02
# Problems after which the service has certainly done nothing.
_NOT_STARTED = frozenset(TYPE_PREFIX + kind for kind in ("not-ready", "queue-full", "campaign-busy"))
_NOT_READY = (TYPE_PREFIX + "not-ready").encode()

Answer = TypeVar("Answer")
Clock = Callable[[], float]
Chance = Callable[[], float]  # uniform in [0, 1)


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """The time until a deadline; httpcore reads it again before it connects, sends and receives."""

    clock: Clock
    until: float

    def get(self, phase: str, default: float | None = None) -> float:
        """Return how long the next phase may take."""
        return max(self.until - self.clock(), 0.001)


@dataclass(frozen=True, slots=True)
class Send:
    """Send this request; the result is a Reply or a Failure."""

    url: str  # of the replica
    campaign_id: str | None
    method: str
    path: str
    content: bytes | None
    query: Mapping[str, str]
    time_left: TimeLeft


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait this long; None waits until there is something to deliver."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete HTTP response."""

    status: int
    content: bytes
    replayed: bool = False
    retry_after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """No response; `sent` is false only if the request certainly was not sent."""

    detail: str
    sent: bool
    timed_out: bool


Result = Reply | Failure | None  # None after a Wait
Steps = Generator[Send | Wait, Result, Answer]


def call_steps(
    call: Call[Answer], seconds: float, clock: Clock, chance: Chance, replicas: Replicas, try_seconds: float = math.inf
) -> Steps[Answer]:
    """Repeat a call until it has an answer or the time is over; a call that is not repeatable is sent once.

    An attempt may take half of the time left, so that a hanging connection leaves time for another attempt, and at most
    `try_seconds` where there is another replica to ask. The replicas are asked one after the other, and then again
    after a pause.
    """
    until = clock() + seconds
    may_have_been_done = False
    urls = replicas.of(call.campaign_id)
    asked: list[str] = []
    rounds = 0
    while True:
        now = clock()
        left = until - now
        if call.repeatable:
            left = min(attempt_seconds(left), try_seconds if len(urls) > 1 else left)
        asked.append(replicas.choose(urls, asked))
        result = yield send_step(call, TimeLeft(clock, now + left), asked[-1])
        replicas.note(asked[-1], now, is_well=is_well(result))
        try:
            return answer_of(call, result)
        except NoAnswerError as error:
            may_have_been_done |= error.may_have_been_done
            error.may_have_been_done = may_have_been_done
            wait = 0.0
            if len(asked) >= len(urls) or isinstance(error, TooManyRequestsError):
                rounds += 1
                asked.clear()
                wait = max(pause_seconds(rounds, chance), error.retry_after_seconds)
            unsafe = may_have_been_done and not call.repeatable
            if unsafe or clock() + wait + ATTEMPT_SECONDS_MIN > until:
                raise
        if wait:
            yield Wait(wait)


def attempt_seconds(left: float) -> float:
    """Return half of the time left, or all of it if the other half would be too short for another attempt.

    >>> attempt_seconds(0.1), attempt_seconds(0.03)
    (0.05, 0.03)
    """
    return left / 2 if left / 2 >= ATTEMPT_SECONDS_MIN else left


def pause_seconds(attempts: int, chance: Chance) -> float:
    """Return how long to wait after this number of failed attempts.

    >>> [pause_seconds(attempts, lambda: 0.0) for attempts in (1, 2, 3, 20)]
    [0.005, 0.01, 0.02, 2.0]
    """
    longest: float = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2.0 ** (attempts - 1))
    return longest * (1.0 - chance() / 2)


def send_step(call: Call[Any], time_left: TimeLeft, url: str) -> Send:
    """Return the step that sends a call to a replica."""
    content = None if call.body is None else encode(call.body)
    return Send(url, call.campaign_id, call.method, call.path, content, call.query, time_left)


def is_well(result: Result) -> bool:
    """Return whether a result shows a replica that serves; one that refuses a request does."""
    if not isinstance(result, Reply):
        return False
    return result.status < 500 or (TYPE_PREFIX.encode() in result.content and _NOT_READY not in result.content)


def answer_of(call: Call[Answer], result: Result) -> Answer:
    """Return the answer that a result contains, or raise the error that it stands for."""
    assert result is not None, "a Send has a result"
    if isinstance(result, Failure):
        failure = TimedOutError if result.timed_out else UnreachableError
        raise failure(result.detail, may_have_been_done=result.sent)
    body = decode(result.content)
    if 200 <= result.status < 300:
        try:
            return call.read(body, result.replayed)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnexpectedAnswerError(f"{call.method} {call.path} has an answer of another service") from error
    if result.status >= 500 or result.status == 429:
        problem = body if isinstance(body, dict) else {}
        kind = TooManyRequestsError if result.status == 429 else UnavailableError
        raise kind(
            f"{result.status}: {problem.get('detail', 'no reason was given')}",
            may_have_been_done=result.status != 429 and problem.get("type") not in _NOT_STARTED,
            retry_after_seconds=result.retry_after_seconds,
        )
    refused = refusal(body, result.status)
    if refused is None:
        raise UnexpectedAnswerError(f"{call.method} {call.path} is answered {result.status} by another service")
    raise refused
