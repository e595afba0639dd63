"""Figures over the log of a campaign, from its sums: arms and the timeline.

Pruned decisions count with their sums: the timeline has one point for them and all numbers before them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from service.domain.campaign import PAUSED, RETIRED, Campaign, names_of
from service.limits import TIMELINE_ARMS_MAX
from service.reads.log_sums import DecisionSums, OutcomeSums, Segment, log_sums, merged
from service.reads.shared import StoredCampaign, by_resource, moment_or_none, prices, stored_campaign
from service.store import tables
from service.store.opening_balance import Opening, opening_of
from service.times import moment_text


def arms(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Share, mean reward, mean cost and last play of every arm; the null arm appears once it was chosen."""
    stored = stored_campaign(connection, campaign_id)
    campaign, opening = stored.campaign, opening_of(connection, stored.campaign.number)
    whole = merged([*log_sums(connection, stored, opening).segments, _pruned(opening)])
    count = sum(plays.total for plays in whole.decisions.values())
    declared = {arm["id"]: arm for arm in campaign.config["arms"]}
    inactive = {campaign.arms[index]: why for index, why in campaign.inactive.items()}
    items = []
    for arm in [*campaign.arms, *(arm for arm in whole.decisions if arm not in campaign.arm_index)]:
        plays = whole.decisions.get(arm)
        items.append(
            {
                "id": arm,
                **names_of(declared.get(arm, {})),
                "decisions": plays.total if plays else 0,
                "share": plays.total / count if plays else 0.0,
                **_means(campaign, whole.outcomes.get(arm)),
                "last_played": moment_or_none(plays.at if plays else None),
                "retired": inactive.get(arm or "") == RETIRED,
                "paused": inactive.get(arm or "") == PAUSED,
            }
        )
    return {"items": items, "next_cursor": None}


def _pruned(opening: Opening | None) -> Segment:
    """The sums of pruned rows. No decision has number 0, so that no price is read for them."""
    if opening is None:
        return Segment({}, {})
    end = opening.last_number, opening.last_at
    return Segment(
        {arm: DecisionSums(sums.decisions, 0, sums.last) for arm, sums in opening.arms.items()},
        {
            arm: OutcomeSums(*end, sums.rewards, sums.reward, sums.priced, sums.spent)
            for arm, sums in opening.arms.items()
        },
    )


def _means(campaign: Campaign, sums: OutcomeSums | None) -> dict[str, Any]:
    if sums is None:
        return {"rewards": 0, "mean_reward": None, "mean_cost": None}
    costs = zip(campaign.resources, sums.spent, strict=True)
    return {
        "rewards": sums.rewards,
        "mean_reward": _unscaled(campaign, sums.reward / sums.rewards) if sums.rewards else None,
        "mean_cost": {name: round(cost / sums.priced / 1e6, 9) for name, cost in costs} if sums.priced else None,
    }


def _unscaled(campaign: Campaign, learnt: float, count: int = 1) -> float:
    """The sum of `count` rewards in the declared range, from their sum in [0, 1]."""
    low, high = campaign.config["reward"]["min"], campaign.config["reward"]["max"]
    return float(count * low + learnt * (high - low))


@dataclass(slots=True)
class GrantSums:
    """Changes of budgets and corrections, in millionths by resource."""

    granted: list[int]
    adjusted: list[int]
    last: int = 0
    at: int = 0


def timeline(connection: Connection, campaign_id: str, *, points: int) -> dict[str, Any]:
    """The log in at most `points` intervals of equal length: counts of each, sums up to its end, prices at its end."""
    stored = stored_campaign(connection, campaign_id)
    campaign, opening = stored.campaign, opening_of(connection, stored.campaign.number)
    log = log_sums(connection, stored, opening)
    bits = max(log.bits, (stored.sequence // points).bit_length())
    first = 0 if opening is None else opening.last_number >> bits

    def interval_of(sequence: int) -> int:
        return max(first, sequence >> bits)

    segments: dict[int, list[Segment]] = defaultdict(list)
    for index, segment in enumerate(log.segments):
        if segment.size:
            segments[interval_of(index << log.bits)].append(segment)
    if opening is not None and opening.decisions:
        segments[first].append(_pruned(opening))
    parts = {interval: merged(found) for interval, found in segments.items()}
    shown = _shown_arms(merged(log.segments), _pruned(opening))
    grants = _grants(connection, stored, interval_of)
    quotes = _prices_at(connection, stored, [_last(part) for part in parts.values()])
    zero = [0] * len(campaign.resources)
    spent, granted, reward, round_number, quoted = zero, zero, 0.0, 0, dict[str, float]()
    items = []
    for interval in sorted({*parts, *grants}):
        part, grant = parts.get(interval, Segment({}, {})), grants.get(interval, GrantSums(zero, zero))
        plays, outcomes = part.decisions, part.outcomes.values()
        moved = [sum(sums.spent[index] for sums in outcomes) for index in range(len(zero))]
        spent = _sum(spent, _sum(moved, grant.adjusted))
        granted = _sum(granted, grant.granted)
        reward += sum(_unscaled(campaign, sums.reward, sums.rewards) for sums in outcomes if sums.rewards)
        quoted = quotes.get(_last(part), quoted)
        decisions = sum(sums.total for sums in plays.values())
        round_number += decisions
        ends = [(grant.last, grant.at)]
        ends += [(sums.last, sums.at) for sums in plays.values()] + [(sums.last, sums.at) for sums in outcomes]
        items.append(
            {
                "sequence": max(last for last, _ in ends),
                "at": moment_text(max(at for _, at in ends)),
                "round": round_number,
                "decisions": decisions,
                "plays": sum(sums.total for arm, sums in plays.items() if arm is not None),
                "arms": {arm: sums.total for arm, sums in plays.items() if arm in shown},
                "reward": reward,
                "arm_rewards": {
                    arm: _unscaled(campaign, sums.reward, sums.rewards)
                    for arm, sums in part.outcomes.items()
                    if arm in shown and sums.rewards
                },
                "granted": by_resource(campaign, granted),
                "spent": by_resource(campaign, spent),
                "prices": quoted,
            }
        )
    return {"campaign_id": campaign_id, "items": items, "next_cursor": None}


def _sum(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


def _last(part: Segment) -> int:
    """The number of the last decision; 0 without one."""
    return max((sums.last for sums in part.decisions.values()), default=0)


def _shown_arms(log: Segment, pruned: Segment) -> set[str | None]:
    """The arms that are counted by name, most played first, those of the log before pruned ones.

    A campaign with `actions` may have any number of arms.
    """
    shown: list[str | None] = []
    for segment in (log, pruned):
        played = [(-sums.total, arm) for arm, sums in segment.decisions.items() if arm is not None and arm not in shown]
        shown += [arm for _, arm in sorted(played)]
    return set(shown[:TIMELINE_ARMS_MAX])


def _grants(connection: Connection, stored: StoredCampaign, interval_of: Callable[[int], int]) -> dict[int, GrantSums]:
    grant, size = tables.grant, len(stored.campaign.resources)
    rows = connection.execute(
        select(grant)
        .where(grant.c.campaign == stored.campaign.number, grant.c.sequence <= stored.sequence)
        .order_by(grant.c.sequence)
    )
    found: dict[int, GrantSums] = {}
    for row in rows:
        sums = found.setdefault(interval_of(row.sequence), GrantSums([0] * size, [0] * size))
        (sums.granted if row.kind == "budget" else sums.adjusted)[row.resource] += row.amount
        sums.last, sums.at = row.sequence, row.at
    return found


def _prices_at(connection: Connection, stored: StoredCampaign, sequences: list[int]) -> dict[int, dict[str, float]]:
    decision, campaign = tables.decision, stored.campaign
    wanted = decision.c.campaign == campaign.number, decision.c.sequence.in_(sequences)
    rows = connection.execute(select(decision.c.sequence, decision.c.prices).where(*wanted))
    return {sequence: prices(campaign, packed) for sequence, packed in rows}
