"""Campaigns that declare an end in time: how many decisions that will be is estimated from the traffic so far.

An estimate is a change of configuration like any other: numbered, logged, adopted with nothing learnt lost. It is
renewed with every hundredth of the flight, and early when decisions come faster than it foresaw.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, insert

from service.domain.campaign import HORIZON_UNKNOWN, Campaign
from service.engine.changes import Work, to_json
from service.store import tables

RENEWALS = 100
# Nothing is concluded from fewer decisions, unless they use up the estimate.
ROUNDS_MIN = 20
# Renew when so much of the decisions that were expected to come is made, whatever the time.
NEARLY_ALL = 0.9


def expected_rounds(rounds: int, started: int, now: int, ends: int) -> int:
    """Decisions at the end if they go on as they came: rounds so far times the whole flight over the part flown.

    >>> expected_rounds(rounds=100, started=0, now=10, ends=40)
    400
    """
    flown = max(now - started, 1)
    return max(rounds + 1, round(rounds * (ends - started) / flown))


def is_over(work: Work) -> bool:
    """Whether the declared end has passed."""
    ends = work.campaign.ends_at
    return ends is not None and work.now >= ends


def renew(connection: Connection, work: Work) -> None:
    """Adopt a new estimate if one is due."""
    campaign, ends = work.campaign, work.campaign.ends_at
    if ends is None or campaign.config["horizon"] is not None or is_over(work):
        return
    rounds = work.state.round.item()
    estimate = campaign.config.get("estimate") or {"horizon": HORIZON_UNKNOWN, "at": work.created_at, "rounds": 0}
    aged = work.now - estimate["at"] >= (ends - work.created_at) / RENEWALS and rounds >= ROUNDS_MIN
    # Of what was to come, not of all: near the end nearly all is made at any time.
    used_up = rounds - estimate["rounds"] >= NEARLY_ALL * (estimate["horizon"] - estimate["rounds"])
    if not (aged or used_up) or rounds == estimate["rounds"]:
        return
    horizon = expected_rounds(rounds, work.created_at, work.now, ends)
    config: dict[str, Any] = json.loads(json.dumps(campaign.config))
    config["estimate"] = {"horizon": horizon, "at": work.now, "rounds": rounds}
    newer = Campaign(campaign.number, campaign.id, campaign.version + 1, config)
    work.state = newer.policy.adopt(campaign.policy, work.state)
    work.campaign = newer
    work.append("change", kind="estimate", body=to_json(config["estimate"]), model=None, at=work.now)
    row = {"campaign": newer.number, "version": newer.version, "body": to_json(config), "at": work.now}
    connection.execute(insert(tables.config).values(**row))
