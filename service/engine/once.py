"""Commands with an Idempotency-Key: carried out once, and answered again from the stored answer."""

from __future__ import annotations

import json
from collections.abc import Callable

from sqlalchemy import Connection

from service.engine.commands import Answer, Once
from service.problems import Conflict, Problem
from service.store import idempotency


def answered_once(
    connection: Connection, once: Once, now: int, carry_out: Callable[[], Answer | Problem | None]
) -> Answer | Problem | None:
    """Returns the answer of the command, or the stored one if the key has been used. A refusal is not stored."""
    actor, key = once.command.actor, once.key
    earlier = idempotency.claim(connection, actor, key, once.digest, now)
    if earlier is not None:
        if earlier["digest"] != once.digest:
            return Conflict("this Idempotency-Key was used with another request", kind="idempotency-key-reused")
        return Answer(json.loads(earlier["body"]), replayed=True, status=earlier["status"])
    answer = carry_out()
    if isinstance(answer, Answer):
        idempotency.store(connection, actor, key, answer.status, answer.body)
    else:
        idempotency.release(connection, actor, key)
    return answer
