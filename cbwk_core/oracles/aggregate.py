"""Vovk's aggregation (Foster & Rakhlin 2020, Theorem 3) of regressograms: no linear model, few context dimensions.

    G(y) = -½·ln Σ_i w_i·exp(-2(y - p_i)²),   prediction = ½ + (G(0) - G(1))/2,   w_i ∝ w_i·exp(-2(y - p_i)²)

Expert i cuts the cube [0, 1]^dimension into 2^i equal parts along every coordinate and predicts the mean of the cell
that holds the context. Targets are clipped to [0, 1], contexts into the cube. Each target has weights of its own, which
serve all blocks: how fine to look is a property of the contexts more than of an arm.

A cell counts one observation that was never made: what its parent predicted when the cell was first visited (½ for the
root). Until then the cell predicts what its parent predicts. Taken once and not followed afterwards, the parent's value
makes the cell's mean a ridge regression on one constant feature, whose regret is known; and as one observation among
many it is soon outweighed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, folded, frozen
from cbwk_core.oracles.oracle import checked_block, checked_candidates, checked_growth, checked_rows, checked_weight

# Cells multiply with every coordinate: with five a resolution of 1/4 has a thousand cells an arm, and learns too late.
DIMENSION_MAX = 4
# Finest resolution 2^-levels by the number of coordinates: 64, 256, 512 and 256 cells, which some thousand rounds fill.
LEVELS_DEFAULT = (0, 6, 4, 3, 2)
# A key is a 64-bit integer; half of its range is left free.
KEYS_MAX = 2**62
# The largest η for which the squared loss on [0, 1] is mixable.
LEARNING_RATE = 2.0


class AggregateState(NamedTuple):
    """What the oracle has learnt: only cells that were visited are stored."""

    keys: Integers  # (cells,), increasing; see Aggregate._keys
    visits: Integers  # (cells,), at least 1
    totals: Array  # (cells, targets), the sum of a cell's targets and of its prior value
    log_weights: Array  # (lanes, targets, experts), normalised


@dataclass(frozen=True)
class Aggregate:
    """Configuration of the oracle.

    levels: the finest expert cuts every coordinate into 2^levels parts; None takes what suits the dimension.
    constant: the last coordinate of a context is a constant and does not count.

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
        if min(self.dimension, self.targets, self.blocks) < 1:
            raise ValueError(
                f"dimension, targets and blocks must be at least 1, got {self.dimension}, {self.targets}, {self.blocks}"
            )
        if self.coordinates > DIMENSION_MAX:
            raise ValueError(f"dimension must be at most {DIMENSION_MAX} beside a constant, got {self.coordinates}")
        if self.levels is not None and self.levels < 0:
            raise ValueError(f"levels must not be negative, got {self.levels}")
        self._check_keys(lanes=1, blocks=self.blocks)

    @property
    def coordinates(self) -> int:
        """How many coordinates of a context the cells distinguish."""
        return self.dimension - self.constant

    @property
    def experts(self) -> int:
        """How many resolutions compete."""
        return 1 + (LEVELS_DEFAULT[self.coordinates] if self.levels is None else self.levels)

    def init(self, lanes: int = 1) -> AggregateState:
        """No cells, and equal weights: the prediction is ½ everywhere."""
        self._check_keys(lanes, self.blocks)
        return AggregateState(
            keys=frozen(np.zeros(0, dtype=np.int64)),
            visits=frozen(np.zeros(0, dtype=np.int64)),
            totals=frozen(np.zeros((0, self.targets))),
            log_weights=frozen(np.full((lanes, self.targets, self.experts), -np.log(self.experts))),
        )

    def predict(self, state: AggregateState, features: ArrayLike) -> Array:
        """The aggregated prediction for every candidate, within [0, 1]: (n, k * blocks, targets)."""
        at, visits = self._candidates(state, features)
        if not state.keys.size:
            return np.full((*visits.shape[:2], self.targets), 0.5)
        lane = np.arange(at.shape[0]) % state.log_weights.shape[0]
        return mixture(state.log_weights[lane, None], _estimates(state.totals[at], visits).mT)

    def spread(self, state: AggregateState, features: ArrayLike) -> Array:
        """Σ over experts of weight / (visits + 1), the weights averaged over targets: (n, k * blocks).

        1 / (visits + 1) is φᵀA⁻¹φ of the ridge regression a cell is; a resolution counts as much as it is believed.
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
        """Fold the rows in order: weigh the experts by what they would have predicted, then let their cells learn."""
        lanes = state.log_weights.shape[0]
        x, y = checked_rows(self, lanes, features, targets)
        index = checked_block(self, block, x.shape[0])
        teaches = checked_weight(weight, x.shape[0]) > 0
        lane = np.arange(x.shape[0]) % lanes
        wanted = self._keys(x, index * lanes + lane)
        keys, visits, totals = _with_room(state, wanted[teaches])
        at, y = np.searchsorted(keys, wanted), np.clip(y, 0.0, 1.0)
        log_weights = state.log_weights.copy()
        for rows in folded(x.shape[0], lanes):
            row = np.arange(rows.start, rows.stop)[teaches[rows]]
            cells, outcome = at[row], y[row, None, :]
            estimates = _estimates(totals[cells], visits[cells])
            loss = LEARNING_RATE * np.square(outcome - estimates).mT
            log_weights[lane[row]] = _normalised(log_weights[lane[row]] - loss)
            totals[cells] = np.where(visits[cells, None] > 0, totals[cells], estimates) + outcome
            visits[cells] += 1
        return AggregateState(frozen(keys), frozen(visits), frozen(totals), frozen(log_weights))

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """ln N + 2·C·(1 + ln(1 + T/C)) + 2·ln(1/δ) with probability 1 - δ; C = blocks · finest cells, at most T.

        For a truth that is constant on the finest cells. N experts cost ½·ln N on any sequence. In a cell of truth μ
        the finest expert is a ridge regression on one constant feature that starts at a prior value in [0, 1], so its
        squared loss exceeds that of μ by at most (prior - μ)² + Σ z²/(visits + 1) <= 1 + ln(1 + visits), residuals |z|
        being at most 1; the sum over cells is largest for equal visits. With e the error and ξ the noise the loss
        exceeds that of the truth by Σ e² - 2 Σ ξe, and 2 Σ ξe <= ½ Σ e² + ln(1/δ) as ξ lies within an interval of
        length 1. No round costs more than 1, so T is a bound as well.
        """
        cells = min(self.blocks * 2 ** (self.coordinates * (self.experts - 1)), max(1, rounds))
        regret = 0.5 * np.log(self.experts) + cells * (1.0 + np.log1p(rounds / cells))
        return float(min(rounds, 2.0 * (regret + np.log(1.0 / delta))))

    def resize(self, state: AggregateState, blocks: int) -> AggregateState:
        """The same state: a block without cells knows nothing."""
        checked_growth(self, blocks)
        self._check_keys(state.log_weights.shape[0], blocks)
        return state

    def _candidates(self, state: AggregateState, features: ArrayLike) -> tuple[Integers, Integers]:
        """Where the cells of every candidate are stored, and their visits: both (n, k * blocks, experts)."""
        lanes = state.log_weights.shape[0]
        x = checked_candidates(self, features, lanes)
        lane = np.arange(x.shape[0])[:, None] % lanes
        wanted = self._keys(x, lane + lanes * np.arange(self.blocks))
        if not state.keys.size:
            return np.zeros_like(wanted), np.zeros_like(wanted)
        at = np.minimum(np.searchsorted(state.keys, wanted), state.keys.size - 1)
        return at, np.where(state.keys[at] == wanted, state.visits[at], 0)

    def _keys(self, x: Array, learner: Integers) -> Integers:
        """The keys of the cells that hold x (..., dimension), coarsest first: (..., experts).

        A key is learner · cells + cell, where learner = block · lanes + lane, so that more blocks leave keys as they
        are, and cell counts through all resolutions.
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
    """Vovk's substitution ½ + (G(0) - G(1))/2 over the last axis, within [0, 1].

    It is as good as the weighted experts for the targets 0 and 1, and between them by convexity.

    >>> float(mixture(np.log([0.5, 0.5]), np.array([0.2, 0.2])).round(12))
    0.2
    """
    losses = [-_log_sum(log_weights - LEARNING_RATE * np.square(y - predictions)) / LEARNING_RATE for y in (0.0, 1.0)]
    return np.clip(0.5 + (losses[0] - losses[1]) / 2.0, 0.0, 1.0)


def _estimates(totals: Array, visits: Integers) -> Array:
    """Every expert's prediction (..., experts, targets); an unvisited cell takes that of its nearest visited parent.

    A cell is visited only together with its parents, so the visited ones come first.
    """
    means = totals / (visits + 1.0)[..., None]
    if visits.all():
        return means
    depth = np.count_nonzero(visits, axis=-1)[..., None]
    nearest = np.minimum(np.arange(visits.shape[-1]), np.maximum(depth - 1, 0))
    known = np.take_along_axis(means, nearest[..., None], axis=-2)
    return np.where(depth[..., None] > 0, known, 0.5)


def _with_room(state: AggregateState, wanted: Integers) -> tuple[Integers, Integers, Array]:
    """Copies of keys, visits and totals that have a place, not yet visited, for every wanted key."""
    wanted = np.unique(wanted)
    at = np.searchsorted(state.keys, wanted)
    missing = at == np.searchsorted(state.keys, wanted, side="right")
    at, new = at[missing], wanted[missing]
    return np.insert(state.keys, at, new), np.insert(state.visits, at, 0), np.insert(state.totals, at, 0.0, axis=0)


def _log_sum(values: Array) -> Array:
    """ln Σ exp over the last axis, without overflow."""
    top = values.max(axis=-1)
    return np.asarray(top + np.log(np.exp(values - top[..., None]).sum(axis=-1)))


def _normalised(log_weights: Array) -> Array:
    return log_weights - _log_sum(log_weights)[..., None]
