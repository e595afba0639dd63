"""Figures over the log of a campaign: arms and the timeline, from the sums of its leaves.

What was pruned counts with the sums that were left of it: in the timeline it is one point, with all before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from service.domain.campaign import Campaign
from service.limits import TIMELINE_ARMS_MAX
from service.reads.log_sums import Decided, Leaf, Leaves, Settled, leaves_of, together
from service.reads.shared import Seen, by_resource, prices, seen
from service.store import tables
from service.store.opening_balance import Opening, opening_of
from service.times import moment_text


def arms(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Share, mean reward, mean cost and last play of every arm; the null arm is there once it was chosen."""
    one = seen(connection, campaign_id)
    opening = opening_of(connection, one.campaign.number)
    whole = together(leaves_of(connection, one, opening).leaves)
    played, results = _with_pruned(whole, opening, len(one.campaign.resources))
    total = sum(plays.made for plays in played.values())
    retired = {one.campaign.arms[index] for index in one.campaign.retired}
    ids = [*one.campaign.arms, *(arm for arm in played if arm not in one.campaign.arm_index)]
    items = []
    for arm in ids:
        plays, result = played.get(arm), results.get(arm)
        items.append(
            {
                "id": arm,
                "decisions": plays.made if plays else 0,
                "share": plays.made / total if plays else 0.0,
                **_means(one.campaign, result),
                "last_played": moment_text(plays.at) if plays else None,
                "retired": arm in retired,
            }
        )
    return {"items": items, "next_cursor": None}


def _with_pruned(log: Leaf, opening: Opening | None, resources: int) -> Leaf:
    """The log as it would be had nothing been taken out of it."""
    nothing = (0,) * resources
    pruned = Leaf(
        {arm: Decided(sums.decisions, 0, sums.last) for arm, sums in (opening.arms if opening else {}).items()},
        {
            arm: Settled(0, 0, sums.rewards, sums.reward, sums.priced, sums.spent or nothing)
            for arm, sums in (opening.arms if opening else {}).items()
        },
    )
    return together([log, pruned])


def _means(campaign: Campaign, result: Settled | None) -> dict[str, Any]:
    if result is None:
        return {"rewards": 0, "mean_reward": None, "mean_cost": None}
    means = None
    if result.priced:
        means = {
            name: round(total / result.priced / 1e6, 9)
            for name, total in zip(campaign.resources, result.spent, strict=True)
        }
    return {
        "rewards": result.rewards,
        "mean_reward": _unscaled(campaign, result.reward / result.rewards) if result.rewards else None,
        "mean_cost": means,
    }


def _unscaled(campaign: Campaign, learnt: float, count: int = 1) -> float:
    """A sum of so many rewards in the declared range, from their sum in [0, 1]."""
    low, high = campaign.config["reward"]["min"], campaign.config["reward"]["max"]
    return float(count * low + learnt * (high - low))


@dataclass(frozen=True, slots=True)
class Stretches:
    """The log in at most so many parts of equal length, but that of what was pruned has everything before it, too."""

    bits: int  # 2^bits numbers to a part
    opening: Opening | None

    @property
    def first(self) -> int:
        """The part that all before it belongs to."""
        return 0 if self.opening is None else self.opening.last_number >> self.bits

    def of(self, sequence: int) -> int:
        """In which part a number of the log lies."""
        return max(self.first, sequence >> self.bits)

    def joined(self, log: Leaves) -> dict[int, Leaf]:
        """The leaves of each part, together."""
        parts: dict[int, list[Leaf]] = defaultdict(list)
        for index, leaf in enumerate(log.leaves):
            if leaf.sums:
                parts[self.of(index << log.bits)].append(leaf)
        return {part: together(leaves) for part, leaves in parts.items()}


def timeline(connection: Connection, campaign_id: str, *, points: int) -> dict[str, Any]:
    """The log in at most so many stretches of equal length: counts of each, sums up to its end, prices at its end."""
    one = seen(connection, campaign_id)
    opening = opening_of(connection, one.campaign.number)
    log = leaves_of(connection, one, opening)
    stretches = Stretches(max(log.bits, (one.sequence // points).bit_length()), opening)
    parts = stretches.joined(log)
    named = _played_most(together(list(parts.values())))
    granted = _granted_by_stretch(connection, one, stretches)
    pruned = _pruned_by_stretch(stretches, named)
    shown = _prices_at(connection, one, [_last(part.decided) for part in parts.values() if part.decided])
    size = len(one.campaign.resources)
    spent, given, reward, quoted = [0] * size, [0] * size, 0.0, dict[str, float]()
    items, round_number = [], 0
    for stretch in sorted({*parts, *granted, *pruned}):
        part, grant, before = parts.get(stretch, Leaf({}, {})), granted.get(stretch), pruned.get(stretch)
        summed = [*part.settled.values(), *([before.settled] if before else [])]
        for index in range(size):
            spent[index] += sum(result.spent[index] for result in summed)
            spent[index] += int(grant[f"adjust_{index}"]) if grant else 0
            given[index] += int(grant[f"budget_{index}"]) if grant else 0
        reward += sum(_unscaled(one.campaign, result.reward, result.rewards) for result in summed if result.rewards)
        quoted = shown[_last(part.decided)] if part.decided else quoted
        decisions = sum(plays.made for plays in part.decided.values()) + (before.decisions if before else 0)
        plays_made = sum(plays.made for arm, plays in part.decided.items() if arm is not None)
        round_number += decisions
        ends = [(plays.last, plays.at) for plays in part.decided.values()]
        ends += [(result.last, result.at) for result in summed]
        ends += [(grant["last"], grant["at"])] if grant else []
        items.append(
            {
                "sequence": max(last for last, _ in ends),
                "at": moment_text(max(at for _, at in ends)),
                "round": round_number,
                "decisions": decisions,
                "plays": plays_made + (before.plays if before else 0),
                "arms": _by_name(part, named, before),
                "reward": reward,
                "granted": by_resource(one.campaign, given),
                "spent": by_resource(one.campaign, spent),
                "prices": quoted,
            }
        )
    return {"campaign_id": campaign_id, "items": items, "next_cursor": None}


def _last(decided: dict[str | None, Decided]) -> int:
    return max(plays.last for plays in decided.values())


def _played_most(log: Leaf) -> set[str]:
    """A campaign with `actions` may have any number of arms; these are counted by name."""
    played = [(-plays.made, arm) for arm, plays in log.decided.items() if arm is not None]
    return {arm for _, arm in sorted(played)[:TIMELINE_ARMS_MAX]}


def _by_name(part: Leaf, named: Collection[str], before: Pruned | None) -> dict[str, int]:
    """Plays by arm, with those that were pruned."""
    plays = Counter({arm: plays.made for arm, plays in part.decided.items() if arm is not None and arm in named})
    return dict(plays + Counter(before.arms if before else {}))


class Pruned(NamedTuple):
    """What was taken out of the log."""

    decisions: int
    plays: int
    arms: dict[str, int]
    settled: Settled


def _pruned_by_stretch(stretches: Stretches, named: Collection[str]) -> dict[int, Pruned]:
    opening = stretches.opening
    if opening is None or not opening.decisions:
        return {}
    # As many others as there is room for, those that were played most first.
    others = sorted(arm for arm in opening.arms if arm is not None and arm not in named)
    others.sort(key=lambda arm: -opening.arms[arm].decisions)
    shown = {*named, *others[: TIMELINE_ARMS_MAX - len(named)]}
    rewards = sum(sums.rewards for sums in opening.arms.values())
    reward = sum(sums.reward for sums in opening.arms.values())
    arms = {arm: sums.decisions for arm, sums in opening.arms.items() if arm is not None and arm in shown}
    settled = Settled(opening.last_number, opening.last_at, rewards, reward, 0, opening.spent)
    return {stretches.first: Pruned(opening.decisions, opening.plays, arms, settled)}


def _granted_by_stretch(connection: Connection, one: Seen, stretches: Stretches) -> dict[int, dict[str, int]]:
    grant = tables.grant
    rows = connection.execute(
        select(grant)
        .where(grant.c.campaign == one.campaign.number, grant.c.sequence <= one.sequence)
        .order_by(grant.c.sequence)
    )
    empty = {f"{kind}_{index}": 0 for kind in ("budget", "adjust") for index in range(len(one.campaign.resources))}
    found: dict[int, dict[str, int]] = {}
    for row in rows:
        moved = found.setdefault(stretches.of(row.sequence), dict(empty))
        moved[f"{row.kind}_{row.resource}"] += row.amount
        moved |= {"last": row.sequence, "at": row.at}
    return found


def _prices_at(connection: Connection, one: Seen, sequences: list[int]) -> dict[int, dict[str, float]]:
    decision = tables.decision
    rows = connection.execute(
        select(decision.c.sequence, decision.c.prices).where(
            decision.c.campaign == one.campaign.number, decision.c.sequence.in_(sequences)
        )
    )
    return {row.sequence: prices(one.campaign, row.prices) for row in rows}
