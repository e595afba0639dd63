"""The batches of rounds in which a policy decides the rounds of a log."""

from __future__ import annotations

from math import isqrt

import numpy as np

from cbwk_core.evaluation.log import Log
from cbwk_core.policy import SquareCBwK
from cbwk_core.round import affordable
from cbwk_core.state import State

# A batch has √t / BATCH_DIVISOR rounds after t rounds, so the first rounds are batches of one. The steps of the prices
# shrink as 1/√t, so the prices move by about a twentieth within a batch.
BATCH_DIVISOR = 4


def check_fit(policy: SquareCBwK, log: Log) -> None:
    """Raise a ValueError if the policy and the log have different sizes."""
    for name in ("arms", "dimension", "resources", "model"):
        wanted, found = getattr(log, name), getattr(policy, name)
        if wanted != found:
            raise ValueError(f"{name} of the policy must be the log's, {wanted!r}, got {found!r}")


def next_batch(policy: SquareCBwK, state: State, start: int, rounds: int) -> slice | None:
    """Return the rounds to decide next, or None after the last round and when the policy cannot pay any arm.

    A batch has one round if the budget may run out within a batch, because each decision then limits the next one.

    >>> policy = SquareCBwK(arms=1, dimension=1, resources=1, horizon=9, budget=99)
    >>> next_batch(policy, policy.init(), 1600, 9000)
    slice(1600, 1610, None)
    >>> poor = SquareCBwK(arms=1, dimension=1, resources=1, horizon=9, budget=3)
    >>> next_batch(poor, poor.init(), 1600, 9000), next_batch(poor, poor.init(), 9000, 9000)
    (slice(1600, 1601, None), None)
    """
    unspent = np.asarray(policy.budget) - state.spent
    payable = affordable(policy, policy.problem.rows, unspent, policy.problem.hold[None])
    if start >= rounds or (payable is not None and not payable.any()):
        return None
    size = max(1, isqrt(start) // BATCH_DIVISOR)
    if (unspent < (size + 1) * policy.problem.dearest).any():
        size = 1
    return slice(start, min(start + size, rounds))
