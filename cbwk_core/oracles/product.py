"""Several oracles on the same features; the targets of the product are those of its parts, in order.

This is the paper's construction of R^c from d copies of one oracle (appendix, "Construction of R^c"). It also combines
a logistic reward with linear costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, finite, folded
from cbwk_core.oracles.oracle import Oracle, checked_candidates


class ProductState(NamedTuple):
    """The states of the parts, in order.

    >>> from cbwk_core.oracles.newton import Newton
    >>> state = Product((Newton(dimension=2, targets=1), Newton(dimension=2, targets=3))).init()
    >>> [part.theta.shape[-1] for part in state.parts], state.changes, state.forgotten
    ([1, 3], array([0.]), array([0.]))
    """

    parts: tuple[Any, ...]

    @property
    def changes(self) -> Array | float:
        """The largest number of detected changes among the parts, (lanes,) or 0."""
        return reduce(np.maximum, (changes(part) for part in self.parts))

    @property
    def dismissed(self) -> Array | float:
        """The largest number of alarms that a part has dismissed, (lanes,) or 0."""
        return reduce(np.maximum, (dismissed(part) for part in self.parts))

    @property
    def forgotten(self) -> Array | float:
        """The largest number of outcomes that a part has discarded, (lanes,) or 0."""
        return reduce(np.maximum, (forgotten(part) for part in self.parts))

    def predicted_of_one(self, x: Array) -> tuple[Array, list[float]]:
        """Return `NewtonState.predicted_of_one` of all parts, with the largest leverage."""
        predictions, leverages = zip(*(part.predicted_of_one(x) for part in self.parts), strict=True)
        return np.concatenate(predictions, axis=1), [max(each) for each in zip(*leverages, strict=True)]


def changes(state: Any) -> Array | float:
    """Return how many changes an oracle has detected, (lanes,), or 0 if the oracle does not detect changes.

    >>> from cbwk_core.oracles import Gradient, Newton
    >>> changes(Newton(dimension=2, targets=1).init(lanes=2)), changes(Gradient(dimension=2, targets=1).init())
    (array([0., 0.]), 0.0)
    """
    return getattr(state, "changes", 0.0)


def dismissed(state: Any) -> Array | float:
    """Return how many alarms have turned out to be no change, (lanes,), or 0 if the oracle does not detect changes.

    >>> from cbwk_core.oracles import Newton
    >>> dismissed(Newton(dimension=2, targets=1).init())
    array([0.])
    """
    return getattr(state, "dismissed", 0.0)


def without_trial(state: Any) -> Any:
    """Return the state of an oracle without the trial of an alarm (trial.py), if there is one.

    >>> from cbwk_core.oracles import Newton
    >>> without_trial(Newton(dimension=2, targets=1).init()).trial
    ()
    """
    if isinstance(state, ProductState):
        return ProductState(tuple(map(without_trial, state.parts)))
    return state._replace(trial=()) if getattr(state, "trial", ()) else state


def forgotten(state: Any) -> Array | float:
    """Return how many outcomes before the last change are discarded, (lanes,), or 0 if there is no detection.

    >>> from cbwk_core.oracles import Newton
    >>> forgotten(Newton(dimension=2, targets=1).init())
    array([0.])
    """
    return getattr(state, "forgotten", 0.0)


@dataclass(frozen=True)
class Product:
    """Configuration: the oracles that predict the targets, in order.

    >>> from cbwk_core.oracles.newton import Newton
    >>> clicks_and_cost = Product((Newton(dimension=2, targets=1, link="logistic"), Newton(dimension=2, targets=1)))
    >>> clicks_and_cost.predict(clicks_and_cost.init(), np.array([[[1.0, 0.0]]]))
    array([[[0.5, 0. ]]])
    """

    parts: tuple[Oracle[Any], ...]

    def __post_init__(self) -> None:
        shapes = sorted({(part.dimension, part.blocks) for part in self.parts})
        if len(shapes) != 1:
            raise ValueError(f"the parts must have dimension and blocks in common, got {shapes}")

    @property
    def dimension(self) -> int:
        """The length of a feature vector."""
        return self.parts[0].dimension

    @property
    def targets(self) -> int:
        """The number of predicted values of all parts."""
        return sum(part.targets for part in self.parts)

    @property
    def blocks(self) -> int:
        """The number of parameter blocks of every part."""
        return self.parts[0].blocks

    @property
    def parameters(self) -> int:
        """The number of parameters of one target in the part that has most."""
        return max(part.parameters for part in self.parts)

    def init(self, lanes: int = 1) -> ProductState:
        """Return the initial states of the parts."""
        return ProductState(tuple(part.init(lanes) for part in self.parts))

    def predict(self, state: ProductState, features: ArrayLike) -> Array:
        """Return the predictions of all parts, shape (n, k * blocks, targets)."""
        x = checked_candidates(self, features)
        return np.concatenate([part.predict(own, x) for part, own in self._pairs(state)], axis=-1)

    def spread(self, state: ProductState, features: ArrayLike) -> Array | None:
        """Return the largest leverage of the parts that have one, shape (n, k * blocks); None if no part has one."""
        x = checked_candidates(self, features)
        known = [leverage for part, own in self._pairs(state) if (leverage := part.spread(own, x)) is not None]
        return np.max(known, axis=0) if known else None

    def update(
        self,
        state: ProductState,
        features: ArrayLike,
        targets: ArrayLike,
        block: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> ProductState:
        """Update every part with its columns of the targets; if one part detects a change, all parts restart.

        weight: (n,), or (n, targets) where a row teaches some of the parts only.
        """
        x = finite("features", features, (None, self.dimension))
        y = finite("targets", targets, (x.shape[0], self.targets))
        index = None if block is None else np.asarray(block)
        w = None if weight is None else np.asarray(weight, dtype=np.float64)
        if w is not None and w.ndim == 2:
            w = finite("weight", w, (x.shape[0], self.targets))
        return self._updated(state, [part.update for part in self.parts], x, y, index, w)

    def update_unchecked(
        self, state: ProductState, x: Array, y: Array, block: Integers | None, weight: Array
    ) -> ProductState:
        """`update` for rows that the caller has checked."""
        updates = [getattr(part, "update_unchecked", part.update) for part in self.parts]
        return self._updated(state, updates, x, y, block, weight)

    def _updated(
        self, state: ProductState, updates: Sequence[Any], x: Array, y: Array, index: Any, w: Any
    ) -> ProductState:
        updated = self._update_parts(state, updates, x, y, index, w)
        if np.array_equal(changes(updated), changes(state)):
            return updated
        # A part restarted within these rows. The other parts must restart after the same row, so the update is repeated
        # one row at a time.
        for rows in folded(x.shape[0], np.size(changes(updated))):
            before, own, weight = state, None if index is None else index[rows], None if w is None else w[rows]
            state = self._update_parts(state, updates, x[rows], y[rows], own, weight)
            for lane in np.flatnonzero(np.greater(changes(state), changes(before))).tolist():
                state = self._restart(state, lane)
        return state

    def _update_parts(
        self, state: ProductState, updates: Sequence[Any], x: Array, y: Array, index: Any, w: Any
    ) -> ProductState:
        updated, start = [], 0
        for part, own, update in zip(self.parts, state.parts, updates, strict=True):
            end = start + part.targets
            if w is None or w.ndim != 2:
                updated.append(update(own, x, y[:, start:end], index, w))
            else:
                weight = w[:, start]
                updated.append(update(own, x, y[:, start:end], index, weight) if weight.any() else own)
            start = end
        return ProductState(tuple(updated))

    def _restart(self, state: ProductState, lane: int) -> ProductState:
        """Restart, in the lane, every part that can restart and has not done so for the latest change."""
        latest = np.ravel(changes(state))[lane]
        return ProductState(
            tuple(
                part.restart(own, lane) if hasattr(part, "restart") and np.ravel(changes(own))[lane] < latest else own
                for part, own in self._pairs(state)
            )
        )

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """Return Σ over parts of targets · bound(δ / targets), a bound on the sum of all targets, hence on each.

        ‖ĝ - g*‖∞² is at most the sum of the squares, so d copies of an oracle with bound Reg have Reg_c <= d·Reg
        (paper, same appendix). By the union bound all of them hold with probability 1 - δ.
        """
        share = delta / self.targets
        return sum(part.targets * part.error_bound(rounds, share) for part in self.parts)

    def resize(self, state: ProductState, blocks: int) -> ProductState:
        """Return the state with blocks appended, in every part, that have learnt nothing."""
        return ProductState(tuple(part.resize(own, blocks) for part, own in self._pairs(state)))

    def _pairs(self, state: ProductState) -> list[tuple[Oracle[Any], Any]]:
        return list(zip(self.parts, state.parts, strict=True))
