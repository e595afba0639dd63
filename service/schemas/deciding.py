"""Bodies of `/decide` and `/feedback`."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, SkipValidation, model_validator

from service.limits import ACTIONS_MAX, EXCLUDE_MAX, ITEMS_MAX, RESOURCES_MAX
from service.schemas.base import TWICE, Amount, Amounts, Answered, Body, Cost, Features, Id, Misfit, example
from service.schemas.problem import ProblemDocument

_CONTEXT = {"device": "mobile", "hour": 13, "site": "news.example"}
_DECISION = {
    "decision_id": "0197f0c4-8a00-7000-8000-5d1c2f0b9e11",
    "campaign_id": "summer-sale",
    "arm": "banner-a",
    "reason": "policy",
    "probability": 0.83,
    "hold": {"usd": 0.05, "impressions": 1},
    "expires_at": "2026-11-16T10:00:00Z",
    "round": 1042,
    "policy_version": 977,
}
_FEEDBACK = {
    "campaign_id": "summer-sale",
    "decision_id": "0197f0c4-8a00-7000-8000-5d1c2f0b9e11",
    "reward": 1.0,
    "costs": {"usd": 0.031, "impressions": 1},
}
_SETTLED = {
    "campaign_id": "summer-sale",
    "decision_id": "0197f0c4-8a00-7000-8000-5d1c2f0b9e11",
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
        "detail": "items.1 cannot be taken as it is",
        "errors": [{"field": "items.1.context", "message": "Field required"}],
    }
}


class Action(Body):
    """One candidate of a request, under `model: "shared"`."""

    id: Id
    features: Features
    max_cost: Annotated[dict[Id, Amount], Field(max_length=RESOURCES_MAX)] | None = None


def _different(actions: list[Action]) -> list[Action]:
    if len({action.id for action in actions}) != len(actions):
        raise ValueError(TWICE)
    return actions


class DecideItem(Body):
    """One request of a batch."""

    decision_id: Id | None = Field(default=None, description="chosen by the client, who may then repeat the request")
    context: Features = Field(description="by feature name, or a list where the campaign declares a dimension")
    exclude: Annotated[list[Id], Field(max_length=EXCLUDE_MAX)] = Field(
        default_factory=list, description="arms not to choose"
    )
    actions: Annotated[list[Action], Field(min_length=1, max_length=ACTIONS_MAX), AfterValidator(_different)] | None = (
        Field(default=None, description='replace the campaign\'s arms, where its model is "shared"')
    )

    baseline_arm: Id | None = Field(
        default=None, description="in shadow mode, and only there: what will be played, null for nothing"
    )

    def plain_actions(self) -> list[dict[str, Any]] | None:
        """The actions as the engine takes them."""
        return None if self.actions is None else [action.model_dump(exclude_none=True) for action in self.actions]


class DecideRequest(DecideItem):
    """Which of these arms for this request?"""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "campaign_id": "summer-sale",
                "decision_id": "checkout-7f3a",
                "context": _CONTEXT,
                "exclude": ["banner-b"],
                "explain": False,
            }
        )
    )

    campaign_id: Id
    explain: bool = Field(default=False, description="add what the policy thought of every arm")


class DecideBatch(Body):
    """Several requests of one campaign, answered in one transaction."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "campaign_id": "summer-sale",
                "items": [{"context": _CONTEXT}, {"context": {"device": "tv", "hour": 7, "site": "shop.example"}}],
            }
        )
    )

    campaign_id: Id
    # Each item is judged by itself: a bad one is an error in its own place.
    items: Annotated[list[SkipValidation[DecideItem]], Field(max_length=ITEMS_MAX)]


class SoundDecideBatch(Body):
    """The same where all items are in order: checked in one go, which takes half the time."""

    campaign_id: Id
    items: Annotated[list[DecideItem], Field(max_length=ITEMS_MAX)]


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
    """The policy's own choice where somebody else decided, and what it expected of it."""

    arm: str | None
    reason: str
    probability: float
    reward: float
    cost: Amounts


class Decision(Answered):
    """The arm to play; null for none, which costs nothing and needs no feedback."""

    model_config = ConfigDict(json_schema_extra=example(_DECISION))

    decision_id: str
    campaign_id: str
    arm: str | None
    reason: str = Field(
        description="archived, paused, ended, all_excluded, budget_exhausted, holdout, shadow or policy; clients must "
        "expect more"
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


class ItemError(Answered):
    """An item that could not be taken."""

    error: ProblemDocument


class Decisions(Answered):
    """Answers in the order of the items."""

    model_config = ConfigDict(json_schema_extra=example({"decisions": [_DECISION, _BAD_ITEM]}))

    decisions: list[Decision | ItemError]


class FeedbackRequest(Body):
    """What became of a decision: reward, costs, both, or that it was void."""

    model_config = ConfigDict(json_schema_extra=example(_FEEDBACK))

    campaign_id: Id
    decision_id: Id
    reward: float | None = None
    costs: Annotated[dict[Id, Cost], Field(max_length=RESOURCES_MAX)] | None = Field(
        default=None, description="by resource; one that is missing costs 0"
    )
    void: bool = Field(default=False, description="not shown: frees the hold, teaches nothing")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        said = self.reward is not None or self.costs is not None
        if self.void and said:
            raise Misfit("void", "must stand alone, without reward and costs")
        if not self.void and not said:
            raise ValueError("must have reward, costs or void: true")
        return self


class FeedbackBatch(Body):
    """What became of several decisions, booked in one transaction."""

    model_config = ConfigDict(json_schema_extra=example({"items": [_FEEDBACK]}))

    items: Annotated[list[SkipValidation[FeedbackRequest]], Field(max_length=ITEMS_MAX)]


class SoundFeedbackBatch(Body):
    """The same where all items are in order."""

    items: Annotated[list[FeedbackRequest], Field(max_length=ITEMS_MAX)]


class FeedbackResult(Answered):
    """What the decision is now."""

    model_config = ConfigDict(json_schema_extra=example(_SETTLED))

    campaign_id: str
    decision_id: str
    status: str = Field(description="charged, rewarded, settled, voided, late or ignored")
    learned: bool
    policy_version: int
    warnings: list[str] = Field(description="reward_clipped, cost_above_hold, rounded, late_not_learnt")


class FeedbackResults(Answered):
    """Answers in the order of the items."""

    model_config = ConfigDict(json_schema_extra=example({"results": [_SETTLED]}))

    results: list[FeedbackResult | ItemError]
