"""The body of `/admin/campaigns/{id}/uplift`."""

from __future__ import annotations

from service.schemas.base import Amounts, CampaignName, View, shown


class UpliftInterval(View):
    """A difference of means per decision, policy minus hold-out, with its interval."""

    value: float | None = shown(0.012)
    lower: float | None = shown(0.0005)
    upper: float | None = shown(0.0235)


class UpliftGroup(View):
    """One group; its means per decision count decisions with a learnt outcome and decisions that played nothing."""

    decisions: int = shown(15338)
    plays: int = shown(15001)
    open: int = shown(160, "plays without an outcome that counts, so far or finally")
    mean_reward: float | None = shown(0.043)
    mean_cost: Amounts | None = shown({"usd": 0.023, "impressions": 0.98})


class UpliftGroups(View):
    """Both groups; decisions in which no arm could be played are in neither."""

    holdout: UpliftGroup
    policy: UpliftGroup


class UpliftDifference(View):
    """The advantage of the policy over the baseline."""

    reward: UpliftInterval
    relative: float | None = shown(0.387, "relative to the hold-out's mean reward, if that is above 0")
    costs: dict[str, UpliftInterval] = shown({"usd": UpliftInterval.example()})


class HoldoutReport(View):
    """The policy compared with its hold-out."""

    arm: str | None = shown("banner-a")
    fraction: float = shown(0.05)
    level: float = shown(0.95)
    groups: UpliftGroups
    uplift: UpliftDifference


class ShadowArm(View):
    """How often an arm was played, and how often the policy would have played it."""

    id: str | None = shown("banner-a", "null for the null arm")
    did: int = shown(812)
    would_have: int = shown(790)


class ShadowReport(View):
    """What the policy would have done, over the newest decisions."""

    decisions: int = shown(1000)
    agreement: float | None = shown(0.93, "share of decisions in which the policy would have done the same")
    arms: list[ShadowArm]
    expected_reward: float | None = shown(0.041, "per decision of the policy, by its own predictions")
    expected_cost: Amounts | None = shown({"usd": 0.023, "impressions": 0.98})


class UpliftView(View):
    """The report of the hold-out or of shadow mode; null if the campaign does not have it."""

    campaign_id: CampaignName
    holdout: HoldoutReport | None = shown(HoldoutReport.example())
    shadow: ShadowReport | None
