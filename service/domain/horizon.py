"""Campaigns that end at a time: their number of decisions is estimated from the traffic so far.

An estimate is a change of configuration, adopted without losing anything learnt. It is renewed with every hundredth of
the campaign's time, and earlier when decisions arrive faster than it predicted.
"""

from __future__ import annotations

from service.domain.campaign import HORIZON_UNKNOWN, Campaign
from service.domain.traffic import Counts, expected_rounds, plus

RENEWALS = 100
# Fewer decisions say nothing about the traffic, unless they use up the estimate.
ROUNDS_MIN = 20
# The estimate is renewed when this share of the decisions it still expected is made.
NEARLY_ALL = 0.9


def expected_horizon(counts: Counts, since: int, now: int, ends: int) -> int:
    """Returns the decisions at the end: those made, and those to expect by the traffic since the flight began."""
    return int(counts.sum()) + max(1, round(float(expected_rounds(counts, since, now, ends))))


def first_estimate(declared: int, counts: Counts, since: int, now: int, ends: int) -> dict[str, int]:
    """Returns the estimate of a campaign that had a declared horizon: that one, or by traffic if it is used up."""
    rounds = int(counts.sum())
    horizon = declared if declared > rounds else expected_horizon(counts, since, now, ends)
    return {"horizon": horizon, "at": now, "rounds": rounds}


def due_estimate(campaign: Campaign, counts: Counts, asked: int, created_at: int, now: int) -> dict[str, int] | None:
    """Returns the estimate to adopt before the next `asked` decisions; None if the campaign needs none.

    All of them fit into it: a campaign with an end has ended when that has passed and not before.
    """
    ends, since, rounds = campaign.ends_at, campaign.flight_start(created_at), int(counts.sum())
    if ends is None or campaign.config["horizon"] is not None or not since <= now < ends:
        return None
    last = campaign.config.get("estimate") or {"horizon": HORIZON_UNKNOWN, "at": since, "rounds": 0}
    aged = now - last["at"] >= (ends - since) / RENEWALS and rounds >= ROUNDS_MIN
    # A share of those still expected, not of all: near the end nearly all are made at any time.
    used_up = rounds - last["rounds"] >= NEARLY_ALL * (last["horizon"] - last["rounds"])
    if rounds + asked > last["horizon"]:
        return {"horizon": expected_horizon(plus(counts, asked, now), since, now, ends), "at": now, "rounds": rounds}
    if not (aged or used_up) or rounds == last["rounds"]:
        return None
    return {"horizon": max(expected_horizon(counts, since, now, ends), rounds + asked), "at": now, "rounds": rounds}
