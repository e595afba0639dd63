"""Every request and answer of the clients, with times: the service as its clients see it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MICROS = 1_000_000


@dataclass(slots=True)
class Call:
    """One request and its answer; without an answer the request may or may not have been carried out."""

    path: str
    body: dict[str, Any]
    sent_at: float
    answered_at: float | None = None
    status: int | None = None
    answer: bytes | None = None
    replayed: bool = False
    port: int = 0

    @property
    def is_definite(self) -> bool:
        """Whether the answer is final: the request was carried out or cannot be."""
        return self.status is not None and self.status < 500

    @property
    def is_acknowledged(self) -> bool:
        """Whether the service confirmed that the request was carried out."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def key(self) -> str:
        """The identity of the request, equal for its repetitions."""
        return self.path + json.dumps(self.body, sort_keys=True)

    @property
    def json(self) -> Any:
        """The decoded answer."""
        return json.loads(self.answer or b"null")


@dataclass(frozen=True, slots=True)
class Operation:
    """One decision or one report, single or as an item of a batch; `answer` is None if it is unknown."""

    campaign: str
    decision_id: str
    body: dict[str, Any]
    answer: dict[str, Any] | None


@dataclass(slots=True)
class History:
    """Every call in the order of sending, and refused requests that no client sends again."""

    calls: list[Call] = field(default_factory=list)
    given_up: list[Call] = field(default_factory=list)

    def by_key(self) -> dict[str, list[Call]]:
        """Return the calls of each request."""
        found: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            found[call.key].append(call)
        return found

    def unanswered(self) -> list[Call]:
        """Return the first call of each request without a definite answer, decisions before reports."""
        first = [calls[0] for calls in self.by_key().values() if not any(call.is_definite for call in calls)]
        return sorted(first, key=lambda call: (ORDER.index(call.path), call.sent_at))

    def acknowledged(self) -> list[Call]:
        """Return the first acknowledged call of each request."""
        found = []
        for calls in self.by_key().values():
            done = [call for call in calls if call.is_acknowledged]
            found += done[:1]
        return found

    def decisions(self) -> Iterator[Operation]:
        """Return every request to /decide and /decide/batch."""
        for call in [*self.calls, *self.given_up]:
            if call.path == "/decide":
                known = call.json if call.is_acknowledged else None
                yield Operation(call.body["campaign_id"], call.body["decision_id"], call.body, known)
            elif call.path == "/decide/batch":
                answers = call.json["decisions"] if call.is_acknowledged else [None] * len(call.body["items"])
                for item, answer in zip(call.body["items"], answers, strict=True):
                    yield Operation(call.body["campaign_id"], item["decision_id"], item, answer)

    def reports(self) -> Iterator[Operation]:
        """Return every report to /feedback."""
        for call in self.calls:
            if call.path == "/feedback":
                known = call.json if call.is_acknowledged else None
                yield Operation(call.body["campaign_id"], call.body["decision_id"], call.body, known)


# The order of repetition: a report needs its decision, a decision its campaign, a campaign its portfolio.
ORDER = ("/portfolios", "/campaigns", "/decide", "/decide/batch", "/feedback")


def micros_of(number: float) -> int:
    """Return an amount that a client sent in whole millionths; the load sends no finer amounts.

    >>> micros_of(0.29)
    290000
    """
    return round(number * MICROS)
