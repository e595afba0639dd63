"""What is sent for each call, and how its answer is read; nothing here sends anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from service.client.answers import (
    FALLBACK_PREFIX,
    Adjusted,
    Budget,
    Campaign,
    CampaignSummary,
    CampaignVersion,
    Decision,
    FeedbackResult,
    NewKey,
    Verification,
    read,
)
from service.client.errors import RefusedError, UnexpectedAnswerError, refusal
from service.ids import uuid7

Answer = TypeVar("Answer")
Context = Mapping[str, Any] | Sequence[float]


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request. `read` takes the body of a good answer, and whether the service says it gave it before."""

    method: str
    path: str
    read: Callable[[Any, bool], Answer]
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True  # whether sending it twice does the same as sending it once


# No arm has this id: null would say that nothing will be played.
UNSAID = ""


@dataclass(frozen=True)
class Ask:
    """One item of `decide_batch`."""

    context: Context
    decision_id: str | None = None
    exclude: Sequence[str] = ()
    actions: Sequence[Mapping[str, Any]] | None = None
    baseline_arm: str | None = UNSAID  # in shadow mode: what will be played

    def body(self) -> dict[str, Any]:
        """As it is sent, with an id in any case: without one a repeat would be another decision."""
        decision_id = self.decision_id or uuid7(time.time_ns() // 1000)
        if decision_id.startswith(FALLBACK_PREFIX):
            raise ValueError(f"a decision_id cannot begin with {FALLBACK_PREFIX!r}, got {decision_id!r}")
        body: dict[str, Any] = {"decision_id": decision_id, "context": self.context}
        if self.exclude:
            body["exclude"] = list(self.exclude)
        if self.actions is not None:
            body["actions"] = list(self.actions)
        if self.baseline_arm != UNSAID:
            body["baseline_arm"] = self.baseline_arm
        return body


def decide(campaign_id: str, ask: Mapping[str, Any], *, explain: bool = False) -> Call[Decision]:
    """`POST /decide`."""
    body = {"campaign_id": campaign_id, **ask}
    if explain:
        body["explain"] = True
    return Call("POST", "/decide", lambda answer, replayed: Decision.of(answer, replayed=replayed), body)


def decide_batch(campaign_id: str, asks: Sequence[Mapping[str, Any]]) -> Call[list[Decision | RefusedError]]:
    """`POST /decide/batch`; an item that was refused is an error in its place."""
    body = {"campaign_id": campaign_id, "items": list(asks)}
    return Call("POST", "/decide/batch", lambda answer, _: _items(answer["decisions"], Decision.of), body)


def feedback(body: Mapping[str, Any]) -> Call[FeedbackResult]:
    """`POST /feedback`."""
    return Call("POST", "/feedback", lambda answer, replayed: FeedbackResult.of(answer, replayed=replayed), body)


def feedback_batch(bodies: Sequence[Mapping[str, Any]]) -> Call[list[FeedbackResult | RefusedError]]:
    """`POST /feedback/batch`; an item that was refused is an error in its place."""
    body = {"items": list(bodies)}
    return Call("POST", "/feedback/batch", lambda answer, _: _items(answer["results"], FeedbackResult.of), body)


def _items(items: Sequence[Any], of: Callable[[Any], Answer]) -> list[Answer | RefusedError]:
    return [of(item) if "error" not in item else _item_error(item["error"]) for item in items]


def _item_error(problem: Any) -> RefusedError:
    error = refusal(problem, int(problem.get("status", 0)))
    if error is None:
        raise UnexpectedAnswerError("an item of a batch has an error that is none of this service")
    return error


def create_campaign(config: Mapping[str, Any]) -> Call[CampaignVersion]:
    """`POST /campaigns`."""
    return Call("POST", "/campaigns", _version, dict(config), repeatable=False)


def campaign(campaign_id: str) -> Call[Campaign]:
    """`GET /campaigns/{id}`."""
    return Call("GET", f"/campaigns/{_part(campaign_id)}", lambda answer, _: Campaign.of(answer))


def campaigns(status: str | None, cursor: str | None) -> Call[tuple[list[CampaignSummary], str | None]]:
    """`GET /campaigns`: one page, and where the next begins."""
    query = {name: value for name, value in (("status", status), ("cursor", cursor)) if value is not None}

    def page(answer: Any, _: bool) -> tuple[list[CampaignSummary], str | None]:
        return [read(CampaignSummary, item) for item in answer["items"]], answer["next_cursor"]

    return Call("GET", "/campaigns", page, query=query)


def change_campaign(campaign_id: str, changes: Mapping[str, Any]) -> Call[CampaignVersion]:
    """`PATCH /campaigns/{id}`."""
    return Call("PATCH", f"/campaigns/{_part(campaign_id)}", _version, dict(changes), repeatable=False)


def set_budgets(campaign_id: str, budgets: Mapping[str, float]) -> Call[CampaignVersion]:
    """`PATCH /campaigns/{id}` with new totals, which are the same however often they are set."""
    body = {"resources": [{"id": resource, "budget": total} for resource, total in budgets.items()]}
    return Call("PATCH", f"/campaigns/{_part(campaign_id)}", _version, body)


def set_status(campaign_id: str, action: str) -> Call[CampaignVersion]:
    """`POST /campaigns/{id}/pause|resume|archive`."""
    return Call("POST", f"/campaigns/{_part(campaign_id)}/{action}", _version)


def budget(campaign_id: str) -> Call[Budget]:
    """`GET /admin/campaigns/{id}/budget`."""
    return Call("GET", f"/admin/campaigns/{_part(campaign_id)}/budget", lambda answer, _: Budget.of(answer))


def adjust(campaign_id: str, resource: str, amount: float, reason: str) -> Call[Adjusted]:
    """`POST /admin/campaigns/{id}/adjust`."""
    body = {"resource": resource, "amount": amount, "reason": reason}
    path = f"/admin/campaigns/{_part(campaign_id)}/adjust"
    return Call("POST", path, lambda answer, _: read(Adjusted, answer), body, repeatable=False)


def verify(campaign_id: str) -> Call[Verification]:
    """`GET /admin/campaigns/{id}/verify`."""
    return Call("GET", f"/admin/campaigns/{_part(campaign_id)}/verify", lambda answer, _: Verification.of(answer))


def create_key(name: str, role: str, campaigns: Sequence[str] | None) -> Call[NewKey]:
    """`POST /admin/keys`."""
    body: dict[str, Any] = {"name": name, "role": role}
    if campaigns is not None:
        body["campaigns"] = list(campaigns)
    return Call("POST", "/admin/keys", lambda answer, _: read(NewKey, answer), body, repeatable=False)


def _version(answer: Any, _: bool) -> CampaignVersion:
    return read(CampaignVersion, answer)


def _part(name: str) -> str:
    """A name as one part of a path.

    >>> _part("a/b")
    'a%2Fb'
    """
    return quote(name, safe="")
