"""The protocol of a regression oracle, and the input checks that all oracles share.

An oracle is a frozen configuration. Its methods are pure functions over a state, which is a NamedTuple of arrays.

- *Lanes*: a state holds one or more independent learners. A policy in use has one lane; a simulation has one lane per
  run. Row i of a call belongs to lane i modulo lanes. With one lane, every row goes to the same learner.
- *Blocks*: a learner holds one parameter block per arm (`per_arm`) or a single block (`shared`).
- *Candidates*: `predict` takes features of shape (n, k, m). Either k = 1 and every block predicts for the same context,
  or there is one block and every candidate has its own features. The result has shape (n, k * blocks, targets).
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, finite, numbers, without_nan

State = TypeVar("State")


class Oracle(Protocol[State]):
    """Online regression of `targets` numbers on feature vectors of length `dimension`.

    >>> from cbwk_core.oracles import Newton
    >>> oracle: Oracle = Newton(dimension=2, targets=1, blocks=3)
    >>> oracle.predict(oracle.init(), np.array([[0.5, 0.5]])).shape  # one context, three blocks, one target
    (1, 3, 1)
    """

    @property
    def dimension(self) -> int:
        """The length of a feature vector."""

    @property
    def targets(self) -> int:
        """The number of predicted values: the reward first, then the costs."""

    @property
    def blocks(self) -> int:
        """The number of parameter blocks of a learner."""

    @property
    def parameters(self) -> int:
        """The number of parameters that predict one target, over all blocks: M in Reg_sq = M ln T."""

    def init(self, lanes: int = 1) -> State:
        """Return the state before any data."""

    def predict(self, state: State, features: Array) -> Array:
        """Return predictions of shape (n, k * blocks, targets) for features of shape (n, k, dimension)."""

    def spread(self, state: State, features: Array) -> Array | None:
        """Return the leverage φᵀA⁻¹φ of every candidate, shape (n, k * blocks); None if the oracle has no leverage."""

    def update(
        self, state: State, features: Array, targets: Array, block: Integers | None = None, weight: Array | None = None
    ) -> State:
        """Return the state after n rows in order: features (n, dimension), targets (n, targets).

        A row of weight 1 is learnt, a row of weight 0 is ignored. n is a multiple of the number of lanes.
        """

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """Return a bound on Σ (prediction - truth)² of one target over `rounds` rounds, with probability 1 - delta.

        The bound assumes features in the unit ball (or cube, if the oracle says so) and targets in [0, 1]. It is inf if
        no bound is known.
        """

    def resize(self, state: State, blocks: int) -> State:
        """Return the state with `blocks` blocks; the added blocks have learnt nothing."""


def check_sizes(oracle: Oracle[Any]) -> None:
    """Raise a ValueError unless dimension, targets and blocks are at least 1."""
    sizes = (oracle.dimension, oracle.targets, oracle.blocks)
    if min(sizes) < 1:
        raise ValueError("dimension, targets and blocks must be at least 1, got {}, {}, {}".format(*sizes))


def checked_update(
    oracle: Oracle[Any],
    lanes: int,
    features: ArrayLike,
    targets: ArrayLike,
    block: ArrayLike | None,
    weight: ArrayLike | None,
) -> tuple[Array, Array, Integers, Array]:
    """Return the checked arguments of `update`: features, targets, block indices and weights, one per row.

    >>> from cbwk_core.oracles import Newton
    >>> checked_update(Newton(dimension=2, targets=1), 1, [[1, 2]], [[3]], None, None)
    (array([[1., 2.]]), array([[3.]]), array([0]), array([1.]))
    """
    x, y = checked_rows(oracle, lanes, features, targets)
    return x, y, checked_block(oracle, block, x.shape[0]), checked_weight(weight, x.shape[0])


def checked_rows(oracle: Oracle[Any], lanes: int, features: ArrayLike, targets: ArrayLike) -> tuple[Array, Array]:
    """Return features (n, dimension) and targets (n, targets) as finite floats, or raise a ValueError."""
    x = finite("features", features, (None, oracle.dimension))
    y = finite("targets", targets, (x.shape[0], oracle.targets))
    _check_lanes(x, lanes)
    return x, y


def checked_candidates(oracle: Oracle[Any], features: ArrayLike, lanes: int = 1) -> Array:
    """Return finite features of shape (n, k, dimension); rows of shape (n, dimension) become one candidate each."""
    x = numbers("features", features)
    if x.ndim == 2:
        x = x[:, None, :]
    if x.ndim != 3 or x.shape[2] != oracle.dimension or (oracle.blocks > 1 and x.shape[1] != 1):
        expected = f"(n, k, {oracle.dimension})" if oracle.blocks == 1 else f"(n, 1, {oracle.dimension})"
        raise ValueError(f"features must have shape {expected}, got {np.shape(features)}")
    _check_lanes(x, lanes)
    return without_nan("features", x)


def _check_lanes(x: Array, lanes: int) -> None:
    if x.shape[0] % lanes:
        raise ValueError(f"rows must be a multiple of the state's {lanes} lanes, got {x.shape[0]} rows")


def checked_block(oracle: Oracle[Any], block: ArrayLike | None, rows: int) -> Integers:
    """Return one block index per row; zeros if `block` is None."""
    if block is None:
        return np.zeros(rows, dtype=np.int64)
    index = np.asarray(block)
    if index.shape != (rows,) or index.dtype.kind not in "iu":
        raise ValueError(f"block must hold one whole number per row ({rows}), got {index.dtype} of shape {index.shape}")
    if rows and not (0 <= index.min() and index.max() < oracle.blocks):
        raise ValueError(f"block must lie in 0..{oracle.blocks - 1}, got {index.min()}..{index.max()}")
    return index.astype(np.int64, copy=False)


def checked_weight(weight: ArrayLike | None, rows: int) -> Array:
    """Return one weight per row, 0 or 1; ones if `weight` is None.

    Other weights are refused because not every model behind an adapter can learn a fraction of a row.

    >>> checked_weight([True, False], 2)
    array([1., 0.])
    """
    if weight is None:
        return np.ones(rows)
    w = finite("weight", weight, (rows,))
    refused = (w != 0.0) & (w != 1.0)
    if refused.any():
        raise ValueError(f"weight must be 0 or 1, got {w[refused][0]}")
    return w


def checked_growth(oracle: Oracle[Any], blocks: int) -> int:
    """Return the number of blocks that `resize` appends, or raise a ValueError if blocks would be removed."""
    if blocks < oracle.blocks:
        raise ValueError(f"blocks must be at least the current {oracle.blocks}, got {blocks}")
    return blocks - oracle.blocks
