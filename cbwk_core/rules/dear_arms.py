"""How often an arm may be tried whose declared max cost is above that of others (`practical`).

Where one play of an arm may cost a seventh of the budget, exploration must not begin with it: what it costs is known
only afterwards, and prices move only then. The declared max costs are known before.
"""

from __future__ import annotations

from math import inf

import numpy as np

from cbwk_core.arrays import Array, Mask
from cbwk_core.presets import DEAR_PLAYS

# A smaller hold counts as none: the number of plays that are free stays finite.
_HOLD_MIN = 1e-100


def _plays(free: Array, holds: Array) -> Array:
    """How often free (1 or n, d) pays holds (1 or n, c, d): (n, c). What an arm does not need does not limit it."""
    left = np.broadcast_to(np.maximum(free, 0.0)[:, None, :], np.broadcast_shapes(free[:, None, :].shape, holds.shape))
    return np.asarray(np.divide(left, holds, out=np.full(left.shape, np.inf), where=holds > _HOLD_MIN).min(axis=2))


def _plays_of_one(free: list[float], hold: list[float]) -> float:
    """`_plays` of one candidate."""
    return min([max(left, 0.0) / each if each > _HOLD_MIN else inf for left, each in zip(free, hold)])  # noqa: B905


def try_limits(free: Array, holds: Array, allowed: Mask | None, unknown: Array, rest: Array) -> Array:
    """The largest probability of each candidate, (n, c), at most 1; it is 1 for the cheapest allowed candidate.

    The cheapest is the one that what is free pays most often. A play of another one risks the difference of their
    holds, as far as the candidate is unknown. What is free pays the risk N times. Over the rounds left, the candidate
    gets N² / DEAR_PLAYS plays.

    free (1 or n, d) and holds (1 or n, c, d) in one unit; allowed (n, c); unknown (n, c): the share of the prior's
    variance that is left; rest (1 or n,): the rounds left.

    >>> holds = np.array([[[1.0], [2.0], [51.0]]])
    >>> try_limits(np.array([[1000.0]]), holds, None, np.ones((1, 3)), rest=np.array([4000.0])).tolist()
    [[1.0, 0.625, 0.00025]]
    """
    payable = _plays(free, holds)
    cheapest = (payable if allowed is None else np.where(allowed, payable, -1.0)).argmax(axis=1)
    more = np.maximum(holds - np.take_along_axis(holds, cheapest[:, None, None], axis=1), 0.0)
    plays = _plays(free, np.minimum(unknown, 1.0)[..., None] * more)
    return np.asarray(np.minimum(plays * plays / (DEAR_PLAYS * rest)[:, None], 1.0))


def try_limits_of_one(free: list[float], holds: list[list[float]], unknown: list[float], rest: float) -> list[float]:
    """`try_limits` of one request whose candidates are all allowed."""
    payable = [_plays_of_one(free, own) for own in holds]
    cheapest, limits = holds[payable.index(max(payable))], []
    for own, share in zip(holds, unknown):  # noqa: B905
        known = share if share < 1.0 else 1.0
        plays = _plays_of_one(free, [known * max(each - low, 0.0) for each, low in zip(own, cheapest)])  # noqa: B905
        limits.append(min(plays * plays / (DEAR_PLAYS * rest), 1.0))
    return limits
