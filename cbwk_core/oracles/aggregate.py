"""Vovk's aggregation (Foster & Rakhlin 2020, Theorem 3) of regressograms, for contexts of few dimensions.

    G(y) = -½·ln Σ_i w_i·exp(-2(y - p_i)²),   prediction = ½ + (G(0) - G(1))/2,   w_i ∝ w_i·exp(-2(y - p_i)²)

Expert i divides the cube [0, 1]^dimension into cells, 2^i along every coordinate, and predicts the mean of the cell
that contains the context. The oracle clips targets to [0, 1] and contexts to the cube. Each target has its own weights.
All blocks share them, because the right resolution depends on the contexts more than on the arm.

The mean of a cell includes one artificial observation: the prediction of the parent cell at the first visit (½ for the
root). An unvisited cell predicts what its parent predicts. The artificial observation is fixed at the first visit, so
the mean is a ridge regression on one constant feature, whose regret is known.

The oracle departs from the paper: the finest level does not grow with T. Its cells have width h = 2^-levels, by
default 1/64, 1/16, 1/8 or 1/4 for one to four coordinates. A prediction is constant on such a cell, so for a smooth
truth f the squared error falls to a floor and no further: the variance of f within a cell, about ‖∇f‖²·h²/12. Over T
rounds the floor adds a term linear in T to Reg_sq. The nonparametric rates of the paper's Tables 1 and 2 need finer
cells for a larger T. This oracle does not reach them unless the truth is constant on the cells. Table 2's T0 and M(T0)
for nonparametric classes are not implemented either; `two_stage` uses those of the linear class with every oracle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, folded, frozen
from cbwk_core.oracles.oracle import check_sizes, checked_candidates, checked_growth, checked_update

# Five coordinates at a resolution of 1/4 make 1,024 cells per arm, which take too many outcomes to learn.
DIMENSION_MAX = 4
# Levels by the number of coordinates. The finest level has 64, 256, 512 or 256 cells; a few thousand rounds fill them.
LEVELS_DEFAULT = (0, 6, 4, 3, 2)
# A key is a 64-bit integer; half of its positive range is in use.
KEYS_MAX = 2**62
# The largest η for which the squared loss on [0, 1] is mixable.
LEARNING_RATE = 2.0


class AggregateState(NamedTuple):
    """What the oracle has learnt; it stores visited cells only.

    >>> oracle = Aggregate(dimension=1, targets=1, levels=2)
    >>> oracle.update(oracle.init(), [[0.1], [0.9]], [[0.0], [1.0]]).visits  # the root, then two cells on each level
    array([2, 1, 1, 1, 1])
    """

    keys: Integers  # (cells,), increasing; see Aggregate._keys
    visits: Integers  # (cells,), at least 1
    totals: Array  # (cells, targets), the sum of a cell's targets and its artificial observation
    log_weights: Array  # (lanes, targets, experts), normalised

    def of_targets(self, chosen: slice) -> AggregateState:
        """Return the state of an oracle for these targets alone."""
        totals, log_weights = self.totals[:, chosen].copy(), self.log_weights[:, chosen].copy()
        return self._replace(totals=frozen(totals), log_weights=frozen(log_weights))

    def fault(self) -> str | None:
        """Return what is wrong with the numbers of a forged state, after its path; None if nothing is."""
        cells = self.keys.shape[0]
        if self.visits.shape[0] != cells or self.totals.shape[0] != cells:
            return " must have as many visits and totals as keys"
        if (np.diff(self.keys) <= 0).any() or (self.visits < 1).any():
            return " must have increasing keys of cells that were visited"
        return None


@dataclass(frozen=True)
class Aggregate:
    """Configuration of the oracle.

    levels: the finest expert divides every coordinate into 2^levels intervals; None selects the default for the
        number of coordinates.
    constant: the last coordinate of a context is a constant; the cells ignore it.

    >>> oracle = Aggregate(dimension=1, targets=1)
    >>> contexts = np.linspace(0.0, 1.0, 200)[:, None]
    >>> state = oracle.update(oracle.init(), contexts, (contexts > 0.5).astype(float))
    >>> oracle.predict(state, np.array([[0.1], [0.9]]))[:, 0, 0].round(1)
    array([0., 1.])
    """

    dimension: int
    targets: int
    blocks: int = 1
    levels: int | None = None
    constant: bool = False

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.coordinates > DIMENSION_MAX:
            raise ValueError(f"dimension must be at most {DIMENSION_MAX} beside a constant, got {self.coordinates}")
        if self.levels is not None and self.levels < 0:
            raise ValueError(f"levels must not be negative, got {self.levels}")
        self._check_keys(lanes=1, blocks=self.blocks)

    @property
    def coordinates(self) -> int:
        """The number of coordinates that the cells divide."""
        return self.dimension - self.constant

    @property
    def experts(self) -> int:
        """The number of experts, one per level."""
        return 1 + (LEVELS_DEFAULT[self.coordinates] if self.levels is None else self.levels)

    @property
    def parameters(self) -> int:
        """The dimension times the blocks, as for a linear model, and not the number of cells.

        The number of cells in use grows with the data, up to blocks · Σ 2^(coordinates·level). A policy that counted
        all of them would explore almost uniformly while most cells are unvisited. `error_bound` counts the cells.
        """
        return self.dimension * self.blocks

    def init(self, lanes: int = 1) -> AggregateState:
        """Return a state with no cells and equal weights; it predicts ½ everywhere."""
        self._check_keys(lanes, self.blocks)
        return AggregateState(
            keys=frozen(np.zeros(0, dtype=np.int64)),
            visits=frozen(np.zeros(0, dtype=np.int64)),
            totals=frozen(np.zeros((0, self.targets))),
            log_weights=frozen(np.full((lanes, self.targets, self.experts), -np.log(self.experts))),
        )

    def predict(self, state: AggregateState, features: ArrayLike) -> Array:
        """Return the aggregated prediction in [0, 1] for every candidate, shape (n, k * blocks, targets)."""
        at, visits = self._candidates(state, features)
        if not state.keys.size:
            return np.full((*visits.shape[:2], self.targets), 0.5)
        lane = np.arange(at.shape[0]) % state.log_weights.shape[0]
        return mixture(state.log_weights[lane, None], _estimates(state.totals[at], visits).mT)

    def spread(self, state: AggregateState, features: ArrayLike) -> Array:
        """Return Σ over experts of weight / (visits + 1), shape (n, k * blocks); weights are averaged over targets.

        A cell is a ridge regression on one constant feature, so 1 / (visits + 1) is its φᵀA⁻¹φ.
        """
        _, visits = self._candidates(state, features)
        weights = np.exp(state.log_weights).mean(axis=1)
        lane = np.arange(visits.shape[0]) % weights.shape[0]
        return np.asarray(np.sum(weights[lane, None] / (visits + 1.0), axis=-1))

    def update(
        self,
        state: AggregateState,
        features: ArrayLike,
        targets: ArrayLike,
        block: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> AggregateState:
        """Learn the rows in order: each row first updates the experts' weights, then the cells that contain it."""
        lanes = state.log_weights.shape[0]
        x, y, index, w = checked_update(self, lanes, features, targets, block, weight)
        learns = w > 0
        lane = np.arange(x.shape[0]) % lanes
        row_keys = self._keys(x, index * lanes + lane)
        keys, visits, totals = _with_cells(state, row_keys[learns])
        at, y = np.searchsorted(keys, row_keys), np.clip(y, 0.0, 1.0)
        log_weights = state.log_weights.copy()
        for rows in folded(x.shape[0], lanes):
            row = np.arange(rows.start, rows.stop)[learns[rows]]
            cells, outcome = at[row], y[row, None, :]
            estimates = _estimates(totals[cells], visits[cells])
            loss = LEARNING_RATE * np.square(outcome - estimates).mT
            log_weights[lane[row]] = _normalised(log_weights[lane[row]] - loss)
            totals[cells] = np.where(visits[cells, None] > 0, totals[cells], estimates) + outcome
            visits[cells] += 1
        return AggregateState(frozen(keys), frozen(visits), frozen(totals), frozen(log_weights))

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """Return ln N + 2·C·(1 + ln(1 + T/C)) + 2·ln(1/δ), or T if that is smaller, with C = min(blocks·cells, T).

        The bound holds with probability 1 - δ if the truth is constant on the finest cells; it ignores the floor that
        other truths have. Aggregating N experts costs ½·ln N on any sequence. In a cell with mean μ, the finest expert
        is a ridge regression on one constant feature that starts at a prior value in [0, 1]. Its squared loss exceeds
        that of μ by at most (prior - μ)² + Σ z²/(visits + 1) <= 1 + ln(1 + visits), since residuals z are at most 1.
        The sum over cells is largest for equal visits. With error e and noise ξ, the loss exceeds that of the truth by
        Σ e² - 2 Σ ξe, and 2 Σ ξe <= ½ Σ e² + ln(1/δ) because ξ lies in an interval of length 1. No round costs more
        than 1, which gives T.
        """
        cells = min(self.blocks * 2 ** (self.coordinates * (self.experts - 1)), max(1, rounds))
        regret = 0.5 * np.log(self.experts) + cells * (1.0 + np.log1p(rounds / cells))
        return float(min(rounds, 2.0 * (regret + np.log(1.0 / delta))))

    def resize(self, state: AggregateState, blocks: int) -> AggregateState:
        """Return the same state; a block without cells has learnt nothing."""
        checked_growth(self, blocks)
        self._check_keys(state.log_weights.shape[0], blocks)
        return state

    def _candidates(self, state: AggregateState, features: ArrayLike) -> tuple[Integers, Integers]:
        """Return the positions in the state and the visits of the candidates' cells, both (n, k * blocks, experts)."""
        lanes = state.log_weights.shape[0]
        x = checked_candidates(self, features, lanes)
        lane = np.arange(x.shape[0])[:, None] % lanes
        keys = self._keys(x, lane + lanes * np.arange(self.blocks))
        if not state.keys.size:
            return np.zeros_like(keys), np.zeros_like(keys)
        at = np.minimum(np.searchsorted(state.keys, keys), state.keys.size - 1)
        return at, np.where(state.keys[at] == keys, state.visits[at], 0)

    def _keys(self, x: Array, learner: Integers) -> Integers:
        """Return the keys of the cells that contain x (..., dimension), coarsest first: (..., experts).

        A key is learner · cells + cell, where learner = block · lanes + lane and cell numbers the cells of all levels.
        Keys do not change when blocks are added.
        """
        finest = self.experts - 1
        inside = np.clip(x[..., : self.coordinates], 0.0, 1.0) * 2**finest
        corner = np.minimum(inside.astype(np.int64), 2**finest - 1)
        keys, first = [], 0
        for level in range(self.experts):
            cell = np.zeros(x.shape[:-1], dtype=np.int64)
            for j in range(self.coordinates):
                cell = (cell << level) | (corner[..., j] >> (finest - level))
            keys.append(first + cell)
            first += 2 ** (self.coordinates * level)
        return np.stack(np.broadcast_arrays(*keys), axis=-1) + (learner * first)[..., None]

    def _check_keys(self, lanes: int, blocks: int) -> None:
        cells = sum(2 ** (self.coordinates * level) for level in range(self.experts))
        if lanes * blocks * cells > KEYS_MAX:
            raise ValueError(f"lanes · blocks · cells must be at most {KEYS_MAX}, got {lanes} · {blocks} · {cells}")


def mixture(log_weights: Array, predictions: Array) -> Array:
    """Return Vovk's substitution ½ + (G(0) - G(1))/2 over the last axis, in [0, 1].

    Its loss is at most G(y) for y = 0 and y = 1, and for every y between them by convexity.

    >>> float(mixture(np.log([0.5, 0.5]), np.array([0.2, 0.2])).round(12))
    0.2
    """
    losses = [-_log_sum(log_weights - LEARNING_RATE * np.square(y - predictions)) / LEARNING_RATE for y in (0.0, 1.0)]
    return np.clip(0.5 + (losses[0] - losses[1]) / 2.0, 0.0, 1.0)


def _estimates(totals: Array, visits: Integers) -> Array:
    """Return every expert's prediction (..., experts, targets).

    An unvisited cell takes the prediction of its nearest visited ancestor. Every ancestor of a visited cell is visited,
    so the visited cells come first.
    """
    means = totals / (visits + 1.0)[..., None]
    if visits.all():
        return means
    depth = np.count_nonzero(visits, axis=-1)[..., None]
    nearest = np.minimum(np.arange(visits.shape[-1]), np.maximum(depth - 1, 0))
    known = np.take_along_axis(means, nearest[..., None], axis=-2)
    return np.where(depth[..., None] > 0, known, 0.5)


def _with_cells(state: AggregateState, keys: Integers) -> tuple[Integers, Integers, Array]:
    """Return copies of the state's keys, visits and totals, with an unvisited cell inserted for every missing key."""
    keys = np.unique(keys)
    at = np.searchsorted(state.keys, keys)
    missing = at == np.searchsorted(state.keys, keys, side="right")
    at, new = at[missing], keys[missing]
    return np.insert(state.keys, at, new), np.insert(state.visits, at, 0), np.insert(state.totals, at, 0.0, axis=0)


def _log_sum(values: Array) -> Array:
    """Return ln Σ exp over the last axis, without overflow."""
    top = values.max(axis=-1)
    return np.asarray(top + np.log(np.exp(values - top[..., None]).sum(axis=-1)))


def _normalised(log_weights: Array) -> Array:
    return log_weights - _log_sum(log_weights)[..., None]
