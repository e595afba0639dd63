"""The contract every regression oracle keeps, and what all of them share.

An oracle is a frozen configuration with pure functions over a state (a NamedTuple of arrays):

- *lanes*: a state holds one or more independent learners side by side. One lane is the ordinary case; the simulation
  runner uses one lane per run. Where a call has rows, row i belongs to lane i modulo lanes, so with one lane every row
  speaks to the same learner and with as many lanes as rows each row speaks to its own.
- *blocks*: a learner holds one parameter block per arm (`per_arm`) or a single one (`shared`).
- *candidates*: `predict` takes features of shape (n, k, m). Either k = 1 and every block predicts for the same context,
  or there is one block and every candidate brings its own features; both give (n, k * blocks, targets).
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, finite, numbers, without_nan

State = TypeVar("State")


class Oracle(Protocol[State]):
    """Online regression of `targets` numbers on features in `dimension` coordinates."""

    @property
    def dimension(self) -> int:
        """Length of a feature vector."""

    @property
    def targets(self) -> int:
        """How many numbers are predicted: reward first, then the costs."""

    @property
    def blocks(self) -> int:
        """How many parameter blocks a learner holds."""

    def init(self, lanes: int = 1) -> State:
        """The state before any data."""

    def predict(self, state: State, features: Array) -> Array:
        """Predictions of shape (n, k * blocks, targets) for features of shape (n, k, dimension)."""

    def spread(self, state: State, features: Array) -> Array | None:
        """The leverage φᵀA⁻¹φ of every candidate, shape (n, k * blocks); None where the oracle does not know it."""

    def update(
        self, state: State, features: Array, targets: Array, block: Integers | None = None, weight: Array | None = None
    ) -> State:
        """Learn n rows in order: features (n, dimension), targets (n, targets).

        A weight is 1, or 0 for a row that teaches nothing; n is a multiple of the state's lanes.
        """

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """A bound, with probability 1 - delta, on Σ (prediction - truth)² of one target over that many rounds.

        Features lie in the unit ball (or cube, where the oracle says so), targets in [0, 1]; inf: nothing is known.
        """

    def resize(self, state: State, blocks: int) -> State:
        """The state with more blocks; the new ones know nothing."""


def checked_rows(oracle: Oracle[Any], lanes: int, features: ArrayLike, targets: ArrayLike) -> tuple[Array, Array]:
    """Features (n, dimension) and targets (n, targets) as finite floats, or a ValueError that says what is wrong."""
    x = finite("features", features, (None, oracle.dimension))
    y = finite("targets", targets, (x.shape[0], oracle.targets))
    if x.shape[0] % lanes:
        raise ValueError(f"rows must be a multiple of the state's {lanes} lanes, got {x.shape[0]} rows")
    return x, y


def checked_candidates(oracle: Oracle[Any], features: ArrayLike, lanes: int = 1) -> Array:
    """Finite features of shape (n, k, dimension); plain rows (n, dimension) are taken as one candidate each."""
    x = numbers("features", features)
    if x.ndim == 2:
        x = x[:, None, :]
    if x.ndim != 3 or x.shape[2] != oracle.dimension or (oracle.blocks > 1 and x.shape[1] != 1):
        expected = f"(n, k, {oracle.dimension})" if oracle.blocks == 1 else f"(n, 1, {oracle.dimension})"
        raise ValueError(f"features must have shape {expected}, got {np.shape(features)}")
    if x.shape[0] % lanes:
        raise ValueError(f"rows must be a multiple of the state's {lanes} lanes, got {x.shape[0]} rows")
    return without_nan("features", x)


def checked_block(oracle: Oracle[Any], block: ArrayLike | None, rows: int) -> Integers:
    """One block index per row; zeros when none is given."""
    if block is None:
        return np.zeros(rows, dtype=np.int64)
    index = np.asarray(block)
    if index.shape != (rows,) or index.dtype.kind not in "iu":
        raise ValueError(f"block must hold one whole number per row ({rows}), got {index.dtype} of shape {index.shape}")
    if rows and not (0 <= index.min() and index.max() < oracle.blocks):
        raise ValueError(f"block must lie in 0..{oracle.blocks - 1}, got {index.min()}..{index.max()}")
    return index.astype(np.int64, copy=False)


def checked_weight(weight: ArrayLike | None, rows: int) -> Array:
    """One weight per row, 0 or 1; ones when none is given.

    Nothing between: not every model behind an adapter can learn a fraction of a row.

    >>> checked_weight([True, False], 2)
    array([1., 0.])
    """
    if weight is None:
        return np.ones(rows)
    w = finite("weight", weight, (rows,))
    odd = (w != 0.0) & (w != 1.0)
    if odd.any():
        raise ValueError(f"weight must be 0 or 1, got {w[odd][0]}")
    return w


def checked_growth(oracle: Oracle[Any], blocks: int) -> int:
    """How many blocks `resize` has to append."""
    if blocks < oracle.blocks:
        raise ValueError(f"blocks must be at least the {oracle.blocks} there are, got {blocks}")
    return blocks - oracle.blocks
