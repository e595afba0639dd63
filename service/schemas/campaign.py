"""Bodies of `/campaigns`: a configuration, a change of it, and the state of a campaign."""

import secrets
import time
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cbwk_core import RULES_VERSION
from service.ids import uuid7
from service.limits import (
    ARMS_MAX,
    HORIZON_MAX,
    LATE_WINDOW_SECONDS_MAX,
    PARAMETER_MAX,
    RESOURCES_MAX,
    SEED_MAX,
    TTL_SECONDS_MAX,
    WINDOWS_MAX,
)
from service.problems import Misfit
from service.schemas.body import (
    Amount,
    Body,
    Change,
    Features,
    Id,
    Metadata,
    Moment,
    PositiveAmount,
    Status,
    Text,
    TimeZone,
    UniqueIds,
    Unit,
)
from service.schemas.space import Space, Sparse, unique
from service.schemas.view import At, CampaignName, View, example, page, shown

CONFIG_EXAMPLE: dict[str, Any] = {
    "id": "summer-sale",
    "display_name": "Summer sale",
    "metadata": {"owner": "growth"},
    "arms": [{"id": "banner-a"}, {"id": "banner-b", "max_cost": {"usd": 0.02}}],
    "resources": [
        {"id": "usd", "budget": 250, "max_cost": 0.05},
        {"id": "impressions", "budget": 50000, "max_cost": 1},
    ],
    "horizon": 100000,
    "starts_at": None,
    "ends_at": None,
    "timezone": "UTC",
    "portfolio": None,
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
    "null_arm": "allowed",
    "floor_arm": None,
    "holdout": None,
    "mode": "live",
    "seed": 7,
}


_DISPLAY_NAME = "name that people read; null for none"
_METADATA = "up to 20 strings of your own, such as an owner or an order number"
_METADATA_NEW = f"{_METADATA}; replaces all of them"
_UNIT = "what amounts of it count, such as EUR or impressions"
RULES_DESCRIPTION = "version of the decision rules, fixed when the campaign is created"
_EITHER_END = "must be given, or ends_at, and not both"
_ONE_END = "must be the only one of horizon and ends_at that is not null"


class Arm(Sparse):
    """An arm. Its max cost, by default that of the resource, is the hold of a decision for it."""

    id: Id = Field(description="id of the arm, unique in the campaign")
    max_cost: Annotated[dict[Id, Amount], Field(max_length=RESOURCES_MAX)] | None = Field(
        default=None,
        description="by resource: the most that one decision for this arm costs, and its hold; at most that of the "
        "resource, which is the default",
    )
    features: Features | None = Field(
        default=None, description='what describes the arm, as arm_features declares it; for model "shared" only'
    )
    display_name: Text | None = Field(default=None, description=_DISPLAY_NAME)
    metadata: Metadata | None = Field(default=None, description=_METADATA)


class Window(Body):
    """What may be held and spent of a resource in every period of the calendar of the campaign's time zone."""

    period: Literal["hour", "day", "week", "month"] = Field(description="a week begins on Monday")
    limit: PositiveAmount = Field(description="most that may be held and spent in a period")


Windows = Annotated[list[Window], Field(max_length=WINDOWS_MAX)]


class Resource(Sparse):
    """A budget; no decision costs more than `max_cost` of it."""

    id: Id = Field(description="id of the resource, unique in the campaign")
    budget: PositiveAmount = Field(description="total that the campaign may spend")
    max_cost: PositiveAmount = Field(
        description="most that one decision costs, which is held until its costs are known"
    )
    windows: Windows | None = Field(default=None, description="limits per hour, day, week or month")
    unit: Unit | None = Field(default=None, description=_UNIT)

    @model_validator(mode="after")
    def _has_each_period_once(self) -> Self:
        unique("windows", (window.period for window in self.windows or ()), "period")
        return self


class RewardRange(Body):
    """The range of rewards; a reward outside it is clipped."""

    min: float = Field(default=0, description="smallest reward")
    max: float = Field(default=1, description="largest reward; above min")

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.min < self.max or self.max - self.min == float("inf"):
            raise ValueError("must have min below max, and not endlessly far")
        return self


class Oracle(Body):
    """The model that predicts rewards and costs."""

    kind: Literal["newton", "gradient", "aggregate", "kernel"] = Field(
        default="newton",
        description="newton: linear, learns fastest; gradient: linear, cheap with many features; aggregate: means over "
        "cells, for one or two features; kernel: smooth curves",
    )
    link: Literal["identity", "logistic"] = Field(
        default="identity", description="identity for amounts, logistic for rewards that are 0 or 1"
    )
    forgetting: Annotated[float, Field(ge=0.5, le=1)] | None = Field(
        default=None,
        description="weight that an old outcome keeps with every new one; 1 never forgets; null: the model restarts "
        "when its errors show a change",
    )


class Policy(Body):
    """The policy that chooses arms."""

    preset: Literal["practical", "paper", "authors"] = Field(
        default="practical", description="practical: tuned for small regret; paper and authors: as published"
    )
    oracle: Oracle = Field(default=Oracle(), description="the model of rewards and costs")
    gamma: Literal["auto"] | Annotated[float, Field(gt=0, le=PARAMETER_MAX)] = Field(
        default="auto", description="learning rate γ: the larger, the less is explored; auto follows the preset"
    )
    z: Literal["auto"] | Annotated[float, Field(gt=0, le=PARAMETER_MAX)] = Field(
        default="auto", description="largest price Z; auto follows the preset"
    )
    two_stage: Literal["auto", "off", "measured", "paper", True, False] = Field(
        default="auto", description="auto is resolved when the campaign is created; the result is shown"
    )


class FeedbackTerms(Body):
    """How long feedback may take, and what is assumed if it is missing."""

    ttl_seconds: Annotated[int, Field(ge=1, le=TTL_SECONDS_MAX)] = Field(
        default=3600, description="seconds until a decision without feedback expires"
    )
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


class FeedbackTermsChange(Change, FeedbackTerms):
    """The feedback terms to change."""


class Holdout(Body):
    """A share of traffic that a baseline decides, for comparison. It starts after stage one, if there is one."""

    fraction: Annotated[float, Field(gt=0, lt=1)] = Field(description="share of the decisions, between 0 and 1")
    arm: Id | None = Field(description="the arm it plays when that is possible; null for none")


class CampaignConfig(Body):
    """A campaign: its arms, its budgets and the context of its requests."""

    model_config = example(CONFIG_EXAMPLE)

    id: Id = Field(
        default_factory=lambda: uuid7(time.time_ns() // 1000),
        description="id of the campaign; a UUIDv7 if it is left out",
    )
    display_name: Text | None = Field(default=None, description=_DISPLAY_NAME)
    metadata: Metadata = Field(default={}, description=_METADATA)
    arms: Annotated[list[Arm], Field(max_length=ARMS_MAX)] = Field(
        description='the choices; may be empty if model is "shared" and requests send actions'
    )
    resources: Annotated[list[Resource], Field(min_length=1, max_length=RESOURCES_MAX)] = Field(
        description="the budgets"
    )
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
    portfolio: Id | None = Field(
        default=None, description="the portfolio whose budgets it shares, for the resources that both name; it stays"
    )
    context: Space = Field(description="what is known about a request")
    reward: RewardRange = Field(default=RewardRange(), description="range of rewards")
    model: Literal["per_arm", "shared"] = Field(
        default="per_arm", description="per_arm: one model for each arm; shared: one model of context and arm features"
    )
    arm_features: Space | None = Field(default=None, description='the description of arms, for model "shared"')
    policy: Policy = Field(default=Policy(), description="how arms are chosen")
    feedback: FeedbackTerms = Field(
        default=FeedbackTerms(), description="how long feedback may take, and what is assumed without it"
    )
    null_arm: Literal["allowed", "last_resort"] = Field(
        default="allowed",
        description="last_resort: every request gets an arm as long as one can be paid, and what floor_arm needs for "
        "the rounds left stays in reserve; needs the preset practical",
    )
    floor_arm: Id | None = Field(default=None, description="the arm in reserve, with null_arm last_resort only")
    holdout: Holdout | None = Field(default=None, description="share of traffic for a baseline; null for none")
    mode: Literal["live", "shadow"] = Field(
        default="live",
        description="shadow: the caller plays baseline_arm, which is answered, held and learnt",
    )
    # A known seed reveals every draw in advance, so the default is random.
    seed: Annotated[int, Field(ge=0, le=SEED_MAX)] = Field(
        default_factory=lambda: secrets.randbelow(SEED_MAX),
        description="start of the random draws; random if it is left out",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.horizon is None) == (self.ends_at is None):
            raise Misfit("horizon", _EITHER_END)
        unique("resources", (resource.id for resource in self.resources))
        unique("arms", (arm.id for arm in self.arms))
        if (self.model == "shared") != (self.arm_features is not None):
            raise Misfit("arm_features", 'must be given if model is "shared", and only then')
        if self.model == "per_arm" and not self.arms:
            raise Misfit("arms", 'must have at least one, unless model is "shared" and requests send actions')
        if (self.null_arm == "last_resort") != (self.floor_arm is not None):
            raise Misfit("floor_arm", "must be given if null_arm is last_resort, and only then")
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


class _PartChange(Change):
    id: Id = Field(description="id of what changes")

    @model_validator(mode="after")
    def _changes(self) -> Self:
        if self.model_fields_set == {"id"}:
            raise ValueError("must have something to change")
        return self


class ResourceChange(_PartChange):
    """A new total budget, max cost or unit, new windows. Open decisions keep their holds."""

    budget: Amount = Field(default=0, description="at least what is spent and held")
    max_cost: PositiveAmount = Field(default=1, description="at least the max cost of every active arm")
    windows: Windows = Field(default=[], description="replaces all windows of the resource")
    unit: Unit | None = Field(default=None, description=_UNIT)

    @model_validator(mode="after")
    def _has_each_period_once(self) -> Self:
        unique("windows", (window.period for window in self.windows), "period")
        return self


class ArmChange(_PartChange):
    """New max costs, a new status or new names of an arm. Open decisions keep their holds."""

    max_cost: Annotated[dict[Id, Amount], Field(max_length=RESOURCES_MAX)] | None = Field(
        default=None, description="replaces the arm's max costs; a resource that is left out has its own"
    )
    status: Literal["active", "paused"] = Field(
        default="active", description="a paused arm is not chosen; a paused or retired one returns as active"
    )
    display_name: Text | None = Field(default=None, description=_DISPLAY_NAME)
    metadata: Metadata = Field(default={}, description=_METADATA_NEW)


class CampaignPatch(Change):
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

    display_name: Text | None = Field(default=None, description=_DISPLAY_NAME)
    metadata: Metadata = Field(default={}, description=_METADATA_NEW)
    resources: Annotated[list[ResourceChange], Field(max_length=RESOURCES_MAX)] = Field(
        default=[], description="resources that change"
    )
    horizon: Annotated[int, Field(ge=1, le=HORIZON_MAX)] | None = Field(
        default=None, description="above the number of decisions so far; clears ends_at"
    )
    starts_at: Moment | None = Field(
        default=None, description="only before the start, else 409; null starts the campaign now"
    )
    ends_at: Moment | None = Field(default=None, description="clears horizon, which is then estimated from traffic")
    arms: Annotated[list[ArmChange], Field(max_length=ARMS_MAX)] = Field(default=[], description="arms that change")
    add_arms: Annotated[list[Arm], Field(max_length=ARMS_MAX)] = Field(default=[], description="new arms")
    retire_arms: Annotated[UniqueIds, Field(max_length=ARMS_MAX)] = Field(
        default=[], description="ids of arms that are not chosen any more; their statistics stay"
    )
    feedback: FeedbackTermsChange = Field(default=FeedbackTermsChange(), description="feedback terms that change")
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
        unique("resources", (resource.id for resource in self.resources))
        unique("arms", [*(arm.id for arm in self.arms), *self.retire_arms])
        unique("add_arms", (arm.id for arm in self.add_arms))
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the given fields in JSON types."""
        return self.model_dump(exclude_unset=True)


class WindowView(View):
    """A window in its present period; a period without decisions yet has all of its limit free."""

    period: str = shown("day", "hour, day, week or month")
    starts_at: At = Field(description="start of the present period")
    ends_at: At = Field(description="end of the present period")
    limit: float = shown(20, "most that may be held and spent in the period")
    held: float = shown(0.35, "held by open decisions of the period")
    spent: float = shown(7.4, "costs of decisions of the period")
    free: float = shown(12.25, "limit − held − spent, at least 0")


class AccountView(View):
    """One resource. granted = free + held + spent unless the budget is overrun; a pace of 1 is on plan."""

    id: str = shown("usd", "id of the resource")
    unit: str | None = shown("USD", _UNIT)
    granted: float = shown(250, "the budget")
    held: float = shown(0.35, "held by open decisions")
    spent: float = shown(41.2, "reported and assumed costs")
    overrun: float = shown(0, "amount by which held + spent exceeds the budget")
    free: float = shown(208.45, "what new decisions may hold")
    pace: float | None = shown(
        1.02, "share of the budget that is spent over the share of the flight that has passed; null before the flight"
    )
    marginal_value: float | None = shown(
        1.71,
        "value of one more unit, in reward, by the price at the last decision; 0 if the resource is not scarce, "
        "null before the first decision; in a portfolio, of one more unit in both",
    )
    windows: list[WindowView] = Field(description="windows in their present periods")


class CampaignSummary(View):
    """A campaign in a list."""

    id: CampaignName = Field(description="id of the campaign")
    display_name: str | None = shown("Summer sale", _DISPLAY_NAME)
    metadata: dict[str, str] = shown({"owner": "growth"}, _METADATA)
    status: Status = Field(description="what the campaign does now")
    version: int = shown(1, "version of the configuration")
    round: int = shown(16150, "number of decisions that took a round")
    created_at: At = Field(description="when it was created")


class CampaignView(CampaignSummary):
    """The configuration and the state of a campaign."""

    policy_version: int = shown(15890, "number of outcomes learnt")
    rules: int = shown(RULES_VERSION, RULES_DESCRIPTION)
    config: dict[str, Any] = shown(CONFIG_EXAMPLE, "the configuration with its defaults")
    accounts: list[AccountView] = Field(description="one per resource")
    prices: dict[str, float] = shown({"usd": 1.71}, "λ by resource at the last decision, in reward per unit")


CampaignPage = page("CampaignPage", CampaignSummary, "Campaigns in the order of their creation.")
