"""Moments: RFC 3339 text in the interface, microseconds since 1970 inside."""

import re
from datetime import UTC, datetime, timedelta

MICROS_PER_SECOND = 1_000_000
MICROS_PER_HOUR = 3_600 * MICROS_PER_SECOND
HOURS_PER_WEEK = 168

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)")


def hour_of_week(microseconds: int) -> int:
    """Return the hour of the week in UTC; hour 0 begins a Thursday, as 1970 did.

    >>> hour_of_week(moment_microseconds("2026-11-19T01:30:00Z"))
    1
    """
    return microseconds // MICROS_PER_HOUR % HOURS_PER_WEEK


def moment_text(microseconds: int) -> str:
    """Return the moment in UTC, with a fraction of a second only if it is not 0.

    >>> moment_text(1_794_823_200_000_000), moment_text(1)
    ('2026-11-16T10:00:00Z', '1970-01-01T00:00:00.000001Z')
    """
    return datetime_of(microseconds).isoformat().removesuffix("+00:00") + "Z"


def datetime_of(microseconds: int) -> datetime:
    """Return the moment as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def microseconds_of(moment: datetime) -> int:
    """Return the microseconds of a datetime with a time zone."""
    return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND


def moment_microseconds(text: str) -> int:
    """Return the microseconds of a moment in any time zone; raise a ValueError if the text is not one.

    >>> moment_microseconds("2026-11-16T12:00:00+02:00")
    1794823200000000
    >>> moment_microseconds("2026-11-16")
    Traceback (most recent call last):
    ValueError: must be a date and time with a time zone, such as 2026-11-16T10:00:00Z
    """
    try:
        if _RFC_3339.fullmatch(text) is None:
            raise ValueError
        # The conversion to UTC overflows for some hours of the first and the last year.
        return microseconds_of(datetime.fromisoformat(text.upper()))
    except (ValueError, OverflowError):
        raise ValueError("must be a date and time with a time zone, such as 2026-11-16T10:00:00Z") from None
