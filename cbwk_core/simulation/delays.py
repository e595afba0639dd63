"""When outcomes become known: late, and some of them never."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbwk_core.arrays import Integers


@dataclass(frozen=True)
class Delays:
    """A delay per round, the same in all lanes so that they stay in step, and outcomes that are never reported.

    rounds: the delay of every round, or the longest where `varying` draws each from 0..rounds, all alike.
    missing: the share of outcomes, drawn per lane and round, that are never reported. Their cost is booked when the
        others of their round are settled, as at an expiry: the money is gone, nothing is learnt.
    seed: of the delays, which must not depend on the lanes.

    >>> Delays(rounds=3).per_round(4)
    array([3, 3, 3, 3])
    >>> sorted(set(Delays(rounds=2, varying=True).per_round(100).tolist()))
    [0, 1, 2]
    """

    rounds: int = 0
    varying: bool = False
    missing: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise ValueError(f"rounds must not be negative, got {self.rounds}")
        if not 0 <= self.missing <= 1:
            raise ValueError(f"missing must lie in [0, 1], got {self.missing}")

    def per_round(self, horizon: int) -> Integers:
        """After how many rounds the outcome of each round is known, (horizon,)."""
        if not self.varying:
            return np.full(horizon, self.rounds, dtype=np.int64)
        return np.random.default_rng(self.seed).integers(0, self.rounds, size=horizon, endpoint=True)
