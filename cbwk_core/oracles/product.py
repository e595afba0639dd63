"""Several oracles on the same features, side by side: the targets of the first, then those of the second, and so on.

This is the paper's construction of R^c from d copies of one oracle (appendix, "Construction of R^c"), and it puts a
logistic reward beside linear costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, finite, folded
from cbwk_core.oracles.oracle import Oracle, checked_candidates


class ProductState(NamedTuple):
    """The states of the parts, in order."""

    parts: tuple[Any, ...]

    @property
    def changes(self) -> Array | float:
        """How often the world was seen to have changed by the part that saw it most often, (lanes,), or 0."""
        return _most(changes(part) for part in self.parts)

    @property
    def forgotten(self) -> Array | float:
        """Outcomes that no longer count for the part that has forgotten most, (lanes,), or 0."""
        return _most(forgotten(part) for part in self.parts)


def changes(state: Any) -> Array | float:
    """How often an oracle has noticed that the world has changed, (lanes,), or 0 for one that does not watch."""
    return getattr(state, "changes", 0.0)


def forgotten(state: Any) -> Array | float:
    """How many of the outcomes an oracle has learnt no longer count, (lanes,), or 0 for one that does not watch."""
    return getattr(state, "forgotten", 0.0)


def _most(counts: Iterable[Array | float]) -> Array | float:
    return reduce(np.maximum, counts)


@dataclass(frozen=True)
class Product:
    """Configuration: the oracles whose targets are put together.

    >>> from cbwk_core.oracles.newton import Newton
    >>> clicks_and_cost = Product((Newton(dimension=2, targets=1, link="logistic"), Newton(dimension=2, targets=1)))
    >>> clicks_and_cost.predict(clicks_and_cost.init(), np.array([[[1.0, 0.0]]]))
    array([[[0.5, 0. ]]])
    """

    parts: tuple[Oracle[Any], ...]

    def __post_init__(self) -> None:
        shapes = sorted({(part.dimension, part.blocks) for part in self.parts})
        if len(shapes) != 1:
            raise ValueError(f"the parts must have one dimension and one number of blocks in common, got {shapes}")

    @property
    def dimension(self) -> int:
        """Length of a feature vector."""
        return self.parts[0].dimension

    @property
    def targets(self) -> int:
        """The targets of all parts together."""
        return sum(part.targets for part in self.parts)

    @property
    def blocks(self) -> int:
        """How many parameter blocks every part holds."""
        return self.parts[0].blocks

    def init(self, lanes: int = 1) -> ProductState:
        """The parts before any data."""
        return ProductState(tuple(part.init(lanes) for part in self.parts))

    def predict(self, state: ProductState, features: ArrayLike) -> Array:
        """The parts' predictions next to each other: (n, k * blocks, targets)."""
        x = checked_candidates(self, features)
        return np.concatenate([part.predict(known, x) for part, known in self._pairs(state)], axis=-1)

    def spread(self, state: ProductState, features: ArrayLike) -> Array | None:
        """The largest leverage among the parts that know theirs: the least certain target counts; None if none does."""
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
        """Every part learns its own columns of the targets; when one begins anew, all do."""
        x = finite("features", features, (None, self.dimension))
        y = finite("targets", targets, (x.shape[0], self.targets))
        index = None if block is None else np.asarray(block)
        w = None if weight is None else np.asarray(weight, dtype=np.float64)
        learnt = self._learnt(state, x, y, index, w)
        if np.array_equal(changes(learnt), changes(state)):
            return learnt
        # Some part began anew within these rows. The others must do so after the same one, so once more, row by row.
        for rows in folded(x.shape[0], np.size(changes(learnt))):
            before, own, weight = state, None if index is None else index[rows], None if w is None else w[rows]
            state = self._learnt(state, x[rows], y[rows], own, weight)
            for lane in np.flatnonzero(np.greater(changes(state), changes(before))).tolist():
                state = self._begun_anew(state, lane)
        return state

    def _learnt(self, state: ProductState, x: Array, y: Array, index: Any, w: Any) -> ProductState:
        learnt, start = [], 0
        for part, known in self._pairs(state):
            learnt.append(part.update(known, x, y[:, start : start + part.targets], index, w))
            start += part.targets
        return ProductState(tuple(learnt))

    def _begun_anew(self, state: ProductState, lane: int) -> ProductState:
        """The parts that know how and have not done so begin anew in the lane."""
        most = np.ravel(changes(state))[lane]
        return ProductState(
            tuple(
                part.restart(known, lane)
                if hasattr(part, "restart") and np.ravel(changes(known))[lane] < most
                else known
                for part, known in self._pairs(state)
            )
        )

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """Σ over parts of targets times their bound at δ / targets: a bound on all targets together, hence on each.

        ‖ĝ - g*‖∞² is at most the sum of the squares, so d copies of an oracle with bound Reg have Reg_c <= d·Reg
        (paper, same appendix); by the union bound all of them hold with probability 1 - δ.
        """
        share = delta / self.targets
        return sum(part.targets * part.error_bound(rounds, share) for part in self.parts)

    def resize(self, state: ProductState, blocks: int) -> ProductState:
        """Append blocks that know nothing to every part."""
        return ProductState(tuple(part.resize(known, blocks) for part, known in self._pairs(state)))

    def _pairs(self, state: ProductState) -> list[tuple[Oracle[Any], Any]]:
        return list(zip(self.parts, state.parts, strict=True))
