"""Online-to-batch conversion (paper, eq-OTB-oracle-def): predict with the average of all earlier predictors.

    f̂ = (f_1 + … + f_M) / M   with f_i the predictor before its i-th update

Each block is averaged over its own updates. If predictions are linear in θ, the average of the predictors is the
predictor of the average θ, and the state needs one running sum. For other oracles the state keeps every earlier state;
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
from cbwk_core.oracles.oracle import Oracle, checked_candidates, checked_growth, checked_update


class Iterate(NamedTuple):
    """An earlier state of the base, and the lanes and blocks whose average includes it.

    >>> Iterate(state=None, share=np.array([[1.0, 0.0]])).share  # only the first block was about to learn
    array([[1., 0.]])
    """

    state: Any
    share: Array  # (lanes, blocks), 1 if the block learnt the next row, else 0


class OnlineToBatchState(NamedTuple):
    """The current state of the online oracle, and the terms of the average.

    >>> oracle = OnlineToBatch(Newton(dimension=1, targets=1))
    >>> state = oracle.update(oracle.init(), [[1.0], [1.0]], [[1.0], [1.0]])
    >>> state.updates, state.theta_sum.ravel(), state.iterates  # θ was 0, then 1/2
    (array([[2]]), array([0.5]), ())
    """

    base: Any
    updates: Integers  # (lanes, blocks)
    theta_sum: Array  # (lanes, m, blocks, targets); m = 0 if predictions are not linear in θ
    iterates: tuple[Iterate, ...]  # empty if predictions are linear in θ


@dataclass(frozen=True)
class OnlineToBatch:
    """Configuration of the oracle.

    base: the online oracle.
    iterates_max: the largest number of earlier states that a state may keep.

    >>> oracle = OnlineToBatch(Newton(dimension=1, targets=1))
    >>> state = oracle.update(oracle.init(), [[1.0], [1.0]], [[1.0], [1.0]])  # the base predicts 0, 1/2, 2/3
    >>> oracle.predict(state, np.array([[1.0]]))
    array([[[0.25]]])
    """

    base: Oracle[Any]
    iterates_max: int = 1000

    @property
    def dimension(self) -> int:
        """The length of a feature vector."""
        return self.base.dimension

    @property
    def targets(self) -> int:
        """The number of predicted values."""
        return self.base.targets

    @property
    def blocks(self) -> int:
        """The number of parameter blocks of a learner."""
        return self.base.blocks

    @property
    def parameters(self) -> int:
        """The number of parameters of one target in the base."""
        return self.base.parameters

    @property
    def linear(self) -> bool:
        """Whether the predictions of the base are linear in its θ."""
        return isinstance(self.base, Kernel) or (
            isinstance(self.base, Newton | Gradient) and self.base.link == "identity"
        )

    def init(self, lanes: int = 1) -> OnlineToBatchState:
        """Return the initial state of the base and an empty average."""
        base = self.base.init(lanes)
        theta_shape = base.theta.shape if self.linear else (lanes, 0, self.blocks, self.targets)
        return OnlineToBatchState(
            base=base,
            updates=frozen(np.zeros((lanes, self.blocks), dtype=np.int64)),
            theta_sum=frozen(np.zeros(theta_shape)),
            iterates=(),
        )

    def predict(self, state: OnlineToBatchState, features: ArrayLike) -> Array:
        """Return average predictions, shape (n, k * blocks, targets); the initial ones for a block without updates."""
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
        """Return the leverage of the current base; that of the average has the same order (twice for a mean)."""
        return self.base.spread(state.base, checked_candidates(self, features, state.updates.shape[0]))

    def update(
        self,
        state: OnlineToBatchState,
        features: ArrayLike,
        targets: ArrayLike,
        block: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> OnlineToBatchState:
        """Learn the rows in order: add the current predictor to the average, then update the base."""
        base, lanes = state.base, state.updates.shape[0]
        x, y, index, w = checked_update(self, lanes, features, targets, block, weight)
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

    def _iterate(self, base: Any, lane: Integers, at: Integers, count: int, lanes: int) -> Iterate:
        if count >= self.iterates_max:
            raise ValueError(f"iterates_max is {self.iterates_max}, so the oracle cannot keep another state")
        share = np.zeros((lanes, self.blocks))
        share[lane, at] = 1.0
        return Iterate(base, frozen(share))

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """Return e/(e - 1) · (Reg(M, δ/2) + ln(2/δ)) / M, a bound on E_x (f̂(x) - f*(x))² after M = `rounds` updates.

        Unlike the bound of an online oracle, this is the error of one more prediction, for contexts from one
        distribution (paper, lem-OTB-est-error, there up to constants). By convexity the error is at most the average
        over i of E V_i with V_i = (f_i(x_i) - f*(x_i))². For errors of at most 1, exp(-V) <= 1 - (1 - 1/e)·V. Hence
        (1 - 1/e) Σ E V_i <= Σ V_i + ln(2/δ) with probability 1 - δ/2, and Σ V_i <= Reg(M, δ/2) with probability
        1 - δ/2. For one of several blocks, M is the number of its updates; the bound of a single-block oracle is then
        tighter.
        """
        regret = self.base.error_bound(rounds, delta / 2.0) + np.log(2.0 / delta)
        return float(regret / -np.expm1(-1.0) / rounds)

    def resize(self, state: OnlineToBatchState, blocks: int) -> OnlineToBatchState:
        """Return the state with blocks appended that have learnt nothing, also in the earlier states."""
        added = checked_growth(self, blocks)
        lanes, m = state.theta_sum.shape[:2]
        more = np.zeros((lanes, added))
        return OnlineToBatchState(
            base=self.base.resize(state.base, blocks),
            updates=frozen(np.concatenate([state.updates, more.astype(np.int64)], axis=1)),
            theta_sum=frozen(np.concatenate([state.theta_sum, np.zeros((lanes, m, added, self.targets))], axis=2)),
            iterates=tuple(
                Iterate(self.base.resize(old.state, blocks), frozen(np.concatenate([old.share, more], axis=1)))
                for old in state.iterates
            ),
        )
