"""The body of `/admin/campaigns/{id}/uplift`."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from service.schemas.base import Amounts, Answered, example


class UpliftInterval(Answered):
    """A difference of means per decision, policy minus hold-out, with its interval."""

    value: float | None
    lower: float | None
    upper: float | None


class UpliftGroup(Answered):
    """One side; means are per decision, over those whose outcome was learnt and those that played nothing."""

    decisions: int
    plays: int
    open: int = Field(description="plays without an outcome that counts, yet or for good")
    mean_reward: float | None
    mean_cost: Amounts | None


class UpliftGroups(Answered):
    """Both sides; decisions in which nothing could be played are on neither."""

    holdout: UpliftGroup
    policy: UpliftGroup


class UpliftDifference(Answered):
    """What the policy does beyond the baseline."""

    reward: UpliftInterval
    relative: float | None = Field(description="of the hold-out's mean reward, where that is above 0")
    costs: dict[str, UpliftInterval]


class HoldoutReport(Answered):
    """The policy beside its hold-out."""

    arm: str | None
    fraction: float
    level: float
    groups: UpliftGroups
    uplift: UpliftDifference


class ShadowArm(Answered):
    """How often an arm was played, and would have been."""

    id: str | None = Field(description="null for the null arm")
    did: int
    would_have: int


class ShadowReport(Answered):
    """What the policy would have done, over the newest decisions."""

    decisions: int
    agreement: float | None = Field(description="share of decisions in which it would have done the same")
    arms: list[ShadowArm]
    expected_reward: float | None = Field(description="per decision, by its own predictions of what it would have done")
    expected_cost: Amounts | None


class UpliftView(Answered):
    """The report of a hold-out, or of shadow mode; null where a campaign has neither."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "campaign_id": "summer-sale",
                "holdout": {
                    "arm": "banner-a",
                    "fraction": 0.05,
                    "level": 0.95,
                    "groups": {
                        "holdout": {
                            "decisions": 812,
                            "plays": 812,
                            "open": 9,
                            "mean_reward": 0.031,
                            "mean_cost": {"usd": 0.021, "impressions": 1},
                        },
                        "policy": {
                            "decisions": 15338,
                            "plays": 15001,
                            "open": 160,
                            "mean_reward": 0.043,
                            "mean_cost": {"usd": 0.023, "impressions": 0.98},
                        },
                    },
                    "uplift": {
                        "reward": {"value": 0.012, "lower": 0.0005, "upper": 0.0235},
                        "relative": 0.387,
                        "costs": {
                            "usd": {"value": 0.002, "lower": 0.001, "upper": 0.003},
                            "impressions": {"value": -0.02, "lower": -0.022, "upper": -0.018},
                        },
                    },
                },
                "shadow": None,
            }
        )
    )

    campaign_id: str
    holdout: HoldoutReport | None
    shadow: ShadowReport | None
