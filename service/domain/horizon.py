"""Campaigns that end at a time: their number of decisions is estimated from the traffic so far.

An estimate is a change of configuration, adopted without losing anything learnt. It is renewed with every hundredth of
the campaign's time, and earlier when decisions arrive faster than it predicted.
"""

from __future__ import annotations

from service.domain.campaign import HORIZON_UNKNOWN, Campaign

RENEWALS = 100
# Fewer decisions say nothing about the traffic, unless they use up the estimate.
ROUNDS_MIN = 20
# The estimate is renewed when this share of the decisions it still expected is made.
NEARLY_ALL = 0.9


def expected_rounds(rounds: int, started: int, now: int, ends: int) -> int:
    """Returns the decisions at the end if they continue at their mean rate so far.

    >>> expected_rounds(rounds=100, started=0, now=10, ends=40)
    400
    """
    elapsed = max(now - started, 1)
    return max(rounds + 1, round(rounds * (ends - started) / elapsed))


def first_estimate(declared: int, rounds: int, started: int, now: int, ends: int) -> dict[str, int]:
    """Returns the estimate of a campaign that had a declared horizon: that one, or the rate so far if it is used up."""
    horizon = declared if declared > rounds else expected_rounds(rounds, started, now, ends)
    return {"horizon": horizon, "at": now, "rounds": rounds}


def due_estimate(campaign: Campaign, rounds: int, asked: int, created_at: int, now: int) -> dict[str, int] | None:
    """Returns the estimate to adopt before the next `asked` decisions; None if the campaign needs none.

    All of them fit into it: a campaign with an end has ended when that has passed and not before.
    """
    ends = campaign.ends_at
    if ends is None or campaign.config["horizon"] is not None or now >= ends:
        return None
    last = campaign.config.get("estimate") or {"horizon": HORIZON_UNKNOWN, "at": created_at, "rounds": 0}
    aged = now - last["at"] >= (ends - created_at) / RENEWALS and rounds >= ROUNDS_MIN
    # A share of those still expected, not of all: near the end nearly all are made at any time.
    used_up = rounds - last["rounds"] >= NEARLY_ALL * (last["horizon"] - last["rounds"])
    if rounds + asked > last["horizon"]:
        return {"horizon": expected_rounds(rounds + asked, created_at, now, ends), "at": now, "rounds": rounds}
    if not (aged or used_up) or rounds == last["rounds"]:
        return None
    horizon = expected_rounds(rounds, created_at, now, ends)
    return {"horizon": max(horizon, rounds + asked), "at": now, "rounds": rounds}
