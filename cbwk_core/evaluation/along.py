"""Walking a policy along a log."""

from __future__ import annotations

from math import isqrt

from cbwk_core.arrays import Array
from cbwk_core.evaluation.log import Log
from cbwk_core.policy import SquareCBwK

# Rounds decided at once: √t / BATCH_DIVISOR after t of them. Prices take steps that shrink as 1/√t, so within a batch
# they move by about a twentieth, and the first rounds are decided one by one.
BATCH_DIVISOR = 4


def check_fit(policy: SquareCBwK, log: Log) -> None:
    """Refuse a policy of other sizes than the log."""
    for name in ("arms", "dimension", "resources", "model"):
        wanted, found = getattr(log, name), getattr(policy, name)
        if wanted != found:
            raise ValueError(f"{name} of the policy must be the log's, {wanted!r}, got {found!r}")


def next_batch(policy: SquareCBwK, account: Array, start: int, rounds: int) -> slice | None:
    """The rounds to decide next with this much free (d,); None at the end, and where nothing can be paid any more.

    Where money is short, it is one round: what a decision leaves is what the next one finds.

    >>> import numpy as np
    >>> policy = SquareCBwK(arms=1, dimension=1, resources=1, horizon=9, budget=9)
    >>> next_batch(policy, np.array([99.0]), 1600, 9000), next_batch(policy, np.array([3.0]), 1600, 9000)
    (slice(1600, 1610, None), slice(1600, 1601, None))
    >>> next_batch(policy, np.array([0.9]), 1600, 9000) is None
    True
    """
    problem = policy.problem
    if start >= rounds or not (account >= problem.hold).all(axis=1).any():
        return None
    if policy.variant.exits and (account <= problem.unit).any():
        return None
    size = max(1, isqrt(start) // BATCH_DIVISOR)
    if (account < (size + 1) * problem.unit).any():
        size = 1
    return slice(start, min(start + size, rounds))
