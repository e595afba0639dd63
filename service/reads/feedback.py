"""How feedback comes in: what is still awaited, how late it is, how far predictions were off.

Everything here reads a bounded number of rows of the log, however long it is, and every hold that is open.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from service.domain.tickets import predicted
from service.reads.shared import Row, Seen, seen
from service.store import tables
from service.times import moment_text

# Of the newest outcomes, from which delays and fates are counted.
RECENT_OUTCOMES_MAX = 1_000
# Losses are means over the last so many outcomes of each of so many parts of the log.
LOSS_POINTS_MAX = 40
LOSS_OUTCOMES_MAX = 50
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99}


def feedback(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Open holds, fates and delays of the newest outcomes, and the oracle's loss over time."""
    one = seen(connection, campaign_id)
    recent = _recent(connection, one)
    kinds = Counter(row["kind"] for row in recent)
    return {
        "campaign_id": campaign_id,
        "open_holds": _open_holds(connection, one),
        "recent": {
            "outcomes": len(recent),
            **{kind: kinds.get(kind, 0) for kind in ("reported", "void", "expired", "late")},
        },
        "delay_seconds": _delays(recent),
        "losses": _losses(connection, one),
    }


def _open_holds(connection: Connection, one: Seen) -> dict[str, Any]:
    hold, decision = tables.hold, tables.decision
    count, oldest, expiry = connection.execute(
        select(func.count(), func.min(hold.c.decision), func.min(hold.c.expires_at)).where(
            hold.c.campaign == one.campaign.number
        )
    ).one()
    since = connection.execute(
        select(decision.c.decided_at).where(
            decision.c.campaign == one.campaign.number, decision.c.sequence == (oldest or 0)
        )
    ).scalar()
    return {
        "count": count,
        "oldest_at": None if since is None else moment_text(since),
        "next_expiry_at": None if expiry is None else moment_text(expiry),
    }


def _recent(connection: Connection, one: Seen) -> Sequence[Row]:
    outcome, decision = tables.outcome, tables.decision
    return (
        connection.execute(
            select(outcome.c.kind, outcome.c.at, outcome.c.costs, decision.c.decided_at)
            .join(decision, (decision.c.campaign == outcome.c.campaign) & (decision.c.sequence == outcome.c.decision))
            .where(outcome.c.campaign == one.campaign.number, outcome.c.sequence <= one.sequence)
            .order_by(outcome.c.sequence.desc())
            .limit(RECENT_OUTCOMES_MAX)
        )
        .mappings()
        .all()
    )


def _delays(recent: Sequence[Row]) -> dict[str, Any]:
    """From a decision to the costs that somebody reported."""
    seconds = [
        (row["at"] - row["decided_at"]) / 1e6
        for row in recent
        if row["costs"] is not None and row["kind"] in ("reported", "late")
    ]
    if not seconds:
        return {"count": 0, **dict.fromkeys(QUANTILES)}
    found = np.quantile(seconds, list(QUANTILES.values())).round(3).tolist()
    return {"count": len(seconds), **dict(zip(QUANTILES, found, strict=True))}


def _losses(connection: Connection, one: Seen) -> list[dict[str, Any]]:
    points = min(LOSS_POINTS_MAX, one.sequence)
    ends = [one.sequence * (point + 1) // points for point in range(points)]
    losses = []
    for start, end in zip([0, *ends], ends, strict=False):
        rows = _taught(connection, one, start, end)
        if rows:
            losses.append(_loss(one, rows))
    return losses


def _taught(connection: Connection, one: Seen, start: int, end: int) -> Sequence[Row]:
    """The last outcomes after one number and up to another that the oracle has learnt."""
    outcome, decision = tables.outcome, tables.decision
    return (
        connection.execute(
            select(outcome.c.sequence, outcome.c.at, outcome.c.taught, decision.c.numbers)
            .join(decision, (decision.c.campaign == outcome.c.campaign) & (decision.c.sequence == outcome.c.decision))
            .where(
                outcome.c.campaign == one.campaign.number,
                outcome.c.sequence > start,
                outcome.c.sequence <= end,
                outcome.c.taught.is_not(None),
            )
            .order_by(outcome.c.sequence.desc())
            .limit(LOSS_OUTCOMES_MAX)
        )
        .mappings()
        .all()
    )


def _loss(one: Seen, rows: Sequence[Row]) -> dict[str, Any]:
    """Means of squared errors, in units of each target's range, and what always saying the mean would have come to."""
    scale = np.array([1, *one.campaign.units], dtype=np.float64)
    found = np.array([json.loads(row["taught"]) for row in rows]) / scale
    foretold = np.stack([predicted(row["numbers"]) for row in rows])
    return {
        "sequence": rows[0]["sequence"],
        "at": moment_text(rows[0]["at"]),
        "outcomes": len(rows),
        **_by_target(one, "loss", np.mean((found - foretold) ** 2, axis=0)),
        **_by_target(one, "guess", np.var(found, axis=0)),
    }


def _by_target(one: Seen, name: str, values: NDArray[np.float64]) -> dict[str, Any]:
    reward, *costs = values.tolist()
    return {f"reward_{name}": reward, f"cost_{name}": dict(zip(one.campaign.resources, costs, strict=True))}
