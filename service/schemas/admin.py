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

    id: CampaignName = Field(description="id of the campaign")
    version: int = shown(1, "version of the configuration")
    status: Status = Field(description="what the campaign does now")
    rules: int = shown(RULES_VERSION, RULES_DESCRIPTION)
    config: dict[str, Any] = shown(CONFIG_EXAMPLE, "the configuration with its defaults")


class CampaignCreated(CampaignChanged):
    """A new campaign."""

    warnings: list[str] = shown([], "what may not work as declared: a floor arm that the budget cannot always pay")


class BudgetView(View):
    """The accounts of one campaign."""

    campaign_id: CampaignName = Field(description="id of the campaign")
    display_name: str | None = shown("Summer sale", "name that people read; null for none")
    metadata: dict[str, str] = shown({"owner": "growth"}, "strings of the campaign's owner")
    status: Status = Field(description="what the campaign does now")
    round: int = shown(16150, "number of decisions that took a round")
    flight: float = shown(0.1615, "share of the flight that has passed, from 0 to 1")
    last_event_at: At = Field(description="when the last decision or outcome was stored")
    mode: Literal["live", "shadow"] = shown("live", "shadow: the caller decides and the policy learns")
    holdout: float | None = shown(0.05, "share of the decisions that a baseline makes")
    exhausted: bool = shown(False, "whether the free budget pays for none of the campaign's own arms")
    damaged: bool = shown(False, "whether the stored configuration cannot be read; resources is then empty")
    reward: float | None = shown(44.0, "sum of the rewards learnt; null while a list has not counted all of the log")
    cost_per_reward: Amounts | None = shown(
        {"usd": 0.936364, "impressions": 23.431818}, "by resource, spent / reward; null unless reward is above 0"
    )
    resources: list[AccountView] = Field(description="one account per resource")


class AdjustRequest(Body):
    """A signed correction of the spent amount."""

    model_config = example({"resource": "usd", "amount": -1.25, "reason": "clicks refunded by the exchange"})

    resource: Id = Field(description="id of the resource")
    amount: SignedAmount = Field(description="added to the spent amount; negative takes away; at most six decimals")
    reason: Text = Field(description="kept in the ledger and the audit log")


class Adjusted(View):
    """The account after a correction."""

    campaign_id: CampaignName = Field(description="id of the campaign")
    resource: str = shown("usd", "id of the resource")
    spent: float = shown(39.95, "spent after the correction")
    overrun: float = shown(0, "amount by which held + spent exceeds the budget")
    free: float = shown(209.7, "what new decisions may hold")


class ModelChanged(View):
    """The model that a campaign continues from."""

    campaign_id: CampaignName = Field(description="id of the campaign")
    model_version: int = shown(2, "1 for what the campaign learnt from its start; one more with every import")
    policy_version: int = shown(15890, "number of outcomes the model has learnt")
    bytes: int = shown(3420, "size of the model")


class Movement(View):
    """One event of the log and the changes it made to each part of the accounts."""

    sequence: int = shown(2087, "number of the event in the log of the campaign")
    at: At = Field(description="when it was stored")
    kind: str = shown(
        "reported", "hold, reported, void, expired, late, budget, adjust, or opening: the sum of pruned events"
    )
    decision_id: str | None = shown(DECISION_ID, "id of the decision, if the event belongs to one")
    reason: str | None = Field(description="reason of an adjustment, or what an opening sums up")
    granted: Amounts = shown({}, "by resource, added to the budget")
    held: Amounts = shown({"usd": -0.05, "impressions": -1}, "by resource, added to the holds")
    spent: Amounts = shown(_COSTS, "by resource, added to what is spent")


class Check(View):
    """One value that was computed again from the log."""

    name: str = shown("spent of usd", "what was computed")
    ok: bool = shown(True, "whether both values agree")
    expected: Any = shown(41.2, "value computed from the log")
    found: Any = shown(41.2, "stored value")


class Verification(View):
    """Whether the accounts agree with the log."""

    ok: bool = shown(True, "whether every check agrees")
    checks: list[Check] = Field(description="every value that was computed again")


class ArmStatistics(View):
    """Statistics of one arm."""

    id: str | None = shown("banner-a", _NULL_ARM)
    display_name: str | None = shown("Blue banner", "name that people read; null for none")
    metadata: dict[str, str] = shown({}, "strings of the campaign's owner")
    decisions: int = shown(1042, "number of decisions for the arm")
    share: float = shown(0.71, "share of all decisions, from 0 to 1")
    rewards: int = shown(988, "number of outcomes with a reward")
    mean_reward: float | None = shown(0.043, "mean of the known rewards; null without one")
    mean_cost: Amounts | None = shown(
        {"usd": 0.029, "impressions": 1}, "by resource, mean of the known costs; null without one"
    )
    last_played: str | None = shown("2026-11-16T09:00:00Z", "when it was chosen last; null if never")
    retired: bool = shown(False, "whether it was retired by a PATCH")
    paused: bool = shown(False, "whether it was paused by a PATCH")


class TimelinePoint(View):
    """A section of the log: its own counts, and sums from the start of the log to its end."""

    sequence: int = shown(2087, "number of the section's last event")
    at: At = Field(description="when that event was stored")
    round: int = shown(1042, "number of decisions so far")
    decisions: int = shown(12, "decisions in the section")
    plays: int = shown(11, "decisions in the section that have an arm")
    arms: dict[str, int] = shown({"banner-a": 8, "banner-b": 3}, "plays of the arms with the most plays in the log")
    reward: float = shown(44.0, "sum of rewards so far")
    arm_rewards: dict[str, float] = shown({"banner-a": 0.3, "banner-b": 0.2}, "rewards of these arms in the section")
    granted: Amounts = shown({"usd": 250, "impressions": 50000}, "by resource, the budget")
    spent: Amounts = shown({"usd": 41.2, "impressions": 1031}, "by resource, spent so far")
    prices: dict[str, float] = shown(_PRICES, "by resource, the price λ at the last decision, in reward per unit")


class OpenHolds(View):
    """Decisions whose costs or reward are not reported yet."""

    count: int = shown(7, "number of such decisions")
    oldest_at: str | None = shown("2026-11-16T09:00:00Z", "when the oldest of them was made")
    next_expiry_at: str | None = shown("2026-11-16T10:00:00Z", "when the first of them expires")


class RecentOutcomes(View):
    """The newest outcomes, counted by kind."""

    outcomes: int = shown(1000, "number of outcomes counted")
    reported: int = shown(961, "rewards, costs or both that were reported")
    void: int = shown(21, "decisions reported as void")
    expired: int = shown(17, "decisions that expired")
    late: int = shown(1, "reports after the expiry or the void")


class Delays(View):
    """Seconds from a decision to its reported costs, over the newest outcomes."""

    count: int = shown(962, "number of delays")
    median: float | None = shown(2.1, "half of the delays are shorter")
    p90: float | None = shown(9.8, "90 % of the delays are shorter")
    p99: float | None = shown(41.0, "99 % of the delays are shorter")


class LossPoint(View):
    """Mean squared errors over some outcomes, in units of each target's range; a guess always predicts the mean."""

    sequence: int = shown(2087, "number of the last of these outcomes")
    at: At = Field(description="when that outcome was stored")
    outcomes: int = shown(100, "number of outcomes in the mean")
    reward_loss: float = shown(0.039, "error of the predicted rewards")
    cost_loss: Amounts = shown({"usd": 0.012, "impressions": 0.0}, "by resource, error of the predicted costs")
    reward_guess: float = shown(0.041, "error of a guess of the rewards")
    cost_guess: Amounts = shown({"usd": 0.05, "impressions": 0.0}, "by resource, error of a guess of the costs")


class NoticedChanges(View):
    """How often the model restarted after a change of the world, and how often it suspected one that was none.

    They are of the newest snapshot of the model; before the first there are none.
    """

    as_of: At = Field(description="when the snapshot was made")
    noticed: int = shown(1, "number of restarts after a change")
    dismissed: int = shown(0, "many mean that the features do not explain the outcomes")


class FeedbackHealth(View):
    """Open holds, the delays of feedback, the errors of the predictions, and what the model noticed."""

    campaign_id: CampaignName = Field(description="id of the campaign")
    open_holds: OpenHolds = Field(description="decisions that wait for feedback")
    recent: RecentOutcomes = Field(description="what the newest outcomes were")
    delay_seconds: Delays = Field(description="how long costs took")
    losses: list[LossPoint] = Field(description="errors of the predictions over time")
    changes: NoticedChanges | None = Field(
        description="changes of the world that the model noticed; null before its first snapshot"
    )


DecisionStatus = Literal["null", "held", "rewarded", "charged", "settled", "voided", "expired", "late"]


class DecidedView(View):
    """A decision and its outcome."""

    decision_id: DecisionName = Field(description="id of the decision")
    campaign_id: CampaignName = Field(description="id of the campaign")
    arm: str | None = shown("banner-a", "id of the chosen arm; null for the null arm")
    reason: str = shown("policy", "why it was chosen, as /decide answered")
    probability: float = shown(0.83, "probability of the chosen arm at the draw")
    hold: Amounts = shown(_HOLD, "by resource, the amount that the decision held")
    expires_at: str | None = shown("2026-11-16T10:00:00Z", "when the hold ends without feedback; null for the null arm")
    round: int = shown(1042, "number of the decision in the campaign, from 0")
    policy_version: int = shown(977, "number of outcomes that the policy had learnt")
    sequence: int = shown(2086, "number of the decision in the log of the campaign")
    decided_at: At = Field(description="when the decision was stored")
    status: DecisionStatus = shown("settled", "after its last outcome; null for the null arm")
    reward: float | None = shown(1.0, "reported reward, as it was learnt; null if unknown")
    costs: Amounts | None = shown(_COSTS, "by resource, booked costs; null if unknown")


class OutcomeView(View):
    """One event that changed the status of a decision."""

    sequence: int = shown(2087, "number of the event in the log of the campaign")
    at: At = Field(description="when it was stored")
    kind: str = shown("reported", "reported, void, expired or late")
    status: str = shown("settled", "status of the decision after it")
    reward: float | None = shown(1.0, "reward in it; null without one")
    costs: Amounts | None = shown(_COSTS, "by resource, costs in it; null without them")
    spent: Amounts | None = shown(_COSTS, "by resource, what it added to the spent amount")
    learned: bool = shown(True, "whether the policy learnt from it")
    warnings: list[str] = shown([], "what was unusual in it")


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

    context: dict[str, Any] | list[float] = shown(
        {"device": "mobile", "hour": 13, "site": "news.example"}, "context of the request"
    )
    exclude: list[str] = shown([], "arms that the request excluded")
    actions: list[dict[str, Any]] | None = Field(description="actions that replaced the campaign's arms; null for none")
    max_cost: Amounts | None = shown(None, "of every arm, if the request had it")
    max_costs: dict[str, Amounts] | None = shown(None, "by arm, if the request had them")
    config_version: int = shown(1, "version of the configuration that decided")
    explanation: dict[str, Any] = shown(
        {"arms": [_EXPLAINED_ARM], "prices": _PRICES, "gamma": 212.5},
        "estimates, prices and γ behind the choice, as /decide explains them",
    )
    outcomes: list[OutcomeView] = Field(description="every outcome, oldest first")


Role = Literal["decider", "reader", "admin"]


class KeyRequest(Body):
    """A new key."""

    model_config = example({"name": "ad server", "role": "decider", "campaigns": ["summer-sale"]})

    name: Text = Field(description="what the key is for")
    role: Role = Field(
        description="decider: /decide and /feedback; reader: everything that only reads; admin: everything"
    )
    campaigns: Annotated[UniqueIds, Field(min_length=1, max_length=KEY_CAMPAIGNS_MAX)] | None = Field(
        default=None, description=_VISIBLE
    )
    requests_per_second: Annotated[float, Field(ge=KEY_RATE_MIN, le=KEY_RATE_MAX)] | None = Field(
        default=None, description=_RATE
    )


class KeyMade(View):
    """The text of a new key, which no other response contains."""

    id: str = shown(_KEY_ID, "id of the key")
    key: str = shown(
        "cbwk_the-only-time-this-text-is-ever-shown", "the text of the key, for the header Authorization: Bearer"
    )


class KeyHolder(View):
    """The permissions of the key of this request."""

    id: str = shown(_KEY_ID, "id of the key")
    name: str = shown("dashboard", "what the key is for")
    role: Role = shown("reader", "decider, reader or admin")
    campaigns: list[str] | None = shown(["summer-sale"], _VISIBLE)
    requests_per_second: float | None = shown(None, _RATE)


class KeyView(KeyHolder):
    """A key without its text."""

    created_at: At = Field(description="when it was made")
    revoked_at: str | None = Field(description="when it was revoked; null if it is valid")


class KeyRevoked(View):
    """A key that is no longer valid."""

    id: str = shown(_KEY_ID, "id of the key")
    revoked: bool = shown(True, "always true")


class AuditEntry(View):
    """One change, with the key that made it."""

    number: int = shown(12, "number of the entry, rising")
    at: At = Field(description="when the change was made")
    actor: str = shown(_KEY_ID, "id of the key that made it")
    action: str = shown("campaign.pause", "kind of the change")
    campaign_id: str | None = shown("summer-sale", "id of the campaign; null for changes of keys and other things")
    body: dict[str, Any] = shown({}, "what was sent")


class Liveness(View):
    """The process answers."""

    status: Literal["ok"] = Field(default="ok", description="always ok")


class Readiness(View):
    """The process can serve requests."""

    status: Literal["ready"] = Field(
        default="ready", description="always ready; a process that is not ready answers 503"
    )


BudgetPage = page("BudgetPage", BudgetView, "The accounts of every campaign.")
LedgerPage = page("LedgerPage", Movement, "Movements, newest first; the accounts are their sums.")
ArmPage = page("ArmPage", ArmStatistics, "Every arm that was played or can be.")
Timeline = page("Timeline", TimelinePoint, "The history of the campaign in at most a few hundred points.")
DecidedPage = page("DecidedPage", DecidedView, "Decisions, newest first.")
KeyPage = page("KeyPage", KeyView, "Keys in the order of their creation.")
AuditPage = page("AuditPage", AuditEntry, "Changes, newest first.")
