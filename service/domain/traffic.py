"""The traffic of a campaign as it is stored, by hour of the week in UTC; `cbwk_core.rules.traffic` has the rules."""

from __future__ import annotations

import numpy as np

from cbwk_core.rules.traffic import Counts, expected_rounds, hours_between, no_traffic, plus, rates

__all__ = ["Counts", "decoded", "encoded", "expected_rounds", "hours_between", "no_traffic", "plus", "rates"]

COUNT_MAX = 2**32 - 1


def encoded(counts: Counts) -> bytes:
    """Returns the counts as they are stored: little-endian uint32."""
    return np.minimum(counts, COUNT_MAX).astype("<u4").tobytes()


def decoded(stored: bytes) -> Counts:
    """Returns stored counts.

    >>> bool((decoded(encoded(plus(no_traffic(), 3, at=0))) == plus(no_traffic(), 3, at=0)).all())
    True
    """
    return np.frombuffer(stored, dtype="<u4").astype(np.int64)
