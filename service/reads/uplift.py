"""The policy compared with its hold-out, and with the caller in shadow mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Double, func, select

from service.domain.campaign import Campaign
from service.domain.decision_rows import would_have
from service.domain.holdout import HOLDOUT
from service.domain.stage_one import STAGE
from service.domain.windows import WINDOW_EXHAUSTED
from service.money import ONE
from service.reads.shared import StoredCampaign, stored_campaign
from service.store import tables
from service.store.log_amounts import element

LEVEL = 0.95
# The newest decisions of a shadow campaign, of which the report is made.
SHADOWED_MAX = 100_000
# Reasons of decisions that belong to no group: no arm could be played.
_FORCED = ("all_excluded", "budget_exhausted", WINDOW_EXHAUSTED)


def uplift(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Both reports; each is null if the campaign is not of that kind."""
    stored = stored_campaign(connection, campaign_id)
    terms = stored.campaign.config.get("holdout")
    return {
        "campaign_id": campaign_id,
        "holdout": None if terms is None else _compared(connection, stored, terms),
        "shadow": _shadowed(connection, stored) if stored.campaign.shadows else None,
    }


@dataclass(frozen=True, slots=True)
class Sums:
    """One quantity of one group: sums over the decisions with a known outcome or the null arm."""

    count: int
    total: float
    squares: float

    @property
    def mean(self) -> float | None:
        """The mean per decision."""
        return self.total / self.count if self.count else None

    @property
    def variance(self) -> float:
        """The variance of the mean."""
        if self.count < 2:
            return float("inf")
        spread = max(self.squares - self.total * self.total / self.count, 0.0) / (self.count - 1)
        return spread / self.count


@dataclass(frozen=True, slots=True)
class Ratio:
    """Reward per unit of a cost of one group, with the variance of its linear approximation (the delta method)."""

    reward: Sums
    cost: Sums
    products: float  # the sum of reward times cost

    @property
    def count(self) -> int:
        """The number of decisions."""
        return self.reward.count

    @property
    def mean(self) -> float | None:
        """The reward per unit; None if nothing was spent."""
        return self.reward.total / self.cost.total if self.cost.total > 0.0 else None

    @property
    def variance(self) -> float:
        """The variance of `mean`: of the residuals reward - mean * cost, whose sum is 0, per squared mean cost."""
        ratio = self.mean
        if self.count < 2 or ratio is None:
            return float("inf")
        squares = self.reward.squares - 2.0 * ratio * self.products + ratio * ratio * self.cost.squares
        return max(squares, 0.0) * self.count / (self.count - 1) / self.cost.total**2


class Group(NamedTuple):
    """One side of a comparison."""

    decisions: int
    plays: int
    open: int  # without an outcome that was learnt, so far or for good
    quantities: Sequence[Sums]  # the reward, then the costs
    ratios: Sequence[Ratio]  # the reward per unit of each cost


def _compared(connection: Connection, stored: StoredCampaign, terms: dict[str, Any]) -> dict[str, Any]:
    """Means per decision of both groups, and their difference with an interval; without pruned decisions."""
    names = ["reward", *stored.campaign.resources]
    after = _start(connection, stored)
    held_out, policy = (_group(connection, stored, after, of_holdout=of) for of in (True, False))
    differences = [_difference(a, b) for a, b in zip(policy.quantities, held_out.quantities, strict=True)]
    per_cost = [_difference(a, b) for a, b in zip(policy.ratios, held_out.ratios, strict=True)]
    base = held_out.quantities[0].mean
    relative = None
    if base and base > 0 and differences[0]["value"] is not None:
        relative = differences[0]["value"] / base
    return {
        "arm": terms["arm"],
        "fraction": terms["fraction"],
        "level": LEVEL,
        "groups": {"holdout": _shown(held_out, names), "policy": _shown(policy, names)},
        "uplift": {
            "reward": differences[0],
            "relative": relative,
            "costs": dict(zip(names[1:], differences[1:], strict=True)),
            "reward_per_cost": dict(zip(names[1:], per_cost, strict=True)),
        },
    }


def _start(connection: Connection, stored: StoredCampaign) -> int:
    """The number of the log after which both groups exist: stage one, which only explores, has no hold-out."""
    if stored.campaign.two_stage in ("off", False):
        return 0
    change = tables.change
    ended = connection.execute(
        select(func.min(change.c.sequence)).where(change.c.campaign == stored.campaign.number, change.c.kind == STAGE)
    ).scalar()
    return stored.sequence if ended is None else int(ended)


def _group(connection: Connection, stored: StoredCampaign, after: int, *, of_holdout: bool) -> Group:
    decision, outcome, campaign = tables.decision, tables.outcome, stored.campaign
    of_group = decision.c.reason == HOLDOUT if of_holdout else decision.c.reason.not_in((HOLDOUT, *_FORCED))
    # Decisions before the hold-out got its present terms compare something else.
    within = (
        decision.c.campaign == campaign.number,
        decision.c.config_version >= campaign.config.get("holdout_since", 1),
        decision.c.sequence > after,
        decision.c.sequence <= stored.sequence,
        of_group,
    )
    decisions, plays = connection.execute(select(func.count(), func.count(decision.c.arm_id)).where(*within)).one()
    # Costs as real numbers, too: squares of millionths exceed 64 bits.
    units = [1, *[ONE] * len(campaign.resources)]
    columns = [element(connection, outcome.c.taught, index, Double) / unit for index, unit in enumerate(units)]
    sums = [total for column in columns for total in (func.sum(column), func.sum(column * column))]
    sums += [func.sum(columns[0] * column) for column in columns[1:]]
    row = connection.execute(
        select(func.count(), *sums)
        .select_from(decision)
        .join(outcome, tables.decision_of_outcome)
        .where(*within, tables.is_learnt, outcome.c.sequence <= stored.sequence)
    ).one()
    known, count = int(row[0]), int(row[0]) + decisions - plays
    pairs = [(float(row[1 + 2 * i] or 0), float(row[2 + 2 * i] or 0)) for i in range(len(columns))]
    total, squares = _unscaled(campaign, known, *pairs[0])
    reward, costs = Sums(count, total, squares), [Sums(count, *pair) for pair in pairs[1:]]
    low, high = campaign.config["reward"]["min"], campaign.config["reward"]["max"]
    products = [
        low * cost.total + (high - low) * float(product or 0)
        for cost, product in zip(costs, row[1 + 2 * len(columns) :], strict=True)
    ]
    ratios = [Ratio(reward, cost, product) for cost, product in zip(costs, products, strict=True)]
    return Group(decisions, plays, plays - known, [reward, *costs], ratios)


def _unscaled(campaign: Campaign, count: int, total: float, squares: float) -> tuple[float, float]:
    """The sums of `count` rewards and of their squares in the declared range, from those in [0, 1]."""
    low = campaign.config["reward"]["min"]
    span = campaign.config["reward"]["max"] - low
    return count * low + span * total, count * low * low + 2 * low * span * total + span * span * squares


def _difference(left: Sums | Ratio, right: Sums | Ratio) -> dict[str, float | None]:
    """The difference of two means with an interval that allows for unequal variances (Welch 1947)."""
    if left.mean is None or right.mean is None:
        return {"value": None, "lower": None, "upper": None}
    value, variance = left.mean - right.mean, left.variance + right.variance
    if variance == float("inf"):
        return {"value": value, "lower": None, "upper": None}
    if variance == 0.0:
        return {"value": value, "lower": value, "upper": value}
    from scipy.special import stdtrit  # noqa: PLC0415 - only this function needs it

    freedom = variance**2 / sum(sums.variance**2 / (sums.count - 1) for sums in (left, right))
    reach = float(stdtrit(freedom, 0.5 + LEVEL / 2)) * variance**0.5
    return {"value": value, "lower": value - reach, "upper": value + reach}


def _shown(group: Group, names: Sequence[str]) -> dict[str, Any]:
    reward, *costs = (sums.mean for sums in group.quantities)
    return {
        "decisions": group.decisions,
        "plays": group.plays,
        "open": group.open,
        "mean_reward": reward,
        "mean_cost": None if reward is None else dict(zip(names[1:], costs, strict=True)),
        "reward_per_cost": dict(zip(names[1:], (ratio.mean for ratio in group.ratios), strict=True)),
    }


def _shadowed(connection: Connection, stored: StoredCampaign) -> dict[str, Any]:
    """The choices of the caller and of the policy, and what the policy expected of its own."""
    decision = tables.decision
    rows = connection.execute(
        select(decision.c.shadow)
        .where(
            decision.c.campaign == stored.campaign.number,
            decision.c.sequence <= stored.sequence,
            decision.c.shadow.is_not(None),
        )
        .order_by(decision.c.sequence.desc())
        .limit(SHADOWED_MAX),
        execution_options={"yield_per": 1_000},
    )
    did, would, agreed, reward = Counter[str | None](), Counter[str | None](), 0, 0.0
    costs = Counter(dict.fromkeys(stored.campaign.resources, 0.0))
    for (shadow,) in rows:
        choice, baseline = would_have(stored.campaign, shadow), orjson.loads(shadow)["baseline"]
        did[baseline] += 1
        would[choice["arm"]] += 1
        agreed += baseline == choice["arm"]
        reward += choice["reward"]
        costs.update(choice["cost"])
    count = did.total()
    arms = [*stored.campaign.arms, *sorted(str(arm) for arm in {*did, *would} - {*stored.campaign.arms, None}), None]
    return {
        "decisions": count,
        "agreement": agreed / count if count else None,
        "arms": [{"id": arm, "did": did[arm], "would_have": would[arm]} for arm in arms],
        "expected_reward": reward / count if count else None,
        "expected_cost": {name: cost / count for name, cost in costs.items()} if count else None,
    }
