"""Online-to-batch conversion (paper, eq-OTB-oracle-def): predict with the average of all predictors used on the way.

    f̂ = (f_1 + … + f_M) / M   with f_i the predictor before its i-th update

A block is averaged over its own updates. Where predictions are linear in θ the average of the predictors is the
predictor of the average θ, and one running sum is enough. Any other oracle has its past states kept, all of them:
memory and the time of a prediction grow with M.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, folded, frozen
from cbwk_core.oracles.gradient import Gradient
from cbwk_core.oracles.kernel import Kernel
from cbwk_core.oracles.newton import Newton
from cbwk_core.oracles.oracle import (
    Oracle,
    checked_block,
    checked_candidates,
    checked_growth,
    checked_rows,
    checked_weight,
)


class Iterate(NamedTuple):
    """A past state that is kept, and whose average it takes part in."""

    state: Any
    share: Array  # (lanes, blocks), 1 where the state was about to learn, else 0


class OnlineToBatchState(NamedTuple):
    """The online oracle as it stands, and what the average is made of."""

    base: Any
    updates: Integers  # (lanes, blocks)
    theta_sum: Array  # (lanes, m, blocks, targets) where predictions are linear in θ, else m = 0
    iterates: tuple[Iterate, ...]  # empty where predictions are linear in θ


@dataclass(frozen=True)
class OnlineToBatch:
    """Configuration: the online oracle, and how many of its states may be kept where they must be.

    >>> oracle = OnlineToBatch(Newton(dimension=1, targets=1))
    >>> state = oracle.update(oracle.init(), [[1.0], [1.0]], [[1.0], [1.0]])  # predicts 0, then 1/2, now it would 2/3
    >>> oracle.predict(state, np.array([[1.0]]))
    array([[[0.25]]])
    """

    base: Oracle[Any]
    iterates_max: int = 1000

    @property
    def dimension(self) -> int:
        """Length of a feature vector."""
        return self.base.dimension

    @property
    def targets(self) -> int:
        """How many numbers are predicted."""
        return self.base.targets

    @property
    def blocks(self) -> int:
        """How many parameter blocks a learner holds."""
        return self.base.blocks

    @property
    def linear(self) -> bool:
        """Whether the base's predictions are linear in its θ."""
        return isinstance(self.base, Kernel) or (
            isinstance(self.base, Newton | Gradient) and self.base.link == "identity"
        )

    def init(self, lanes: int = 1) -> OnlineToBatchState:
        """The base before any data, and no iterates."""
        base = self.base.init(lanes)
        theta_shape = base.theta.shape if self.linear else (lanes, 0, self.blocks, self.targets)
        return OnlineToBatchState(
            base=base,
            updates=frozen(np.zeros((lanes, self.blocks), dtype=np.int64)),
            theta_sum=frozen(np.zeros(theta_shape)),
            iterates=(),
        )

    def predict(self, state: OnlineToBatchState, features: ArrayLike) -> Array:
        """The average prediction of a block's iterates; a block without any predicts as at the start."""
        lanes = state.updates.shape[0]
        x = checked_candidates(self, features, lanes)
        if self.linear:
            updates = state.updates[:, None, :, None]
            mean = np.where(updates > 0, state.theta_sum / np.maximum(updates, 1), state.base.theta)
            return self.base.predict(state.base.with_theta(mean), x)
        lane = np.arange(x.shape[0]) % lanes
        updates = state.updates[lane, :, None]
        first = self.base.predict(self.base.init(lanes), x)
        total = np.zeros_like(first)
        for iterate in state.iterates:
            total += iterate.share[lane, :, None] * self.base.predict(iterate.state, x)
        return np.where(updates > 0, total / np.maximum(updates, 1), first)

    def spread(self, state: OnlineToBatchState, features: ArrayLike) -> Array | None:
        """The leverage of the base as it stands; the average has one of the same order (twice, for a running mean)."""
        return self.base.spread(state.base, checked_candidates(self, features, state.updates.shape[0]))

    def update(
        self,
        state: OnlineToBatchState,
        features: ArrayLike,
        targets: ArrayLike,
        block: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> OnlineToBatchState:
        """Take what the base predicts with into the average, then let it learn, row after row."""
        base, lanes = state.base, state.updates.shape[0]
        x, y = checked_rows(self, lanes, features, targets)
        index = checked_block(self, block, x.shape[0])
        w = checked_weight(weight, x.shape[0])
        updates, theta_sum, iterates = state.updates.copy(), state.theta_sum.copy(), list(state.iterates)
        for rows in folded(x.shape[0], lanes):
            lane = np.flatnonzero(w[rows])
            if not lane.size:
                continue
            at = index[rows][lane]
            updates[lane, at] += 1
            if self.linear:
                theta_sum[lane, :, at] += base.theta[lane, :, at]
            else:
                iterates.append(self._iterate(base, lane, at, len(iterates), lanes))
            base = self.base.update(base, x[rows], y[rows], index[rows], w[rows])
        return OnlineToBatchState(base, frozen(updates), frozen(theta_sum), tuple(iterates))

    def _iterate(self, base: Any, lane: Integers, at: Integers, kept: int, lanes: int) -> Iterate:
        if kept >= self.iterates_max:
            raise ValueError(f"iterates_max is {self.iterates_max}, so no further state can be kept")
        share = np.zeros((lanes, self.blocks))
        share[lane, at] = 1.0
        return Iterate(base, frozen(share))

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """e/(e - 1) · (Reg(M, δ/2) + ln(2/δ)) / M, a bound on E_x (f̂(x) - f*(x))² after M = `rounds` updates.

        Unlike an online oracle's, this bound is on one further prediction, for contexts drawn from one distribution
        (paper, lem-OTB-est-error, there up to constants). By convexity the error is at most the average over i of E V_i
        with V_i = (f_i(x_i) - f*(x_i))². For errors of at most 1, exp(-V) <= 1 - (1 - 1/e)·V, so that with probability
        1 - δ/2, (1 - 1/e) Σ E V_i <= Σ V_i + ln(2/δ), and with the same probability Σ V_i <= Reg(M, δ/2). For one block
        of many, M counts its own updates, and the bound of the same oracle with a single block is tighter.
        """
        regret = self.base.error_bound(rounds, delta / 2.0) + np.log(2.0 / delta)
        return float(regret / -np.expm1(-1.0) / rounds)

    def resize(self, state: OnlineToBatchState, blocks: int) -> OnlineToBatchState:
        """Append blocks that know nothing, to the past states too."""
        added = checked_growth(self, blocks)
        lanes, m = state.theta_sum.shape[:2]
        more = np.zeros((lanes, added))
        return OnlineToBatchState(
            base=self.base.resize(state.base, blocks),
            updates=frozen(np.concatenate([state.updates, more.astype(np.int64)], axis=1)),
            theta_sum=frozen(np.concatenate([state.theta_sum, np.zeros((lanes, m, added, self.targets))], axis=2)),
            iterates=tuple(
                Iterate(self.base.resize(past.state, blocks), frozen(np.concatenate([past.share, more], axis=1)))
                for past in state.iterates
            ),
        )
