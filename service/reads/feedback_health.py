"""Feedback of a campaign: open holds, delays, the losses of its predictions, and the changes that the model noticed.

A read touches a bounded number of rows of the log, however long it is, and all open holds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, func, select

from cbwk_core.snapshot import SnapshotError
from service.domain.decision_rows import predicted
from service.problems import UnknownRules
from service.reads.shared import Row, StoredCampaign, fetch, load_campaign, moment_or_none, stored_campaign
from service.store import tables
from service.times import moment_text

# The newest outcomes, of which delays and kinds are counted.
RECENT_OUTCOMES_MAX = 1_000
# The maximal number of parts of the log; a loss is the mean over the last outcomes of a part.
LOSS_POINTS_MAX = 40
LOSS_OUTCOMES_MAX = 50
# A larger snapshot takes too long to decode for a page that is read again and again.
SNAPSHOT_BYTES_MAX = 2**24
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99}


def feedback(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Open holds, kinds and delays of the newest outcomes, and the oracle's loss over time."""
    stored = stored_campaign(connection, campaign_id)
    recent = _newest(connection, stored, tables.outcome.c.sequence <= stored.sequence, limit=RECENT_OUTCOMES_MAX)
    kinds = Counter(row["kind"] for row in recent)
    return {
        "campaign_id": campaign_id,
        "open_holds": _open_holds(connection, stored),
        "recent": {
            "outcomes": len(recent),
            **{kind: kinds.get(kind, 0) for kind in ("reported", "void", "expired", "late")},
        },
        "delay_seconds": _delays(recent),
        "losses": _losses(connection, stored),
        "changes": _changes(connection, stored),
    }


def _open_holds(connection: Connection, stored: StoredCampaign) -> dict[str, Any]:
    hold, decision, number = tables.hold, tables.decision, stored.campaign.number
    sums = select(func.count(), func.min(hold.c.decision), func.min(hold.c.expires_at))
    count, oldest, expiry = connection.execute(sums.where(hold.c.campaign == number)).one()
    decided_at = select(decision.c.decided_at).where(
        decision.c.campaign == number, decision.c.sequence == (oldest or 0)
    )
    return {
        "count": count,
        "oldest_at": moment_or_none(connection.execute(decided_at).scalar()),
        "next_expiry_at": moment_or_none(expiry),
    }


def _newest(connection: Connection, stored: StoredCampaign, *where: ColumnElement[bool], limit: int) -> Sequence[Row]:
    """The newest outcomes that meet the conditions, with two columns of their decisions, newest first."""
    outcome, decision = tables.outcome, tables.decision
    columns = (outcome.c.sequence, outcome.c.at, outcome.c.kind, outcome.c.costs, outcome.c.taught)
    query = (
        select(*columns, decision.c.decided_at, decision.c.numbers)
        .join(decision, tables.decision_of_outcome)
        .where(outcome.c.campaign == stored.campaign.number, *where)
        .order_by(outcome.c.sequence.desc())
        .limit(limit)
    )
    return fetch(connection, query)


def _delays(recent: Sequence[Row]) -> dict[str, Any]:
    """Quantiles of the time from a decision to its reported costs."""
    seconds = [
        (row["at"] - row["decided_at"]) / 1e6
        for row in recent
        if row["costs"] is not None and row["kind"] in ("reported", "late")
    ]
    if not seconds:
        return {"count": 0, **dict.fromkeys(QUANTILES)}
    found = np.quantile(seconds, list(QUANTILES.values())).round(3).tolist()
    return {"count": len(seconds), **dict(zip(QUANTILES, found, strict=True))}


def _losses(connection: Connection, stored: StoredCampaign) -> list[dict[str, Any]]:
    points = min(LOSS_POINTS_MAX, stored.sequence)
    ends = [stored.sequence * (point + 1) // points for point in range(points)]
    number = tables.outcome.c.sequence
    samples = [
        _newest(connection, stored, number > start, number <= end, tables.is_learnt, limit=LOSS_OUTCOMES_MAX)
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    return [_loss(stored, rows) for rows in samples if rows]


def _loss(stored: StoredCampaign, rows: Sequence[Row]) -> dict[str, Any]:
    """Mean squared errors in units of each target's range, and those of a constant guess, the mean."""
    scale = np.array([1, *stored.campaign.units], dtype=np.float64)
    found = np.array([json.loads(row["taught"]) for row in rows]) / scale
    predictions = np.stack([predicted(row["numbers"]) for row in rows])
    return {
        "sequence": rows[0]["sequence"],
        "at": moment_text(rows[0]["at"]),
        "outcomes": len(rows),
        **_by_target(stored, "loss", np.mean((found - predictions) ** 2, axis=0)),
        **_by_target(stored, "guess", np.var(found, axis=0)),
    }


def _by_target(stored: StoredCampaign, name: str, values: NDArray[np.float64]) -> dict[str, Any]:
    reward, *costs = values.tolist()
    return {f"reward_{name}": reward, f"cost_{name}": dict(zip(stored.campaign.resources, costs, strict=True))}


def _changes(connection: Connection, stored: StoredCampaign) -> dict[str, Any] | None:
    """Restarts of the model and dismissed alarms by the newest snapshot; None without one that can be read."""
    snapshot = tables.snapshot
    newest = (
        select(snapshot.c.config_version, snapshot.c.data, snapshot.c.at)
        .where(snapshot.c.campaign == stored.campaign.number, func.length(snapshot.c.data) <= SNAPSHOT_BYTES_MAX)
        .order_by(snapshot.c.sequence.desc())
        .limit(1)
    )
    for row in fetch(connection, newest):
        try:
            policy = load_campaign(connection, stored.campaign.number, row["config_version"]).policy
            state = policy.decode(row["data"])
        except (SnapshotError, UnknownRules):
            return None
        noticed, dismissed = int(policy.changes(state)[0]), int(policy.dismissed_alarms(state)[0])
        return {"as_of": moment_text(row["at"]), "noticed": noticed, "dismissed": dismissed}
    return None
