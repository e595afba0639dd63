"""Figures over the log of a campaign: arms and the timeline, computed by the database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from service.engine.campaign import Campaign
from service.store import tables
from service.store.reads.shared import Row, Seen, by_resource, element, prices, real_element, seen
from service.times import moment_text


def arms(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Share, mean reward, mean cost and last play of every arm; the null arm is there once it was chosen."""
    one = seen(connection, campaign_id)
    played = _plays(connection, one)
    results = _results(connection, one)
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


def timeline(connection: Connection, campaign_id: str, *, points: int) -> dict[str, Any]:
    """The log in at most so many stretches of equal length: counts of each, sums up to its end, prices at its end."""
    one = seen(connection, campaign_id)
    decided = _decided_by_stretch(connection, one, points)
    settled = _settled_by_stretch(connection, one, points)
    granted = _granted_by_stretch(connection, one, points)
    shown = _prices_at(connection, one, [row["last"] for row in decided.values()])
    size = len(one.campaign.resources)
    spent, given, reward, quoted = [0] * size, [0] * size, 0.0, dict[str, float]()
    items, round_number = [], 0
    for stretch in sorted({*decided, *settled, *granted}):
        decision, outcome, grant = (part.get(stretch) for part in (decided, settled, granted))
        for index in range(size):
            spent[index] += int(outcome[f"spent_{index}"] or 0) if outcome else 0
            spent[index] += int(grant[f"adjust_{index}"]) if grant else 0
            given[index] += int(grant[f"budget_{index}"]) if grant else 0
        if outcome and outcome["rewards"]:
            reward += _unscaled(one.campaign, outcome["reward"], outcome["rewards"])
        if decision:
            quoted, round_number = shown[decision["last"]], decision["round"] + 1
        parts = [part for part in (decision, outcome, grant) if part]
        items.append(
            {
                "sequence": max(part["last"] for part in parts),
                "at": moment_text(max(part["at"] for part in parts)),
                "round": round_number,
                "decisions": decision["decisions"] if decision else 0,
                "plays": decision["plays"] if decision else 0,
                "reward": reward,
                "granted": by_resource(one.campaign, given),
                "spent": by_resource(one.campaign, spent),
                "prices": quoted,
            }
        )
    return {"campaign_id": campaign_id, "items": items, "next_cursor": None}


def _stretch(column: ColumnElement[int], one: Seen, points: int) -> ColumnElement[int]:
    return (column * points // (one.sequence + 1)).label("stretch")


def _decided_by_stretch(connection: Connection, one: Seen, points: int) -> dict[int, Row]:
    decision = tables.decision
    stretch = _stretch(decision.c.sequence, one, points)
    rows = connection.execute(
        select(
            stretch,
            func.max(decision.c.sequence).label("last"),
            func.max(decision.c.decided_at).label("at"),
            func.max(decision.c.round).label("round"),
            func.count().label("decisions"),
            func.count(decision.c.arm_id).label("plays"),
        )
        .where(decision.c.campaign == one.campaign.number, decision.c.sequence <= one.sequence)
        .group_by(stretch)
    ).mappings()
    return {row["stretch"]: row for row in rows}


def _settled_by_stretch(connection: Connection, one: Seen, points: int) -> dict[int, Row]:
    outcome = tables.outcome
    stretch = _stretch(outcome.c.sequence, one, points)
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


def _granted_by_stretch(connection: Connection, one: Seen, points: int) -> dict[int, dict[str, int]]:
    grant = tables.grant
    rows = connection.execute(
        select(grant)
        .where(grant.c.campaign == one.campaign.number, grant.c.sequence <= one.sequence)
        .order_by(grant.c.sequence)
    )
    empty = {f"{kind}_{index}": 0 for kind in ("budget", "adjust") for index in range(len(one.campaign.resources))}
    stretches: dict[int, dict[str, int]] = {}
    for row in rows:
        moved = stretches.setdefault(row.sequence * points // (one.sequence + 1), dict(empty))
        moved[f"{row.kind}_{row.resource}"] += row.amount
        moved |= {"last": row.sequence, "at": row.at}
    return stretches


def _prices_at(connection: Connection, one: Seen, sequences: list[int]) -> dict[int, dict[str, float]]:
    decision = tables.decision
    rows = connection.execute(
        select(decision.c.sequence, decision.c.prices).where(
            decision.c.campaign == one.campaign.number, decision.c.sequence.in_(sequences)
        )
    )
    return {row.sequence: prices(one.campaign, row.prices) for row in rows}
