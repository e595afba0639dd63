"""Bodies of `/campaigns`: a configuration, a change of it, and the state of a campaign."""

import secrets
import time
from collections.abc import Hashable, Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from cbwk_core import RULES_VERSION
from cbwk_core.features.feature import BUCKETS_MAX, DIMENSION_MAX
from service.features import encoder_of
from service.ids import uuid7
from service.limits import (
    ARMS_MAX,
    FEATURES_MAX,
    HORIZON_MAX,
    LATE_WINDOW_SECONDS_MAX,
    PARAMETER_MAX,
    RESOURCES_MAX,
    SEED_MAX,
    TTL_SECONDS_MAX,
    WINDOWS_MAX,
)
from service.problems import Misfit, misfit_of, without_values
from service.schemas.body import (
    Amount,
    Body,
    Features,
    Id,
    Moment,
    Name,
    PositiveAmount,
    Status,
    TimeZone,
    UniqueIds,
    Value,
)
from service.schemas.view import At, CampaignName, View, example, page, shown

CONFIG_EXAMPLE: dict[str, Any] = {
    "id": "summer-sale",
    "arms": [{"id": "banner-a"}, {"id": "banner-b", "max_cost": {"usd": 0.02}}],
    "resources": [
        {"id": "usd", "budget": 250, "max_cost": 0.05},
        {"id": "impressions", "budget": 50000, "max_cost": 1},
    ],
    "horizon": 100000,
    "starts_at": None,
    "ends_at": None,
    "timezone": "UTC",
    "context": {
        "features": [
            {"name": "hour", "type": "number", "min": 0, "max": 23},
            {"name": "device", "type": "category", "values": ["mobile", "desktop"]},
            {"name": "site", "type": "hash", "buckets": 16},
        ]
    },
    "reward": {"min": 0, "max": 1},
    "model": "per_arm",
    "arm_features": None,
    "policy": {
        "preset": "practical",
        "oracle": {"kind": "newton", "link": "identity", "forgetting": None},
        "gamma": "auto",
        "z": "auto",
        "two_stage": "auto",
    },
    "feedback": {"ttl_seconds": 3600, "late_window_seconds": 604800, "missing_reward": 0, "missing_cost": "hold"},
    "holdout": None,
    "mode": "live",
    "seed": 7,
}


RULES_DESCRIPTION = "version of the decision rules, fixed when the campaign is created"
_EITHER_END = "must be given, or ends_at, and not both"
_ONE_END = "must be the only one of horizon and ends_at that is not null"


def _unique(field: str, items: Iterable[Hashable], what: str = "id") -> None:
    """Refuse repeated items with a Misfit."""
    listed = [*items]
    if len(set(listed)) != len(listed):
        raise Misfit(field, f"must not have the same {what} twice")


class _Sparse(Body):
    """A part that is stored and shown without its null fields."""

    @model_serializer(mode="wrap")
    def _without_nulls(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}


class _Feature(_Sparse):
    name: Name

    @model_validator(mode="after")
    def _fits_the_library(self) -> Self:
        try:
            encoder_of({"features": [self.model_dump()]})
        except ValueError as error:
            raise ValueError(without_values(str(error)).replace(f"feature {self.name!r}", "a feature")) from None
        return self


class NumberFeature(_Feature):
    """A number, scaled by its range. A number outside the range is clipped, or refused with 422 when strict."""

    type: Literal["number"]
    min: float
    max: float
    default: float | None = None
    strict: bool = False


class CategoryFeature(_Feature):
    """One of the declared strings. Another string is encoded as zeros, or refused with 422 when strict."""

    type: Literal["category"]
    values: Annotated[list[Value], Field(min_length=1, max_length=DIMENSION_MAX)]
    default: Value | None = None
    strict: bool = False


class HashFeature(_Feature):
    """Any string, for identifiers that are too many to declare."""

    type: Literal["hash"]
    buckets: Annotated[int, Field(ge=1, le=BUCKETS_MAX)]
    default: Value | None = None


Feature = Annotated[NumberFeature | CategoryFeature | HashFeature, Field(discriminator="type")]


class Space(_Sparse):
    """The description of a context or an arm: named features, or a list of numbers of this dimension."""

    features: Annotated[list[Feature], Field(min_length=1, max_length=FEATURES_MAX)] | None = None
    dimension: Annotated[int, Field(ge=1, le=DIMENSION_MAX)] | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.features is None) == (self.dimension is None):
            raise ValueError("must have either features or dimension")
        _unique("features", (feature.name for feature in self.features or ()), "name")
        with misfit_of("features"):
            encoder_of(self.model_dump())
        return self


class Arm(_Sparse):
    """An arm. Its max cost, by default that of the resource, is the hold of a decision for it."""

    id: Id
    max_cost: Annotated[dict[Id, Amount], Field(max_length=RESOURCES_MAX)] | None = None
    features: Features | None = None


class Window(Body):
    """What may be held and spent of a resource in every period of the calendar of the campaign's time zone."""

    period: Literal["hour", "day", "week", "month"] = Field(description="a week begins on Monday")
    limit: PositiveAmount


Windows = Annotated[list[Window], Field(max_length=WINDOWS_MAX)]


class Resource(_Sparse):
    """A budget; no decision costs more than `max_cost` of it."""

    id: Id
    budget: PositiveAmount
    max_cost: PositiveAmount
    windows: Windows | None = Field(default=None, description="limits per hour, day, week or month")

    @model_validator(mode="after")
    def _has_each_period_once(self) -> Self:
        _unique("windows", (window.period for window in self.windows or ()), "period")
        return self


class RewardRange(Body):
    """The range of rewards; a reward outside it is clipped."""

    min: float = 0
    max: float = 1

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.min < self.max or self.max - self.min == float("inf"):
            raise ValueError("must have min below max, and not endlessly far")
        return self


class Oracle(Body):
    """The model that predicts rewards and costs."""

    kind: Literal["newton", "gradient", "aggregate", "kernel"] = "newton"
    link: Literal["identity", "logistic"] = "identity"
    forgetting: Annotated[float, Field(ge=0.5, le=1)] | None = None


class Policy(Body):
    """The policy that chooses arms."""

    preset: Literal["practical", "paper", "authors"] = "practical"
    oracle: Oracle = Oracle()
    gamma: Literal["auto"] | Annotated[float, Field(gt=0, le=PARAMETER_MAX)] = "auto"
    z: Literal["auto"] | Annotated[float, Field(gt=0, le=PARAMETER_MAX)] = "auto"
    two_stage: Literal["auto", "off", "measured", "paper", True, False] = Field(
        default="auto", description="auto is resolved when the campaign is created; the result is shown"
    )


class FeedbackTermsChange(Body):
    """The feedback terms to change."""

    ttl_seconds: Annotated[int, Field(ge=1, le=TTL_SECONDS_MAX)] = 3600
    late_window_seconds: Annotated[int, Field(ge=0, le=LATE_WINDOW_SECONDS_MAX)] = Field(
        default=604_800,
        description="how long an expired or voided decision is kept at least, for late costs; "
        "costs are booked as long as the decision is not pruned",
    )
    missing_reward: float | None = Field(default=0, description="null: an expired decision teaches nothing")
    missing_cost: Literal["hold", "none"] = Field(
        default="hold",
        description="hold: an expired decision is charged its whole hold, and a resource that a report of costs leaves "
        "out the hold of that resource; none: both cost nothing",
    )


class FeedbackTerms(FeedbackTermsChange):
    """How long feedback may take, and what is assumed if it is missing."""


class Holdout(Body):
    """A share of traffic that a baseline decides, for comparison. It starts after stage one, if there is one."""

    fraction: Annotated[float, Field(gt=0, lt=1)]
    arm: Id | None = Field(description="the arm it plays when that is possible; null for none")


class CampaignConfig(Body):
    """A campaign: its arms, its budgets and the context of its requests."""

    model_config = example(CONFIG_EXAMPLE)

    id: Id = Field(default_factory=lambda: uuid7(time.time_ns() // 1000))
    arms: Annotated[list[Arm], Field(max_length=ARMS_MAX)]
    resources: Annotated[list[Resource], Field(min_length=1, max_length=RESOURCES_MAX)]
    horizon: Annotated[int, Field(ge=1, le=HORIZON_MAX)] | None = Field(
        default=None, description="expected number of decisions; or set ends_at"
    )
    starts_at: Moment | None = Field(
        default=None, description="start of the campaign; requests before it get no arm, for the reason not_started"
    )
    ends_at: Moment | None = Field(
        default=None, description="end of the campaign; its horizon is estimated from traffic"
    )
    timezone: TimeZone = Field(default="UTC", description="IANA name of the time zone whose calendar windows follow")
    context: Space
    reward: RewardRange = RewardRange()
    model: Literal["per_arm", "shared"] = "per_arm"
    arm_features: Space | None = Field(default=None, description='the description of arms, for model "shared"')
    policy: Policy = Policy()
    feedback: FeedbackTerms = FeedbackTerms()
    holdout: Holdout | None = None
    mode: Literal["live", "shadow"] = Field(
        default="live",
        description="shadow: the caller plays baseline_arm, which is answered, held and learnt",
    )
    # A known seed reveals every draw in advance, so the default is random.
    seed: Annotated[int, Field(ge=0, le=SEED_MAX)] = Field(default_factory=lambda: secrets.randbelow(SEED_MAX))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.horizon is None) == (self.ends_at is None):
            raise Misfit("horizon", _EITHER_END)
        _unique("resources", (resource.id for resource in self.resources))
        _unique("arms", (arm.id for arm in self.arms))
        if (self.model == "shared") != (self.arm_features is not None):
            raise Misfit("arm_features", 'must be given if model is "shared", and only then')
        if self.model == "per_arm" and not self.arms:
            raise Misfit("arms", 'must have at least one, unless model is "shared" and requests send actions')
        if self.mode == "shadow" and self.policy.two_stage not in ("auto", "off", False):
            raise Misfit("policy.two_stage", "must be off in shadow mode: stage one draws arms itself")
        low, high, missing = self.reward.min, self.reward.max, self.feedback.missing_reward
        if "missing_reward" in self.feedback.model_fields_set and missing is not None and not low <= missing <= high:
            raise Misfit("feedback.missing_reward", "must lie within the range of reward")
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the configuration in JSON types, with its defaults."""
        config = self.model_dump()
        if "missing_reward" not in self.feedback.model_fields_set:
            low, high = self.reward.min, self.reward.max
            config["feedback"]["missing_reward"] = min(max(0, low), high)
        return config


class _Change(Body):
    id: Id

    @model_validator(mode="after")
    def _changes(self) -> Self:
        if self.model_fields_set == {"id"}:
            raise ValueError("must have something to change")
        return self


class ResourceChange(_Change):
    """A new total budget, a new max cost, new windows. Open decisions keep their holds."""

    budget: Amount = Field(default=0, description="at least what is spent and held")
    max_cost: PositiveAmount = Field(default=1, description="at least the max cost of every active arm")
    windows: Windows = Field(default=[], description="replaces all windows of the resource")

    @model_validator(mode="after")
    def _has_each_period_once(self) -> Self:
        _unique("windows", (window.period for window in self.windows), "period")
        return self


class ArmChange(_Change):
    """New max costs of an arm, a new status, or both. Open decisions keep their holds."""

    max_cost: Annotated[dict[Id, Amount], Field(max_length=RESOURCES_MAX)] | None = Field(
        default=None, description="replaces the arm's max costs; a resource that is left out has its own"
    )
    status: Literal["active", "paused"] = Field(
        default="active", description="a paused arm is not chosen; a paused or retired one returns as active"
    )


class CampaignPatch(Body):
    """A change of the configuration; the campaign keeps what it has learnt."""

    model_config = example(
        {
            "resources": [{"id": "usd", "budget": 300, "max_cost": 0.04}],
            "arms": [{"id": "banner-a", "status": "paused"}],
            "add_arms": [{"id": "banner-c"}],
            "retire_arms": ["banner-b"],
            "expected_version": 1,
        }
    )

    resources: Annotated[list[ResourceChange], Field(max_length=RESOURCES_MAX)] = Field(default=[])
    horizon: Annotated[int, Field(ge=1, le=HORIZON_MAX)] | None = Field(
        default=None, description="above the number of decisions so far; clears ends_at"
    )
    starts_at: Moment | None = Field(
        default=None, description="only before the start, else 409; null starts the campaign now"
    )
    ends_at: Moment | None = Field(default=None, description="clears horizon, which is then estimated from traffic")
    arms: Annotated[list[ArmChange], Field(max_length=ARMS_MAX)] = Field(default=[])
    add_arms: Annotated[list[Arm], Field(max_length=ARMS_MAX)] = Field(default=[])
    retire_arms: Annotated[UniqueIds, Field(max_length=ARMS_MAX)] = Field(default=[])
    feedback: FeedbackTermsChange = FeedbackTermsChange()
    holdout: Holdout | None = Field(default=None, description="null ends it")
    mode: Literal["live"] = Field(default="live", description="a shadow campaign goes live with what it has learnt")
    expected_version: Annotated[int, Field(ge=1)] = Field(
        default=1, description="the version that this change is for; 409 if the campaign has another"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.model_fields_set - {"expected_version"}:
            raise ValueError("must have something to change")
        ends = self.model_fields_set & {"horizon", "ends_at"}
        if ends and (self.horizon is None) == (self.ends_at is None):
            raise Misfit(sorted(ends)[-1], _ONE_END)
        _unique("resources", (resource.id for resource in self.resources))
        _unique("arms", [*(arm.id for arm in self.arms), *self.retire_arms])
        _unique("add_arms", (arm.id for arm in self.add_arms))
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the given fields in JSON types."""
        return self.model_dump(exclude_unset=True)


class WindowView(View):
    """A window in its present period; a period without decisions yet has all of its limit free."""

    period: str = shown("day")
    starts_at: At
    ends_at: At
    limit: float = shown(20)
    held: float = shown(0.35)
    spent: float = shown(7.4)
    free: float = shown(12.25)


class AccountView(View):
    """One resource. granted = free + held + spent unless the budget is overrun; a pace of 1 is on plan."""

    id: str = shown("usd")
    granted: float = shown(250)
    held: float = shown(0.35)
    spent: float = shown(41.2)
    overrun: float = shown(0)
    free: float = shown(208.45)
    pace: float | None = shown(1.02)
    marginal_value: float | None = shown(
        1.71,
        "value of one more unit, in reward, by the price at the last decision; 0 if the resource is not scarce, "
        "null before the first decision",
    )
    windows: list[WindowView]


class CampaignSummary(View):
    """A campaign in a list."""

    id: CampaignName
    status: Status
    version: int = shown(1, "version of the configuration")
    round: int = shown(16150)
    created_at: At


class CampaignView(CampaignSummary):
    """The configuration and the state of a campaign."""

    policy_version: int = shown(15890, "number of outcomes learnt")
    rules: int = shown(RULES_VERSION, RULES_DESCRIPTION)
    config: dict[str, Any] = shown(CONFIG_EXAMPLE)
    accounts: list[AccountView]
    prices: dict[str, float] = shown({"usd": 1.71}, "λ by resource at the last decision, in reward per unit")


CampaignPage = page("CampaignPage", CampaignSummary, "Campaigns in the order of their creation.")
