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
        "help": "/docs/problems#invalid",
        "errors": [{"field": "items.1.context", "message": "is required", "pointer": "/items/1/context"}],
    }
}


class FieldError(View):
    """A field with a value that is not allowed; the value is not repeated."""

    field: str = shown("resources.0.budget", "path of the field in the body")
    message: str = shown("must have at most 6 decimals", "what is wrong with the value")
    pointer: str | None = Field(
        default=None,
        examples=["/resources/0/budget"],
        description="the same path as a JSON pointer; absent if the field is no part of the body",
    )


class ProblemDocument(View):
    """An error; clients switch on `type`."""

    type: str = shown(
        "urn:cbwk:problem:invalid", "urn:cbwk:problem: and the kind of the error, which clients switch on"
    )
    title: str = shown("A field has a value it cannot have", "the kind of the error in words")
    status: int = shown(422, "the HTTP status")
    detail: str = shown(
        "the body does not fit CampaignConfig; /docs shows what it may be", "what was wrong with this request"
    )
    help: str = shown("/docs/problems#invalid", "path of the page that says what this kind means and what to do")
    errors: list[FieldError] | None = Field(
        default=None,
        examples=[[FieldError.example()]],
        description="every field with a bad value; absent if no field is to blame",
    )


class ArmExplanation(Answered):
    """What the policy thought of one arm."""

    id: str = Field(description="id of the arm")
    reward: float = Field(description="predicted reward")
    cost: Amounts = Field(description="by resource, predicted cost")
    score: float = Field(description="predicted reward minus prices times predicted costs")
    probability: float = Field(description="probability of the arm at the draw")
    eligible: bool = Field(description="whether the arm could be chosen")
    why_not: str | None = Field(
        description="retired, paused, excluded, reserved, not_affordable or stage_one; null if eligible"
    )


class WouldHave(Answered):
    """The policy's own choice where the caller or the hold-out decided, and its predictions."""

    arm: str | None = Field(description="the arm that the policy would have chosen; null for the null arm")
    reason: str = Field(description="why")
    probability: float = Field(description="its probability")
    reward: float = Field(description="its predicted reward")
    cost: Amounts = Field(description="by resource, its predicted cost")


class Decision(Answered):
    """The arm to play; null for none, which costs nothing and needs no feedback."""

    model_config = example(_DECISION)

    decision_id: str = Field(description="id of the decision: the request's, or a UUIDv7")
    campaign_id: str = Field(description="id of the campaign")
    arm: str | None = Field(description="id of the arm to play; null for none")
    reason: str = Field(
        description="archived, paused, not_started, ended, all_excluded, budget_exhausted, window_exhausted, holdout, "
        "shadow or policy; clients must expect more"
    )
    probability: float = Field(gt=0, description="exact, of the arm given")
    hold: Amounts = Field(description="by resource, the amount held until the costs are known; empty for the null arm")
    expires_at: str | None = Field(description="when the hold ends without feedback; null if nothing is held")
    round: int = Field(description="number of the decision in the campaign, from 0")
    policy_version: int = Field(description="number of outcomes that the policy has learnt")
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

    error: ProblemDocument = Field(description="why the item was not taken")


class Decisions(Answered):
    """Answers in the order of the items."""

    model_config = example({"decisions": [_DECISION, _BAD_ITEM]})

    decisions: list[Decision | ItemError] = Field(description="one answer per item: a decision or an error")


class FeedbackResult(Answered):
    """What the decision is now."""

    model_config = example(_SETTLED)

    campaign_id: str = Field(description="id of the campaign")
    decision_id: str = Field(description="id of the decision")
    status: str = Field(description="charged, rewarded, settled, voided, late or ignored")
    learned: bool = Field(description="whether the policy learns from the decision now")
    policy_version: int = Field(description="number of outcomes that the policy has learnt")
    warnings: list[str] = Field(description="reward_clipped, cost_missing, cost_above_hold, rounded, late_not_learnt")


class FeedbackResults(Answered):
    """Answers in the order of the items."""

    model_config = example({"results": [_SETTLED]})

    results: list[FeedbackResult | ItemError] = Field(description="one answer per item: a result or an error")
