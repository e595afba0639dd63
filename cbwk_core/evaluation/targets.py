"""Target policies: the probabilities that they give to the real arms of each logged round. Null gets the rest.

A target can only play arms that were eligible in the logged round, because the log contains no outcomes of other arms.
`restrict` moves the probability of other arms to null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Mask, finite
from cbwk_core.evaluation.log import ROUNDING, Log
from cbwk_core.evaluation.parallel import Progress

# The rounds of one call of a caller's function.
CHUNK_ROWS = 65_536


class Target(Protocol):
    """A policy that `evaluate` accepts.

    >>> class Never:
    ...     def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
    ...         return np.zeros((log.rounds, log.arms))
    >>> target: Target = Never()
    """

    def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
        """Return probabilities (n, arms) with a sum of at most 1 per round; null gets the rest.

        progress: called with (rounds done, rounds).
        """


@dataclass(frozen=True)
class FixedArm:
    """Always plays one arm.

    >>> log = Log.of(features=np.zeros((1, 1)), eligible=[[True, True]], arm=[0], propensity=[0.5], reward=[1],
    ...              costs=[[1]])
    >>> FixedArm(1).probabilities(log)
    array([[0., 1.]])
    """

    arm: int

    def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
        """Return 1 for the arm and 0 for the others."""
        if isinstance(self.arm, bool) or not isinstance(self.arm, int | np.integer) or not 0 <= self.arm < log.arms:
            raise ValueError(f"the fixed arm must lie in 0..{log.arms - 1}, got {self.arm!r}")
        result = np.zeros((log.rounds, log.arms))
        result[:, self.arm] = 1.0
        return result


@dataclass(frozen=True)
class Uniform:
    """Plays each eligible real arm with the same probability.

    >>> log = Log.of(features=np.zeros((1, 1)), eligible=[[True, True, False]], arm=[0], propensity=[0.5], reward=[1],
    ...              costs=[[1]])
    >>> Uniform().probabilities(log)
    array([[0.5, 0.5, 0. ]])
    """

    def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
        """Return 1 / the number of eligible arms, for each of them."""
        return np.asarray(log.eligible / np.maximum(log.eligible.sum(axis=1, keepdims=True), 1))


@dataclass(frozen=True)
class FromFunction:
    """Plays by a function that maps (features, eligible) of any number of rounds to probabilities (n, arms).

    >>> log = Log.of(features=[[0.2], [0.8]], eligible=np.ones((2, 2), dtype=bool), arm=[0, 1], propensity=[0.5, 0.5],
    ...              reward=[1, 0], costs=[[1], [1]])
    >>> FromFunction(lambda features, eligible: np.where(features > 0.5, [[0.0, 1.0]], [[1.0, 0.0]])).probabilities(log)
    array([[1., 0.],
           [0., 1.]])
    """

    function: Callable[[Array, Mask], ArrayLike]

    def probabilities(self, log: Log, progress: Progress | None = None) -> Array:
        """Return the results of the function, which is called for `CHUNK_ROWS` rounds at a time."""
        chunks = []
        for start in range(0, log.rounds, CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            eligible = log.eligible[rows]
            given = self.function(log.features[rows], eligible)
            chunks.append(finite("the function's probabilities", given, eligible.shape))
            if progress is not None:
                progress(min(start + CHUNK_ROWS, log.rounds), log.rounds)
        return np.concatenate(chunks)


class Restricted(NamedTuple):
    """A target that plays eligible arms only."""

    probabilities: Array  # (n, arms)
    moved: float  # mean probability that `restrict` moved from other arms to null


def restrict(probabilities: ArrayLike, log: Log) -> Restricted:
    """Check the probabilities of a target and set those of arms that were not eligible to 0.

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
            f"got a minimum of {given.min()} and a largest sum of {largest}"
        )
    return Restricted(given * log.eligible, float((given * ~log.eligible).sum(axis=1).mean()))
