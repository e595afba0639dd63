"""Campaigns of every kind that trials create beside the plain ones: windows, portfolios, hold-out, shadow mode, and
those in which null is the last resort."""

from __future__ import annotations

from typing import Any

from tests.faults.load import campaign

# Holds that stay open while hours and days pass.
PATIENT = {"ttl_seconds": 200_000}
FREE_OF_CHARGE = {"ttl_seconds": 1, "missing_cost": "none", "missing_reward": None}
BASELINES = ("a", "b", None)
# Hours begin with the full hour in one of these and with the half hour in the other.
HALF_HOURS, WHOLE_HOURS = "Asia/Kolkata", "America/New_York"
LIVE_SOON = "shadow-then-live"
# A horizon at which the reserve of the floor arm leaves something for the other one.
LAST_RESORT = {"null_arm": "last_resort", "floor_arm": "b", "horizon": 200_000}


PORTFOLIO = {
    "id": "acme",
    "resources": [{"id": "usd", "budget": 5_000, "windows": [{"period": "hour", "limit": 15}]}],
    "timezone": HALF_HOURS,
}


def kinds() -> list[dict[str, Any]]:
    """Return one campaign of each kind."""
    return [
        campaign(
            "hourly",
            budget=100_000,
            timezone=HALF_HOURS,
            windows={"usd": {"hour": 8, "day": 60}, "impressions": {"day": 400}},
            feedback=PATIENT,
        ),
        campaign(
            "daily",
            budget=100_000,
            timezone=WHOLE_HOURS,
            windows={"usd": {"hour": 20, "day": 80, "week": 400, "month": 1_500}},
            feedback={"missing_cost": "none", "ttl_seconds": 2},
            holdout={"fraction": 0.1, "arm": "b"},
        ),
        campaign("shared", budget=100_000, portfolio="acme"),
        campaign("shared-daily", budget=100_000, portfolio="acme", windows={"usd": {"day": 100}}, feedback=PATIENT),
        campaign("held-out", budget=100_000, holdout={"fraction": 0.2, "arm": "a"}),
        campaign("held-out-null", budget=100_000, holdout={"fraction": 0.1, "arm": None}, feedback=FREE_OF_CHARGE),
        campaign("shadow", budget=100_000, mode="shadow", windows={"usd": {"hour": 20}}),
        campaign(
            "must-play",
            budget=100_000,
            windows={"usd": {"hour": 10, "day": 60}},
            **LAST_RESORT,
            holdout={"fraction": 0.1, "arm": "a"},
        ),
        campaign("must-play-shared", budget=100_000, portfolio="acme", **LAST_RESORT, feedback=PATIENT),
        campaign(LIVE_SOON, budget=100_000, mode="shadow", feedback=FREE_OF_CHARGE),
    ]
