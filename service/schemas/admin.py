"""Bodies of `/admin` and of the health endpoints."""

from typing import Annotated, Any, Literal

from pydantic import Field

from cbwk_core import RULES_VERSION
from service.limits import KEY_CAMPAIGNS_MAX, KEY_RATE_MAX, KEY_RATE_MIN
from service.schemas.body import Body, Id, SignedAmount, Status, Text, UniqueIds
from service.schemas.campaign import CONFIG_EXAMPLE, RULES_DESCRIPTION, AccountView
from service.schemas.view import DECISION_ID, Amounts, At, CampaignName, DecisionName, View, example, page, shown

_HOLD = {"usd": 0.05, "impressions": 1}
_COSTS = {"usd": 0.031, "impressions": 1}
_PRICES = {"usd": 1.71, "impressions": 0.0}
_KEY_ID = "key-3f9a"
_NULL_ARM = "null for the null arm"
_VISIBLE = "the only campaigns the key may see; null: all"
_RATE = "requests that the key may make in a second, of each process; more are 429; null: any number"


class CampaignChanged(View):
    """A campaign after a change."""

    id: CampaignName
    version: int = shown(1)
    status: Status
    rules: int = shown(RULES_VERSION, RULES_DESCRIPTION)
    config: dict[str, Any] = shown(CONFIG_EXAMPLE)


class BudgetView(View):
    """The accounts of one campaign."""

    campaign_id: CampaignName
    status: Status
    round: int = shown(16150)
    flight: float = shown(0.1615, "share of the flight that has passed, from 0 to 1")
    last_event_at: At
    exhausted: bool = shown(False, "whether the free budget pays for none of the campaign's own arms")
    damaged: bool = shown(False, "whether the stored configuration cannot be read; resources is then empty")
    resources: list[AccountView]


class AdjustRequest(Body):
    """A signed correction of the spent amount."""

    model_config = example({"resource": "usd", "amount": -1.25, "reason": "clicks refunded by the exchange"})

    resource: Id
    amount: SignedAmount
    reason: Text


class Adjusted(View):
    """The account after a correction."""

    campaign_id: CampaignName
    resource: str = shown("usd")
    spent: float = shown(39.95)
    overrun: float = shown(0)
    free: float = shown(209.7)


class ModelChanged(View):
    """The model that a campaign continues from."""

    campaign_id: CampaignName
    model_version: int = shown(2, "1 for what the campaign learnt from its start; one more with every import")
    policy_version: int = shown(15890, "number of outcomes the model has learnt")
    bytes: int = shown(3420)


class Movement(View):
    """One event of the log and the changes it made to each part of the accounts."""

    sequence: int = shown(2087)
    at: At
    kind: str = shown(
        "reported", "hold, reported, void, expired, late, budget, adjust, or opening: the sum of pruned events"
    )
    decision_id: str | None = shown(DECISION_ID)
    reason: str | None
    granted: Amounts = shown({})
    held: Amounts = shown({"usd": -0.05, "impressions": -1})
    spent: Amounts = shown(_COSTS)


class Check(View):
    """One value that was computed again from the log."""

    name: str = shown("spent of usd")
    ok: bool = shown(True)
    expected: Any = shown(41.2)
    found: Any = shown(41.2)


class Verification(View):
    """Whether the accounts agree with the log."""

    ok: bool = shown(True)
    checks: list[Check]


class ArmStatistics(View):
    """Statistics of one arm."""

    id: str | None = shown("banner-a", _NULL_ARM)
    decisions: int = shown(1042)
    share: float = shown(0.71)
    rewards: int = shown(988, "number of outcomes with a reward")
    mean_reward: float | None = shown(0.043)
    mean_cost: Amounts | None = shown({"usd": 0.029, "impressions": 1})
    last_played: str | None = shown("2026-11-16T09:00:00Z")
    retired: bool = shown(False)
    paused: bool = shown(False)


class TimelinePoint(View):
    """A section of the log: its own counts, and sums from the start of the log to its end."""

    sequence: int = shown(2087)
    at: At
    round: int = shown(1042)
    decisions: int = shown(12)
    plays: int = shown(11)
    arms: dict[str, int] = shown({"banner-a": 8, "banner-b": 3}, "plays of the arms with the most plays in the log")
    reward: float = shown(44.0)
    granted: Amounts = shown({"usd": 250, "impressions": 50000})
    spent: Amounts = shown({"usd": 41.2, "impressions": 1031})
    prices: dict[str, float] = shown(_PRICES)


class OpenHolds(View):
    """Decisions whose costs or reward are not reported yet."""

    count: int = shown(7)
    oldest_at: str | None = shown("2026-11-16T09:00:00Z", "when the oldest of them was made")
    next_expiry_at: str | None = shown("2026-11-16T10:00:00Z")


class RecentOutcomes(View):
    """The newest outcomes, counted by kind."""

    outcomes: int = shown(1000)
    reported: int = shown(961)
    void: int = shown(21)
    expired: int = shown(17)
    late: int = shown(1)


class Delays(View):
    """Seconds from a decision to its reported costs, over the newest outcomes."""

    count: int = shown(962)
    median: float | None = shown(2.1)
    p90: float | None = shown(9.8)
    p99: float | None = shown(41.0)


class LossPoint(View):
    """Mean squared errors over some outcomes, in units of each target's range; a guess always predicts the mean."""

    sequence: int = shown(2087)
    at: At
    outcomes: int = shown(100)
    reward_loss: float = shown(0.039)
    cost_loss: Amounts = shown({"usd": 0.012, "impressions": 0.0})
    reward_guess: float = shown(0.041)
    cost_guess: Amounts = shown({"usd": 0.05, "impressions": 0.0})


class NoticedChanges(View):
    """How often the model restarted after a change of the world, and how often it suspected one that was none.

    They are of the newest snapshot of the model; before the first there are none.
    """

    as_of: At
    noticed: int = shown(1)
    dismissed: int = shown(0, "many mean that the features do not explain the outcomes")


class FeedbackHealth(View):
    """Open holds, the delays of feedback, the errors of the predictions, and what the model noticed."""

    campaign_id: CampaignName
    open_holds: OpenHolds
    recent: RecentOutcomes
    delay_seconds: Delays
    losses: list[LossPoint]
    changes: NoticedChanges | None


class DecidedView(View):
    """A decision and its outcome."""

    decision_id: DecisionName
    campaign_id: CampaignName
    arm: str | None = shown("banner-a")
    reason: str = shown("policy")
    probability: float = shown(0.83)
    hold: Amounts = shown(_HOLD)
    expires_at: str | None = shown("2026-11-16T10:00:00Z")
    round: int = shown(1042)
    policy_version: int = shown(977)
    decided_at: At
    status: str = shown("settled", "null, held, rewarded, charged, settled, voided, expired or late")
    reward: float | None = shown(1.0)
    costs: Amounts | None = shown(_COSTS)


class OutcomeView(View):
    """One event that changed the status of a decision."""

    sequence: int = shown(2087)
    at: At
    kind: str = shown("reported")
    status: str = shown("settled")
    reward: float | None = shown(1.0)
    costs: Amounts | None = shown(_COSTS)
    spent: Amounts | None = shown(_COSTS)
    learned: bool = shown(True)
    warnings: list[str] = shown([])


_EXPLAINED_ARM = {
    "id": "banner-a",
    "reward": 0.041,
    "cost": {"usd": 0.03, "impressions": 1.0},
    "score": 0.012,
    "probability": 0.83,
    "eligible": True,
    "why_not": None,
}


class DecidedDetail(DecidedView):
    """A decision with its request, its explanation and every outcome."""

    context: dict[str, Any] | list[float] = shown({"device": "mobile", "hour": 13, "site": "news.example"})
    exclude: list[str] = shown([])
    actions: list[dict[str, Any]] | None
    max_cost: Amounts | None = shown(None, "of every arm, if the request had it")
    max_costs: dict[str, Amounts] | None = shown(None, "by arm, if the request had them")
    config_version: int = shown(1)
    explanation: dict[str, Any] = shown({"arms": [_EXPLAINED_ARM], "prices": _PRICES, "gamma": 212.5})
    outcomes: list[OutcomeView]


Role = Literal["decider", "reader", "admin"]


class KeyRequest(Body):
    """A new key."""

    model_config = example({"name": "ad server", "role": "decider", "campaigns": ["summer-sale"]})

    name: Text
    role: Role
    campaigns: Annotated[UniqueIds, Field(min_length=1, max_length=KEY_CAMPAIGNS_MAX)] | None = Field(
        default=None, description=_VISIBLE
    )
    requests_per_second: Annotated[float, Field(ge=KEY_RATE_MIN, le=KEY_RATE_MAX)] | None = Field(
        default=None, description=_RATE
    )


class KeyMade(View):
    """The text of a new key, which no other response contains."""

    id: str = shown(_KEY_ID)
    key: str = shown("cbwk_the-only-time-this-text-is-ever-shown")


class KeyHolder(View):
    """The permissions of the key of this request."""

    id: str = shown(_KEY_ID)
    name: str = shown("dashboard")
    role: Role = shown("reader")
    campaigns: list[str] | None = shown(["summer-sale"], _VISIBLE)
    requests_per_second: float | None = shown(None, _RATE)


class KeyView(KeyHolder):
    """A key without its text."""

    created_at: At
    revoked_at: str | None


class KeyRevoked(View):
    """A key that is no longer valid."""

    id: str = shown(_KEY_ID)
    revoked: bool = shown(True)


class AuditEntry(View):
    """One change, with the key that made it."""

    number: int = shown(12)
    at: At
    actor: str = shown(_KEY_ID)
    action: str = shown("campaign.pause")
    campaign_id: str | None = shown("summer-sale")
    body: dict[str, Any] = shown({})


class Liveness(View):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(View):
    """The process can serve requests."""

    status: Literal["ready"] = "ready"


BudgetPage = page("BudgetPage", BudgetView, "The accounts of every campaign.")
LedgerPage = page("LedgerPage", Movement, "Movements, newest first; the accounts are their sums.")
ArmPage = page("ArmPage", ArmStatistics, "Every arm that was played or can be.")
Timeline = page("Timeline", TimelinePoint, "The history of the campaign in at most a few hundred points.")
DecidedPage = page("DecidedPage", DecidedView, "Decisions, newest first.")
KeyPage = page("KeyPage", KeyView, "Keys in the order of their creation.")
AuditPage = page("AuditPage", AuditEntry, "Changes, newest first.")
