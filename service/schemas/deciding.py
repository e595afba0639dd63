"""Answers of `/decide` and `/feedback`, whose requests are in `service.hot.bodies`, and the body of every error."""

from pydantic import Field

from service.schemas.view import DECISION_ID, Amounts, Answered, View, example, shown

_DECISION = {
    "decision_id": DECISION_ID,
    "campaign_id": "summer-sale",
    "arm": "banner-a",
    "reason": "policy",
    "probability": 0.83,
    "hold": {"usd": 0.05, "impressions": 1},
    "expires_at": "2026-11-16T10:00:00Z",
    "round": 1042,
    "policy_version": 977,
}
_SETTLED = {
    "campaign_id": "summer-sale",
    "decision_id": DECISION_ID,
    "status": "settled",
    "learned": True,
    "policy_version": 978,
    "warnings": [],
}
_BAD_ITEM = {
    "error": {
        "type": "urn:cbwk:problem:invalid",
        "title": "A field has a value it cannot have",
        "status": 422,
        "detail": "items.1 does not fit DecideItem; /docs shows what it may be",
        "errors": [{"field": "items.1.context", "message": "is required"}],
    }
}


class FieldError(View):
    """A field with a value that is not allowed; the value is not repeated."""

    field: str = shown("resources.0.budget", "path of the field in the body")
    message: str = shown("must have at most 6 decimals")


class ProblemDocument(View):
    """An error; clients switch on `type`."""

    type: str = shown("urn:cbwk:problem:invalid")
    title: str = shown("A field has a value it cannot have")
    status: int = shown(422)
    detail: str = shown("the body does not fit CampaignConfig; /docs shows what it may be")
    errors: list[FieldError] | None = Field(default=None, examples=[[FieldError.example()]])


class ArmExplanation(Answered):
    """What the policy thought of one arm."""

    id: str
    reward: float
    cost: Amounts
    score: float
    probability: float
    eligible: bool
    why_not: str | None


class WouldHave(Answered):
    """The policy's own choice where the caller or the hold-out decided, and its predictions."""

    arm: str | None
    reason: str
    probability: float
    reward: float
    cost: Amounts


class Decision(Answered):
    """The arm to play; null for none, which costs nothing and needs no feedback."""

    model_config = example(_DECISION)

    decision_id: str
    campaign_id: str
    arm: str | None
    reason: str = Field(
        description="archived, paused, not_started, ended, all_excluded, budget_exhausted, window_exhausted, holdout, "
        "shadow or policy; clients must expect more"
    )
    probability: float = Field(gt=0, description="exact, of the arm given")
    hold: Amounts
    expires_at: str | None
    round: int
    policy_version: int
    would_have: WouldHave | None = Field(default=None, description="in shadow mode: what the policy would have done")
    arms: list[ArmExplanation] | None = Field(default=None, description="with explain")
    prices: dict[str, float] | None = Field(default=None, description="with explain")
    gamma: float | None = Field(default=None, description="with explain")
    why_no_arms: str | None = Field(
        default=None,
        description="with explain, if arms is empty. not_stored: among more than 32 arms the estimates are stored only "
        "if the first request has explain",
    )


class ItemError(Answered):
    """An item that could not be taken."""

    error: ProblemDocument


class Decisions(Answered):
    """Answers in the order of the items."""

    model_config = example({"decisions": [_DECISION, _BAD_ITEM]})

    decisions: list[Decision | ItemError]


class FeedbackResult(Answered):
    """What the decision is now."""

    model_config = example(_SETTLED)

    campaign_id: str
    decision_id: str
    status: str = Field(description="charged, rewarded, settled, voided, late or ignored")
    learned: bool
    policy_version: int
    warnings: list[str] = Field(description="reward_clipped, cost_missing, cost_above_hold, rounded, late_not_learnt")


class FeedbackResults(Answered):
    """Answers in the order of the items."""

    model_config = example({"results": [_SETTLED]})

    results: list[FeedbackResult | ItemError]
