"""Policies to be evaluated: the probabilities they give the real arms of each logged round; null takes the rest.

Whatever a target would like to play, only arms that were eligible in the logged round count: the log cannot tell what
the others would have earned. Probability on other arms goes to null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, finite
from cbwk_core.evaluation.log import ROUNDING, Log, Mask
from cbwk_core.evaluation.parallel import Progress

# Rounds a caller's function is asked about at once.
CHUNK_ROWS = 65_536


class Target(Protocol):
    """Something that can be evaluated."""

    def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
        """(n, arms), each round's at most 1 in sum; null takes the rest. Progress is told (rounds done, rounds)."""


@dataclass(frozen=True)
class FixedArm:
    """Always the same arm.

    >>> log = Log.of(features=np.zeros((1, 1)), eligible=[[True, True]], arm=[0], propensity=[0.5], reward=[1],
    ...              costs=[[1]])
    >>> FixedArm(1).probabilities(log)
    array([[0., 1.]])
    """

    arm: int

    def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
        """1 for the arm."""
        if isinstance(self.arm, bool) or not isinstance(self.arm, int | np.integer) or not 0 <= self.arm < log.arms:
            raise ValueError(f"the fixed arm must lie in 0..{log.arms - 1}, got {self.arm!r}")
        result = np.zeros((log.rounds, log.arms))
        result[:, self.arm] = 1.0
        return result


@dataclass(frozen=True)
class Uniform:
    """Every eligible real arm alike.

    >>> log = Log.of(features=np.zeros((1, 1)), eligible=[[True, True, False]], arm=[0], propensity=[0.5], reward=[1],
    ...              costs=[[1]])
    >>> Uniform().probabilities(log)
    array([[0.5, 0.5, 0. ]])
    """

    def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
        """1 over the number of eligible arms."""
        return np.asarray(log.eligible / np.maximum(log.eligible.sum(axis=1, keepdims=True), 1))


@dataclass(frozen=True)
class FromFunction:
    """A caller's function of (features, eligible), for any number of rounds, to probabilities (n, arms).

    >>> log = Log.of(features=[[0.2], [0.8]], eligible=np.ones((2, 2), dtype=bool), arm=[0, 1], propensity=[0.5, 0.5],
    ...              reward=[1, 0], costs=[[1], [1]])
    >>> FromFunction(lambda features, eligible: np.where(features > 0.5, [[0.0, 1.0]], [[1.0, 0.0]])).probabilities(log)
    array([[1., 0.],
           [0., 1.]])
    """

    function: Callable[[Array, Mask], ArrayLike]

    def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
        """What the function says, some rounds at a time."""
        parts = []
        for start in range(0, log.rounds, CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            eligible = log.eligible[rows]
            given = self.function(log.features[rows], eligible)
            parts.append(finite("the function's probabilities", given, eligible.shape))
            if progress is not None:
                progress(min(start + CHUNK_ROWS, log.rounds), log.rounds)
        return np.concatenate(parts)


class Restricted(NamedTuple):
    """A target on the logged eligible arms."""

    probabilities: Array  # (n, arms)
    moved: float  # mean probability that was on other arms and is null's now


def restrict(probabilities: ArrayLike, log: Log) -> Restricted:
    """Check a target's probabilities and set those of arms that were not eligible to 0.

    >>> log = Log.of(features=np.zeros((1, 1)), eligible=[[True, False]], arm=[0], propensity=[1.0], reward=[1],
    ...              costs=[[1]])
    >>> restrict([[0.25, 0.75]], log)
    Restricted(probabilities=array([[0.25, 0.  ]]), moved=0.75)
    """
    given = finite("probabilities", probabilities, log.eligible.shape)
    largest = float(given.sum(axis=1).max())
    if given.min() < 0.0 or largest > 1.0 + ROUNDING:
        raise ValueError(
            f"a target's probabilities must not be negative and sum to at most 1 in a round, "
            f"got {given.min()} as the least and {largest} as the largest sum"
        )
    kept = given * log.eligible
    return Restricted(kept, float((given * ~log.eligible).sum(axis=1).mean()))
