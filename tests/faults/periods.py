"""The period of a calendar to which a time belongs, as its name: two times are of one period if their names are equal.

The service computes where a period begins and ends; here nothing is computed but what the clock on the wall shows.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from tests.faults.history import MICROS

PERIODS = ("hour", "day", "week", "month")


def period_of(period: str, at: int, zone: str) -> str:
    """Return the name of the period that contains a time, given in microseconds since 1970.

    The hour that the clocks show twice is two periods, so the difference from UTC is part of an hour's name.

    >>> period_of("hour", 0, "Asia/Kolkata"), period_of("week", 0, "UTC"), period_of("month", 0, "America/New_York")
    ('1970-01-01 05 +0530', '1970 W01', '1969-12')
    """
    local = datetime.fromtimestamp(at // MICROS, UTC).astimezone(ZoneInfo(zone))
    return local.strftime({"hour": "%Y-%m-%d %H %z", "day": "%Y-%m-%d", "week": "%G W%V", "month": "%Y-%m"}[period])
