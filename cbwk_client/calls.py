"""The request of each call and how to read its answer; nothing here sends anything."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import UUID

from cbwk_client.answers import (
    FALLBACK_PREFIX,
    Adjusted,
    Budget,
    Campaign,
    CampaignSummary,
    CampaignVersion,
    Decision,
    FeedbackResult,
    NewKey,
    Portfolio,
    PortfolioBudget,
    Verification,
    read,
)
from cbwk_client.errors import RefusedError, UnexpectedAnswerError, refusal

Answer = TypeVar("Answer")
Context = Mapping[str, Any] | Sequence[float]


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request. `read` takes the body of a successful response, and whether it repeats an earlier response."""

    method: str
    path: str
    read: Callable[[Any, bool], Answer]
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True  # whether sending it twice has the same effect as sending it once
    campaign_id: str | None = None  # or a portfolio's: which replica is asked, and what X-Campaign-Id says


# Stands for no `baseline_arm`, since None is one: play nothing. No arm has this id.
UNSET = ""


@dataclass(frozen=True)
class Ask:
    """One item of `decide_batch`."""

    context: Context
    decision_id: str | None = None
    exclude: Sequence[str] = ()
    actions: Sequence[Mapping[str, Any]] | None = None
    baseline_arm: str | None = UNSET  # in shadow mode: the arm that will be played
    max_cost: Mapping[str, float] | None = None  # of every arm, by resource: at most what is declared
    max_costs: Mapping[str, Mapping[str, float]] | None = None  # by arm; wins over max_cost

    def body(self) -> dict[str, Any]:
        """Return the body to send. It always has a decision id: without one, a repeat would be another decision."""
        decision_id = self.decision_id or _new_id()
        if decision_id.startswith(FALLBACK_PREFIX):
            raise ValueError(f"a decision_id cannot begin with {FALLBACK_PREFIX!r}, got {decision_id!r}")
        body: dict[str, Any] = {"decision_id": decision_id, "context": self.context}
        if self.exclude:
            body["exclude"] = list(self.exclude)
        if self.actions is not None:
            body["actions"] = list(self.actions)
        if self.baseline_arm != UNSET:
            body["baseline_arm"] = self.baseline_arm
        if self.max_cost:
            body["max_cost"] = dict(self.max_cost)
        if self.max_costs:
            body["max_costs"] = {arm: dict(costs) for arm, costs in self.max_costs.items()}
        return body


def _new_id() -> str:
    """Return a UUIDv7: 48 bits of milliseconds, then random bits."""
    millis = time.time_ns() // 1_000_000
    return str(UUID(int=millis << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)))


def decide(campaign_id: str, ask: Mapping[str, Any], *, explain: bool = False) -> Call[Decision]:
    """`POST /decide`."""
    body = {"campaign_id": campaign_id, **ask}
    if explain:
        body["explain"] = True
    return Call(
        "POST",
        "/decide",
        lambda answer, replayed: Decision.of(answer, replayed=replayed),
        body,
        campaign_id=campaign_id,
    )


def decide_batch(campaign_id: str, asks: Sequence[Mapping[str, Any]]) -> Call[list[Decision | RefusedError]]:
    """`POST /decide/batch`; a refused item is an error in its place."""
    body = {"campaign_id": campaign_id, "items": list(asks)}
    return Call(
        "POST",
        "/decide/batch",
        lambda answer, _: _items(answer["decisions"], Decision.of),
        body,
        campaign_id=campaign_id,
    )


def feedback(body: Mapping[str, Any]) -> Call[FeedbackResult]:
    """`POST /feedback`."""
    return Call(
        "POST",
        "/feedback",
        lambda answer, replayed: FeedbackResult.of(answer, replayed=replayed),
        body,
        campaign_id=body["campaign_id"],
    )


def feedback_batch(bodies: Sequence[Mapping[str, Any]]) -> Call[list[FeedbackResult | RefusedError]]:
    """`POST /feedback/batch`; a refused item is an error in its place. A batch of several campaigns names none."""
    body = {"items": list(bodies)}
    campaigns = {each["campaign_id"] for each in bodies}
    return Call(
        "POST",
        "/feedback/batch",
        lambda answer, _: _items(answer["results"], FeedbackResult.of),
        body,
        campaign_id=campaigns.pop() if len(campaigns) == 1 else None,
    )


def _items(items: Sequence[Any], of: Callable[[Any], Answer]) -> list[Answer | RefusedError]:
    return [of(item) if "error" not in item else _item_error(item["error"]) for item in items]


def _item_error(problem: Any) -> RefusedError:
    error = refusal(problem, int(problem.get("status", 0)))
    if error is None:
        raise UnexpectedAnswerError("an item of a batch has an error that is not one of this service")
    return error


def create_campaign(config: Mapping[str, Any]) -> Call[CampaignVersion]:
    """`POST /campaigns`."""
    body = dict(config)
    return Call("POST", "/campaigns", _version, body, repeatable=False, campaign_id=str(body.get("id", "")))


def ensure_campaign(config: Mapping[str, Any]) -> Call[CampaignVersion]:
    """`PUT /campaigns/{id}`, which may be repeated."""
    name = str(config["id"])
    return Call("PUT", f"/campaigns/{_path_segment(name)}", _version, dict(config), campaign_id=name)


def campaign(campaign_id: str) -> Call[Campaign]:
    """`GET /campaigns/{id}`."""
    path = f"/campaigns/{_path_segment(campaign_id)}"
    return Call("GET", path, lambda answer, _: Campaign.of(answer), campaign_id=campaign_id)


def campaigns(status: str | None, cursor: str | None) -> Call[tuple[list[CampaignSummary], str | None]]:
    """`GET /campaigns`: one page, and the cursor of the next."""
    query = {name: value for name, value in (("status", status), ("cursor", cursor)) if value is not None}

    def page(answer: Any, _: bool) -> tuple[list[CampaignSummary], str | None]:
        return [read(CampaignSummary, item) for item in answer["items"]], answer["next_cursor"]

    return Call("GET", "/campaigns", page, query=query)


def change_campaign(campaign_id: str, changes: Mapping[str, Any]) -> Call[CampaignVersion]:
    """`PATCH /campaigns/{id}`."""
    path = f"/campaigns/{_path_segment(campaign_id)}"
    return Call("PATCH", path, _version, dict(changes), repeatable=False, campaign_id=campaign_id)


def set_budgets(campaign_id: str, budgets: Mapping[str, float]) -> Call[CampaignVersion]:
    """`PATCH /campaigns/{id}` with new totals, which may be set repeatedly."""
    body = {"resources": [{"id": resource, "budget": total} for resource, total in budgets.items()]}
    return Call("PATCH", f"/campaigns/{_path_segment(campaign_id)}", _version, body, campaign_id=campaign_id)


def set_status(campaign_id: str, action: str) -> Call[CampaignVersion]:
    """`POST /campaigns/{id}/pause|resume|archive`."""
    return Call("POST", f"/campaigns/{_path_segment(campaign_id)}/{action}", _version, campaign_id=campaign_id)


def budget(campaign_id: str) -> Call[Budget]:
    """`GET /admin/campaigns/{id}/budget`."""
    path = f"/admin/campaigns/{_path_segment(campaign_id)}/budget"
    return Call("GET", path, lambda answer, _: Budget.of(answer), campaign_id=campaign_id)


def adjust(campaign_id: str, resource: str, amount: float, reason: str) -> Call[Adjusted]:
    """`POST /admin/campaigns/{id}/adjust`."""
    body = {"resource": resource, "amount": amount, "reason": reason}
    path = f"/admin/campaigns/{_path_segment(campaign_id)}/adjust"
    return Call("POST", path, lambda answer, _: read(Adjusted, answer), body, repeatable=False, campaign_id=campaign_id)


def verify(campaign_id: str) -> Call[Verification]:
    """`GET /admin/campaigns/{id}/verify`."""
    path = f"/admin/campaigns/{_path_segment(campaign_id)}/verify"
    return Call("GET", path, lambda answer, _: Verification.of(answer), campaign_id=campaign_id)


def create_portfolio(config: Mapping[str, Any]) -> Call[Portfolio]:
    """`POST /portfolios`."""
    body, name = dict(config), str(config.get("id", ""))
    return Call("POST", "/portfolios", _portfolio, body, repeatable=False, campaign_id=name)


def portfolio(portfolio_id: str) -> Call[Portfolio]:
    """`GET /portfolios/{id}`."""
    return Call("GET", f"/portfolios/{_path_segment(portfolio_id)}", _portfolio, campaign_id=portfolio_id)


def change_portfolio(portfolio_id: str, changes: Mapping[str, Any]) -> Call[Portfolio]:
    """`PATCH /portfolios/{id}`."""
    path = f"/portfolios/{_path_segment(portfolio_id)}"
    return Call("PATCH", path, _portfolio, dict(changes), repeatable=False, campaign_id=portfolio_id)


def portfolio_budget(portfolio_id: str) -> Call[PortfolioBudget]:
    """`GET /admin/portfolios/{id}/budget`."""
    path = f"/admin/portfolios/{_path_segment(portfolio_id)}/budget"
    return Call("GET", path, lambda answer, _: PortfolioBudget.of(answer), campaign_id=portfolio_id)


def _portfolio(answer: Any, _: bool) -> Portfolio:
    return Portfolio.of(answer)


def create_key(
    name: str, role: str, campaigns: Sequence[str] | None, requests_per_second: float | None = None
) -> Call[NewKey]:
    """`POST /admin/keys`."""
    body: dict[str, Any] = {"name": name, "role": role}
    if campaigns is not None:
        body["campaigns"] = list(campaigns)
    if requests_per_second is not None:
        body["requests_per_second"] = requests_per_second
    return Call("POST", "/admin/keys", lambda answer, _: read(NewKey, answer), body, repeatable=False)


def _version(answer: Any, _: bool) -> CampaignVersion:
    return read(CampaignVersion, answer, warnings=tuple(answer.get("warnings", ())))


def _path_segment(name: str) -> str:
    """Return a name as one segment of a path.

    >>> _path_segment("a/b")
    'a%2Fb'
    """
    return quote(name, safe="")
