"""How the policy does beside a hold-out, and what it would have done in shadow mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, func, select

from service.domain.campaign import Campaign
from service.engine.holdout import HOLDOUT, would_have
from service.engine.stage_one import STAGE
from service.money import ONE
from service.reads.shared import Seen, real_element, seen
from service.store import tables

LEVEL = 0.95
# Decisions of a shadow campaign that are looked at, the newest ones.
SHADOWED_MAX = 100_000
# Decisions that no group made: nothing could be played.
_FORCED = ("all_excluded", "budget_exhausted")


def uplift(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Both reports, each null where the campaign is not of that kind."""
    one = seen(connection, campaign_id)
    terms = one.campaign.config.get("holdout")
    return {
        "campaign_id": campaign_id,
        "holdout": None if terms is None else _compared(connection, one, terms),
        "shadow": _shadowed(connection, one) if one.campaign.shadows else None,
    }


@dataclass(frozen=True, slots=True)
class Sums:
    """Of one group: decisions whose outcome is known or that played nothing, and sums of one quantity over them."""

    count: int
    total: float
    squares: float

    @property
    def mean(self) -> float | None:
        """Per decision."""
        return self.total / self.count if self.count else None

    @property
    def variance(self) -> float:
        """Of the mean."""
        if self.count < 2:
            return float("inf")
        spread = max(self.squares - self.total * self.total / self.count, 0.0) / (self.count - 1)
        return spread / self.count


@dataclass(frozen=True, slots=True)
class Group:
    """One side of a comparison."""

    decisions: int
    plays: int
    open: int  # without an outcome that counts, yet or for good
    quantities: Sequence[Sums]  # the reward, then the costs


def _compared(connection: Connection, one: Seen, terms: dict[str, Any]) -> dict[str, Any]:
    """Means per decision of both groups, and their difference with an interval; decisions that were pruned are gone."""
    names = ["reward", *one.campaign.resources]
    after = _begun(connection, one)
    held_out, policy = (_group(connection, one, after, of_holdout=of) for of in (True, False))
    differences = [_difference(a, b) for a, b in zip(policy.quantities, held_out.quantities, strict=True)]
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
        },
    }


def _begun(connection: Connection, one: Seen) -> int:
    """After which number of the log both groups are there: stage one, which only explores, has no hold-out."""
    if one.campaign.two_stage in ("off", False):
        return 0
    change = tables.change
    ended = connection.execute(
        select(func.min(change.c.sequence)).where(change.c.campaign == one.campaign.number, change.c.kind == STAGE)
    ).scalar()
    return one.sequence if ended is None else int(ended)


def _group(connection: Connection, one: Seen, after: int, *, of_holdout: bool) -> Group:
    decision, outcome, campaign = tables.decision, tables.outcome, one.campaign
    mine = decision.c.reason == HOLDOUT if of_holdout else decision.c.reason.not_in((HOLDOUT, *_FORCED))
    within = (
        decision.c.campaign == campaign.number,
        decision.c.sequence > after,
        decision.c.sequence <= one.sequence,
        mine,
    )
    decisions, plays = connection.execute(select(func.count(), func.count(decision.c.arm_id)).where(*within)).one()
    # Costs as real numbers, too: squares of millionths leave 64 bits behind.
    units = [1, *[ONE] * len(campaign.resources)]
    columns = [real_element(connection, outcome.c.taught, index) / unit for index, unit in enumerate(units)]
    sums = [part for column in columns for part in (func.sum(column), func.sum(column * column))]
    row = connection.execute(
        select(func.count(), *sums)
        .select_from(decision)
        .join(outcome, (outcome.c.campaign == decision.c.campaign) & (outcome.c.decision == decision.c.sequence))
        .where(*within, outcome.c.taught.is_not(None), outcome.c.sequence <= one.sequence)
    ).one()
    known, count = int(row[0]), int(row[0]) + decisions - plays
    pairs = [(float(row[1 + 2 * i] or 0), float(row[2 + 2 * i] or 0)) for i in range(len(columns))]
    total, squares = _unscaled(campaign, known, *pairs[0])
    quantities = [Sums(count, total, squares), *(Sums(count, *pair) for pair in pairs[1:])]
    return Group(decisions, plays, plays - known, quantities)


def _unscaled(campaign: Campaign, count: int, total: float, squares: float) -> tuple[float, float]:
    """Sums of so many rewards, and of their squares, in the declared range, from those in [0, 1]."""
    low = campaign.config["reward"]["min"]
    span = campaign.config["reward"]["max"] - low
    return count * low + span * total, count * low * low + 2 * low * span * total + span * span * squares


def _difference(one: Sums, other: Sums) -> dict[str, float | None]:
    """The difference of two means with an interval (Welch 1947): neither group is told how the other varies."""
    if one.mean is None or other.mean is None:
        return {"value": None, "lower": None, "upper": None}
    value, variance = one.mean - other.mean, one.variance + other.variance
    if variance == float("inf"):
        return {"value": value, "lower": None, "upper": None}
    if variance == 0.0:
        return {"value": value, "lower": value, "upper": value}
    from scipy.special import stdtrit  # noqa: PLC0415 - only this needs it

    freedom = variance**2 / sum(sums.variance**2 / (sums.count - 1) for sums in (one, other))
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
    }


def _shadowed(connection: Connection, one: Seen) -> dict[str, Any]:
    """What the caller did and the policy would have done, and what it expected of that."""
    decision = tables.decision
    rows = connection.execute(
        select(decision.c.arm_id, decision.c.shadow)
        .where(
            decision.c.campaign == one.campaign.number,
            decision.c.sequence <= one.sequence,
            decision.c.shadow.is_not(None),
        )
        .order_by(decision.c.sequence.desc())
        .limit(SHADOWED_MAX),
        execution_options={"yield_per": 1_000},
    )
    did, would, agreed, count, reward = Counter[str | None](), Counter[str | None](), 0, 0, 0.0
    costs = dict.fromkeys(one.campaign.resources, 0.0)
    for _, kept in rows:
        told, baseline = would_have(one.campaign, kept), orjson.loads(kept)["baseline"]
        did[baseline] += 1
        would[told["arm"]] += 1
        agreed += baseline == told["arm"]
        count += 1
        reward += told["reward"]
        for name, cost in told["cost"].items():
            costs[name] += cost
    arms = [*one.campaign.arms, *sorted(str(arm) for arm in {*did, *would} - {*one.campaign.arms, None}), None]
    return {
        "decisions": count,
        "agreement": agreed / count if count else None,
        "arms": [{"id": arm, "did": did[arm], "would_have": would[arm]} for arm in arms],
        "expected_reward": reward / count if count else None,
        "expected_cost": {name: cost / count for name, cost in costs.items()} if count else None,
    }
