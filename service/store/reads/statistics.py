"""Figures over the log of a campaign: arms and the timeline, computed by the database.

What was pruned counts with the sums that were left of it: in the timeline it is one point, with all before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, select

from service.engine.campaign import Campaign
from service.limits import TIMELINE_ARMS_MAX
from service.store import tables
from service.store.openings import Opening, opening_of
from service.store.reads.shared import Row, Seen, by_resource, element, prices, real_element, seen
from service.times import moment_text


def arms(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Share, mean reward, mean cost and last play of every arm; the null arm is there once it was chosen."""
    one = seen(connection, campaign_id)
    opening = opening_of(connection, one.campaign.number)
    played = _with_pruned_plays(_plays(connection, one), opening)
    results = _with_pruned_results(_results(connection, one), opening)
    total = sum(row["decisions"] for row in played.values())
    retired = {one.campaign.arms[index] for index in one.campaign.retired}
    ids = [*one.campaign.arms, *(arm for arm in played if arm not in one.campaign.arm_index)]
    items = []
    for arm in ids:
        plays, result = played.get(arm), results.get(arm)
        items.append(
            {
                "id": arm,
                "decisions": plays["decisions"] if plays else 0,
                "share": plays["decisions"] / total if plays else 0.0,
                **_means(one.campaign, result),
                "last_played": moment_text(plays["last"]) if plays else None,
                "retired": arm in retired,
            }
        )
    return {"items": items, "next_cursor": None}


def _plays(connection: Connection, one: Seen) -> dict[str | None, Row]:
    decision = tables.decision
    rows = connection.execute(
        select(
            decision.c.arm_id,
            func.count().label("decisions"),
            func.max(decision.c.decided_at).label("last"),
        )
        .where(decision.c.campaign == one.campaign.number, decision.c.sequence <= one.sequence)
        .group_by(decision.c.arm_id)
        .order_by(decision.c.arm_id)
    ).mappings()
    return {row["arm_id"]: row for row in rows}


def _results(connection: Connection, one: Seen) -> dict[str | None, Row]:
    """Per arm: sums of what was learnt and of what was booked."""
    outcome, decision = tables.outcome, tables.decision
    booked = [
        func.sum(element(connection, outcome.c.spent, index)).label(f"spent_{index}")
        for index in range(len(one.campaign.resources))
    ]
    priced = func.count(outcome.c.decision.distinct()).filter(outcome.c.spent.is_not(None))
    rows = connection.execute(
        select(
            decision.c.arm_id,
            func.count(outcome.c.taught).label("rewards"),
            func.sum(real_element(connection, outcome.c.taught, 0)).label("reward"),
            priced.label("priced"),
            *booked,
        )
        .join(decision, (decision.c.campaign == outcome.c.campaign) & (decision.c.sequence == outcome.c.decision))
        .where(outcome.c.campaign == one.campaign.number, outcome.c.sequence <= one.sequence)
        .group_by(decision.c.arm_id)
    ).mappings()
    return {row["arm_id"]: row for row in rows}


def _with_pruned_plays(played: dict[str | None, Row], opening: Opening | None) -> dict[str | None, Row]:
    merged = dict(played)
    for arm, sums in (opening.arms if opening else {}).items():
        left = merged.get(arm, {"decisions": 0, "last": 0})
        merged[arm] = {"decisions": left["decisions"] + sums.decisions, "last": max(left["last"], sums.last)}
    return merged


def _with_pruned_results(results: dict[str | None, Row], opening: Opening | None) -> dict[str | None, Row]:
    merged = dict(results)
    for arm, sums in (opening.arms if opening else {}).items():
        left = merged.get(arm, {})
        spent = {f"spent_{index}": int(left.get(f"spent_{index}") or 0) + one for index, one in enumerate(sums.spent)}
        merged[arm] = {
            "rewards": left.get("rewards", 0) + sums.rewards,
            "reward": (left.get("reward") or 0.0) + sums.reward,
            "priced": left.get("priced", 0) + sums.priced,
            **spent,
        }
    return merged


def _means(campaign: Campaign, row: Row | None) -> dict[str, Any]:
    if row is None:
        return {"rewards": 0, "mean_reward": None, "mean_cost": None}
    means = None
    if row["priced"]:
        totals = [int(row[f"spent_{index}"] or 0) for index in range(len(campaign.resources))]
        means = {
            name: round(total / row["priced"] / 1e6, 9) for name, total in zip(campaign.resources, totals, strict=True)
        }
    return {
        "rewards": row["rewards"],
        "mean_reward": _unscaled(campaign, row["reward"] / row["rewards"]) if row["rewards"] else None,
        "mean_cost": means,
    }


def _unscaled(campaign: Campaign, learnt: float, count: int = 1) -> float:
    """A sum of so many rewards in the declared range, from their sum in [0, 1]."""
    low, high = campaign.config["reward"]["min"], campaign.config["reward"]["max"]
    return float(count * low + learnt * (high - low))


@dataclass(frozen=True, slots=True)
class Stretches:
    """The log in at most so many parts of equal length, but that of what was pruned has everything before it, too."""

    one: Seen
    points: int
    opening: Opening | None

    @property
    def first(self) -> int:
        """The part that all before it belongs to."""
        return 0 if self.opening is None else self._part(self.opening.last_number)

    def _part(self, sequence: int) -> int:
        return sequence * self.points // (self.one.sequence + 1)

    def of(self, sequence: int) -> int:
        """In which part a number of the log lies."""
        return max(self.first, self._part(sequence))

    def column(self, sequence: ColumnElement[int]) -> ColumnElement[int]:
        """The same, for the database to compute."""
        part = sequence * self.points // (self.one.sequence + 1)
        return case((part < self.first, self.first), else_=part).label("stretch")


def timeline(connection: Connection, campaign_id: str, *, points: int) -> dict[str, Any]:
    """The log in at most so many stretches of equal length: counts of each, sums up to its end, prices at its end."""
    one = seen(connection, campaign_id)
    stretches = Stretches(one, points, opening_of(connection, one.campaign.number))
    decided, arms_of = _decided_by_stretch(connection, stretches)
    settled = _settled_by_stretch(connection, stretches)
    granted = _granted_by_stretch(connection, stretches)
    pruned = _pruned_by_stretch(stretches, {arm for plays in arms_of.values() for arm in plays})
    shown = _prices_at(connection, one, [row["last"] for row in decided.values()])
    size = len(one.campaign.resources)
    spent, given, reward, quoted = [0] * size, [0] * size, 0.0, dict[str, float]()
    items, round_number = [], 0
    for stretch in sorted({*decided, *settled, *granted, *pruned}):
        decision, outcome, grant, before = (part.get(stretch) for part in (decided, settled, granted, pruned))
        for index in range(size):
            spent[index] += sum(int(part[f"spent_{index}"] or 0) for part in (outcome, before) if part)
            spent[index] += int(grant[f"adjust_{index}"]) if grant else 0
            given[index] += int(grant[f"budget_{index}"]) if grant else 0
        for part in (outcome, before):
            if part and part["rewards"]:
                reward += _unscaled(one.campaign, part["reward"], part["rewards"])
        quoted = shown[decision["last"]] if decision else quoted
        made = {name: sum(part[name] for part in (decision, before) if part) for name in ("decisions", "plays")}
        round_number += made["decisions"]
        parts = [part for part in (decision, outcome, grant, before) if part]
        items.append(
            {
                "sequence": max(part["last"] for part in parts),
                "at": moment_text(max(part["at"] for part in parts)),
                "round": round_number,
                **made,
                "arms": _both(arms_of[stretch], before),
                "reward": reward,
                "granted": by_resource(one.campaign, given),
                "spent": by_resource(one.campaign, spent),
                "prices": quoted,
            }
        )
    return {"campaign_id": campaign_id, "items": items, "next_cursor": None}


def _both(plays: dict[str, int], before: Row | None) -> dict[str, int]:
    """Plays by arm, with those that were pruned."""
    return dict(Counter(plays) + Counter(before["arms"])) if before else plays


def _pruned_by_stretch(stretches: Stretches, named: Collection[str]) -> dict[int, Row]:
    opening = stretches.opening
    if opening is None or not opening.decisions:
        return {}
    # As many others as there is room for, those that were played most first.
    others = sorted(arm for arm in opening.arms if arm is not None and arm not in named)
    others.sort(key=lambda arm: -opening.arms[arm].decisions)
    shown = {*named, *others[: TIMELINE_ARMS_MAX - len(named)]}
    row = {
        "last": opening.last_number,
        "at": opening.last_at,
        "decisions": opening.decisions,
        "plays": opening.plays,
        "arms": {arm: sums.decisions for arm, sums in opening.arms.items() if arm in shown},
        "rewards": sum(sums.rewards for sums in opening.arms.values()),
        "reward": sum(sums.reward for sums in opening.arms.values()),
    }
    return {stretches.first: row | {f"spent_{index}": spent for index, spent in enumerate(opening.spent)}}


def _decided_by_stretch(
    connection: Connection, stretches: Stretches
) -> tuple[dict[int, Row], dict[int, dict[str, int]]]:
    """Counts by part, and those of the arms that were played most; a campaign with `actions` may have any number."""
    decision, one = tables.decision, stretches.one
    stretch = stretches.column(decision.c.sequence)
    # Both databases keep what is asked twice, so the log is walked through once.
    counts = (
        select(
            stretch,
            decision.c.arm_id,
            func.max(decision.c.sequence).label("last"),
            func.max(decision.c.decided_at).label("at"),
            func.count().label("decisions"),
        )
        .where(decision.c.campaign == one.campaign.number, decision.c.sequence <= one.sequence)
        .group_by(stretch, decision.c.arm_id)
        .cte("counts")
    )
    most = (
        select(counts.c.arm_id)
        .where(counts.c.arm_id.is_not(None))
        .group_by(counts.c.arm_id)
        .order_by(func.sum(counts.c.decisions).desc(), counts.c.arm_id)
        .limit(TIMELINE_ARMS_MAX)
    )
    named = case((counts.c.arm_id.in_(most), counts.c.arm_id)).label("named")
    rows = connection.execute(
        select(
            counts.c.stretch,
            named,
            func.max(counts.c.last).label("last"),
            func.max(counts.c.at).label("at"),
            func.sum(counts.c.decisions).label("decisions"),
            func.sum(case((counts.c.arm_id.is_not(None), counts.c.decisions), else_=0)).label("plays"),
        ).group_by(counts.c.stretch, named)
    )
    found: dict[int, dict[str, int]] = {}
    arms_of: dict[int, dict[str, int]] = defaultdict(dict)
    for row in rows:
        part = found.setdefault(row.stretch, {"last": 0, "at": 0, "decisions": 0, "plays": 0})
        part["last"], part["at"] = max(part["last"], row.last), max(part["at"], row.at)
        part["decisions"] += int(row.decisions)
        part["plays"] += int(row.plays)
        if row.named is not None:
            arms_of[row.stretch][row.named] = int(row.decisions)
    return {**found}, arms_of


def _settled_by_stretch(connection: Connection, stretches: Stretches) -> dict[int, Row]:
    outcome, one = tables.outcome, stretches.one
    stretch = stretches.column(outcome.c.sequence)
    rows = connection.execute(
        select(
            stretch,
            func.max(outcome.c.sequence).label("last"),
            func.max(outcome.c.at).label("at"),
            func.count(outcome.c.taught).label("rewards"),
            func.sum(real_element(connection, outcome.c.taught, 0)).label("reward"),
            *(
                func.sum(element(connection, outcome.c.spent, index)).label(f"spent_{index}")
                for index in range(len(one.campaign.resources))
            ),
        )
        .where(outcome.c.campaign == one.campaign.number, outcome.c.sequence <= one.sequence)
        .group_by(stretch)
    ).mappings()
    return {row["stretch"]: row for row in rows}


def _granted_by_stretch(connection: Connection, stretches: Stretches) -> dict[int, dict[str, int]]:
    grant, one = tables.grant, stretches.one
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
