"""Delayed outcomes, and outcomes that are never reported."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbwk_core.arrays import Integers


@dataclass(frozen=True)
class Delays:
    """The number of rounds between a decision and its outcome, and the share of outcomes that are never reported.

    A round has the same delay in all lanes, so the runner settles all lanes together.

    rounds: the delay of every round. With `varying`, each delay is uniform on 0..rounds.
    costs_at_once: only the reward is delayed, as with conversions; the costs are known in the round of the decision.
    missing: the share of outcomes, drawn per lane and round, that are never reported. The runner books their cost when
        the delay of their round is over, and the policy learns nothing from them: a decision that expired.
    seed: the seed of the varying delays. It does not depend on the lanes.

    >>> Delays(rounds=3).per_round(4)
    array([3, 3, 3, 3])
    >>> sorted(set(Delays(rounds=2, varying=True).per_round(100).tolist()))
    [0, 1, 2]
    """

    rounds: int = 0
    varying: bool = False
    costs_at_once: bool = False
    missing: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise ValueError(f"rounds must not be negative, got {self.rounds}")
        if not 0 <= self.missing <= 1:
            raise ValueError(f"missing must lie in [0, 1], got {self.missing}")

    def per_round(self, horizon: int) -> Integers:
        """Return the delay of every round, (horizon,)."""
        if not self.varying:
            return np.full(horizon, self.rounds, dtype=np.int64)
        return np.random.default_rng(self.seed).integers(0, self.rounds, size=horizon, endpoint=True)
