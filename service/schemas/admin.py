"""Bodies of `/admin` and of the health endpoints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from cbwk_core import RULES_VERSION
from service.limits import KEY_CAMPAIGNS_MAX
from service.schemas.base import Amounts, Answered, Body, Id, Page, SignedAmount, Text, UniqueIds, example
from service.schemas.campaign import ACCOUNT_EXAMPLE, CONFIG_EXAMPLE, AccountView

_AT = "2026-11-16T09:00:00Z"
_DECISION_ID = "0197f0c4-8a00-7000-8000-5d1c2f0b9e11"
_BUDGET = {
    "campaign_id": "summer-sale",
    "status": "active",
    "round": 16150,
    "flight": 0.1615,
    "last_event_at": _AT,
    "exhausted": False,
    "resources": [ACCOUNT_EXAMPLE],
}
_DECIDED = {
    "decision_id": _DECISION_ID,
    "campaign_id": "summer-sale",
    "arm": "banner-a",
    "reason": "policy",
    "probability": 0.83,
    "hold": {"usd": 0.05, "impressions": 1},
    "expires_at": "2026-11-16T10:00:00Z",
    "round": 1042,
    "policy_version": 977,
    "decided_at": _AT,
    "status": "settled",
    "reward": 1.0,
    "costs": {"usd": 0.031, "impressions": 1},
}


class CampaignChanged(Answered):
    """A campaign after a change."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {"id": "summer-sale", "version": 1, "status": "active", "rules": RULES_VERSION, "config": CONFIG_EXAMPLE}
        )
    )

    id: str
    version: int
    status: Literal["active", "paused", "archived"]
    rules: int = Field(description="version of the rules by which it decides; it keeps that of its creation")
    config: dict[str, Any]


class BudgetView(Answered):
    """The accounts of one campaign."""

    model_config = ConfigDict(json_schema_extra=example(_BUDGET))

    campaign_id: str
    status: Literal["active", "paused", "archived"]
    round: int
    flight: float = Field(description="how much of the flight is over, from 0 to 1")
    last_event_at: str
    exhausted: bool = Field(description="whether none of the campaign's own arms can be paid from what is free")
    resources: list[AccountView]


class BudgetPage(Page):
    """The accounts of every campaign."""

    model_config = ConfigDict(json_schema_extra=example({"items": [_BUDGET], "next_cursor": None}))

    items: list[BudgetView]


class AdjustRequest(Body):
    """A signed correction of what was spent."""

    model_config = ConfigDict(
        json_schema_extra=example({"resource": "usd", "amount": -1.25, "reason": "clicks refunded by the exchange"})
    )

    resource: Id
    amount: SignedAmount
    reason: Text


class Adjusted(Answered):
    """The account after a correction."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {"campaign_id": "summer-sale", "resource": "usd", "spent": 39.95, "overrun": 0, "free": 209.7}
        )
    )

    campaign_id: str
    resource: str
    spent: float
    overrun: float
    free: float


class ModelChanged(Answered):
    """The model a campaign goes on from."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {"campaign_id": "summer-sale", "model_version": 2, "policy_version": 15890, "bytes": 3420}
        )
    )

    campaign_id: str
    model_version: int = Field(description="1 for what the campaign learnt from its start; one more with every import")
    policy_version: int = Field(description="outcomes the model has learnt")
    bytes: int


class Movement(Answered):
    """One event of the log, and by how much it moved each part of the accounts."""

    sequence: int
    at: str
    kind: str = Field(description="hold, reported, void, expired, late, budget, adjust, or opening: what was pruned")
    decision_id: str | None
    reason: str | None
    granted: Amounts
    held: Amounts
    spent: Amounts


class LedgerPage(Page):
    """Movements, newest first; their sums are the accounts."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "items": [
                    {
                        "sequence": 2087,
                        "at": _AT,
                        "kind": "reported",
                        "decision_id": _DECISION_ID,
                        "reason": None,
                        "granted": {},
                        "held": {"usd": -0.05, "impressions": -1},
                        "spent": {"usd": 0.031, "impressions": 1},
                    }
                ],
                "next_cursor": "MjA4Nw",
            }
        )
    )

    items: list[Movement]


class Check(Answered):
    """One thing that was computed anew."""

    name: str
    ok: bool
    expected: Any
    found: Any


class Verification(Answered):
    """Whether the accounts are what the log says."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "ok": True,
                "checks": [{"name": "spent of usd", "ok": True, "expected": 41.2, "found": 41.2}],
            }
        )
    )

    ok: bool
    checks: list[Check]


class ArmStatistics(Answered):
    """How one arm has done."""

    id: str | None = Field(description="null for the null arm")
    decisions: int
    share: float
    rewards: int = Field(description="outcomes with a reward")
    mean_reward: float | None
    mean_cost: Amounts | None
    last_played: str | None
    retired: bool


class ArmPage(Page):
    """Every arm that was played or may be."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "items": [
                    {
                        "id": "banner-a",
                        "decisions": 1042,
                        "share": 0.71,
                        "rewards": 988,
                        "mean_reward": 0.043,
                        "mean_cost": {"usd": 0.029, "impressions": 1},
                        "last_played": _AT,
                        "retired": False,
                    }
                ],
                "next_cursor": None,
            }
        )
    )

    items: list[ArmStatistics]


class TimelinePoint(Answered):
    """A stretch of the log: its own counts, and sums from the beginning to its end."""

    sequence: int
    at: str
    round: int
    decisions: int
    plays: int
    arms: dict[str, int] = Field(description="plays of the arms that were played most over the whole time")
    reward: float
    granted: Amounts
    spent: Amounts
    prices: dict[str, float]


class Timeline(Page):
    """The campaign's history, thinned to a few hundred points."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "items": [
                    {
                        "sequence": 2087,
                        "at": _AT,
                        "round": 1042,
                        "decisions": 12,
                        "plays": 11,
                        "arms": {"banner-a": 8, "banner-b": 3},
                        "reward": 44.0,
                        "granted": {"usd": 250, "impressions": 50000},
                        "spent": {"usd": 41.2, "impressions": 1031},
                        "prices": {"usd": 1.71, "impressions": 0.0},
                    }
                ],
                "next_cursor": None,
            }
        )
    )

    items: list[TimelinePoint]


class OpenHolds(Answered):
    """Decisions that still wait for their costs or their reward."""

    count: int
    oldest_at: str | None = Field(description="when the oldest of them was decided")
    next_expiry_at: str | None


class RecentOutcomes(Answered):
    """The newest outcomes, by what they were."""

    outcomes: int
    reported: int
    void: int
    expired: int
    late: int


class Delays(Answered):
    """From a decision to its reported costs, in seconds, over the newest outcomes."""

    count: int
    median: float | None
    p90: float | None
    p99: float | None


class LossPoint(Answered):
    """Mean squared errors over some outcomes, in units of each target's range; a guess always says the mean."""

    sequence: int
    at: str
    outcomes: int
    reward_loss: float
    cost_loss: Amounts
    reward_guess: float
    cost_guess: Amounts


class FeedbackHealth(Answered):
    """What is still awaited, how late feedback comes, and how well it was foretold."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "campaign_id": "summer-sale",
                "open_holds": {"count": 7, "oldest_at": _AT, "next_expiry_at": "2026-11-16T10:00:00Z"},
                "recent": {"outcomes": 1000, "reported": 961, "void": 21, "expired": 17, "late": 1},
                "delay_seconds": {"count": 962, "median": 2.1, "p90": 9.8, "p99": 41.0},
                "losses": [
                    {
                        "sequence": 2087,
                        "at": _AT,
                        "outcomes": 100,
                        "reward_loss": 0.039,
                        "cost_loss": {"usd": 0.012, "impressions": 0.0},
                        "reward_guess": 0.041,
                        "cost_guess": {"usd": 0.05, "impressions": 0.0},
                    }
                ],
            }
        )
    )

    campaign_id: str
    open_holds: OpenHolds
    recent: RecentOutcomes
    delay_seconds: Delays
    losses: list[LossPoint]


class DecidedView(Answered):
    """A decision and what became of it."""

    decision_id: str
    campaign_id: str
    arm: str | None
    reason: str
    probability: float
    hold: Amounts
    expires_at: str | None
    round: int
    policy_version: int
    decided_at: str
    status: str = Field(description="null, held, rewarded, charged, settled, voided, expired or late")
    reward: float | None
    costs: Amounts | None


class DecidedPage(Page):
    """Decisions, newest first."""

    model_config = ConfigDict(json_schema_extra=example({"items": [_DECIDED], "next_cursor": None}))

    items: list[DecidedView]


class OutcomeView(Answered):
    """One event in the life of a decision."""

    sequence: int
    at: str
    kind: str
    status: str
    reward: float | None
    costs: Amounts | None
    spent: Amounts | None
    learned: bool
    warnings: list[str]


class DecidedDetail(DecidedView):
    """A decision with its request, what the policy thought, and every outcome."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                **_DECIDED,
                "context": {"device": "mobile", "hour": 13, "site": "news.example"},
                "exclude": [],
                "actions": None,
                "config_version": 1,
                "explanation": {
                    "arms": [
                        {
                            "id": "banner-a",
                            "reward": 0.041,
                            "cost": {"usd": 0.03, "impressions": 1.0},
                            "score": 0.012,
                            "probability": 0.83,
                            "eligible": True,
                            "why_not": None,
                        }
                    ],
                    "prices": {"usd": 1.71, "impressions": 0.0},
                    "gamma": 212.5,
                },
                "outcomes": [
                    {
                        "sequence": 2087,
                        "at": _AT,
                        "kind": "reported",
                        "status": "settled",
                        "reward": 1.0,
                        "costs": {"usd": 0.031, "impressions": 1},
                        "spent": {"usd": 0.031, "impressions": 1},
                        "learned": True,
                        "warnings": [],
                    }
                ],
            }
        )
    )

    context: dict[str, Any] | list[float]
    exclude: list[str]
    actions: list[dict[str, Any]] | None
    config_version: int
    explanation: dict[str, Any]
    outcomes: list[OutcomeView]


Role = Literal["decider", "reader", "admin"]


class KeyRequest(Body):
    """A new key."""

    model_config = ConfigDict(
        json_schema_extra=example({"name": "ad server", "role": "decider", "campaigns": ["summer-sale"]})
    )

    name: Text
    role: Role
    campaigns: Annotated[UniqueIds, Field(min_length=1, max_length=KEY_CAMPAIGNS_MAX)] | None = Field(
        default=None, description="the only campaigns it may see; null: all"
    )


class KeyMade(Answered):
    """The key's text, which is shown here and never again."""

    model_config = ConfigDict(
        json_schema_extra=example({"id": "key-3f9a", "key": "cbwk_the-only-time-this-text-is-ever-shown"})
    )

    id: str
    key: str


class KeyHolder(Answered):
    """What the key of this request may do."""

    model_config = ConfigDict(
        json_schema_extra=example({"id": "key-3f9a", "name": "dashboard", "role": "reader", "campaigns": None})
    )

    id: str
    name: str
    role: Role
    campaigns: list[str] | None = Field(description="the only campaigns it may see; null: all")


class KeyView(Answered):
    """A key without its text."""

    id: str
    name: str
    role: Role
    campaigns: list[str] | None
    created_at: str
    revoked_at: str | None


class KeyPage(Page):
    """Keys in the order they were made."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "items": [
                    {
                        "id": "key-3f9a",
                        "name": "ad server",
                        "role": "decider",
                        "campaigns": ["summer-sale"],
                        "created_at": _AT,
                        "revoked_at": None,
                    }
                ],
                "next_cursor": None,
            }
        )
    )

    items: list[KeyView]


class KeyRevoked(Answered):
    """A key that is valid no more."""

    model_config = ConfigDict(json_schema_extra=example({"id": "key-3f9a", "revoked": True}))

    id: str
    revoked: bool


class AuditEntry(Answered):
    """Who did what."""

    number: int
    at: str
    actor: str
    action: str
    campaign_id: str | None
    body: dict[str, Any]


class AuditPage(Page):
    """What was done, newest first."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "items": [
                    {
                        "number": 12,
                        "at": _AT,
                        "actor": "key-3f9a",
                        "action": "campaign.pause",
                        "campaign_id": "summer-sale",
                        "body": {},
                    }
                ],
                "next_cursor": "MTI",
            }
        )
    )

    items: list[AuditEntry]


class Liveness(Answered):
    """The answer of a process that can still answer."""

    model_config = ConfigDict(json_schema_extra=example({"status": "ok"}))

    status: Literal["ok"] = "ok"


class Readiness(Answered):
    """The answer of a process that can serve."""

    model_config = ConfigDict(json_schema_extra=example({"status": "ready"}))

    status: Literal["ready"] = "ready"
