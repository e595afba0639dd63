"""What the Newton oracle has learnt, the linear predictions and leverages that follow from it, and one more row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import ddot, dger

from cbwk_core.arrays import Array, Integers, frozen

# Numbers in one product of `predicted_with_leverage`. Caches hold a product of 4 MB; products of fewer rows than the
# minimum read the model too often, because each of them reads it once; no product takes more than 32 MB.
PRODUCT_CACHED, PRODUCT_ROWS_MIN, PRODUCT_MAX = 524_288, 64, 4_000_000
# Columns of `NewtonState.noticed`; from POOL on, the pool of watch.py, which begins with the count of outcomes.
CHANGES, FORGOTTEN, POOL = 0, 1, 2


class NewtonState(NamedTuple):
    """What the oracle has learnt.

    A⁻¹ and θ are one array: one product with φ gives both A⁻¹φ and φᵀθ, one rank-one step moves both. A is needed only
    to factor it again, so its blocks are separate arrays and an update copies the one it changes.

    >>> from cbwk_core.oracles import Newton
    >>> state = Newton(dimension=2, targets=1, ridge=2.0).init()
    >>> state.inverse[0, 0], state.theta.shape
    (array([[0.5, 0. ],
           [0. , 0.5]]), (1, 2, 1, 1))
    """

    solution: Array  # (lanes, blocks, m + targets, m): m rows of A⁻¹, then one row of θ per target
    gram: tuple[Array, ...]  # A, one (lanes, m, m) for each block
    updates: Integers  # (lanes, blocks)
    watch: Array  # (lanes, blocks, 1 + 3·targets), the rows of watch.py
    noticed: Array  # (lanes, 3 + targets): changes noticed, outcomes before the last one, then the pool of watch.py
    dismissed: Array = frozen(np.zeros(1))  # (lanes,): alarms whose trial has shown no change
    trial: tuple[Array, ...] = ()  # while an alarm is on trial, its record, and the candidate (trial.py)

    @property
    def inverse(self) -> Array:
        """A⁻¹, (lanes, blocks, m, m)."""
        return self.solution[:, :, : self.solution.shape[3]]

    @property
    def theta(self) -> Array:
        """θ, (lanes, m, blocks, targets)."""
        return self.solution[:, :, self.solution.shape[3] :].transpose(0, 3, 1, 2)

    def with_theta(self, theta: Array) -> NewtonState:
        """Return the state with another θ."""
        solution = self.solution.copy()
        solution[:, :, solution.shape[3] :] = theta.transpose(0, 2, 3, 1)
        return self._replace(solution=frozen(solution))

    def of_targets(self, chosen: slice) -> NewtonState:
        """Return the state of an oracle for these targets alone; a trial ends without a verdict."""
        m = self.solution.shape[3]
        targets = self.solution.shape[2] - m
        kept = np.arange(targets)[chosen]
        watched = np.concatenate([[0], *(1 + group * targets + kept for group in range(3))])
        return NewtonState(
            solution=frozen(np.delete(self.solution, np.delete(m + np.arange(targets), kept), axis=2)),
            gram=self.gram,
            updates=self.updates,
            watch=frozen(self.watch[..., watched]),
            noticed=frozen(self.noticed[:, [0, 1, 2, *(3 + kept)]]),
            dismissed=self.dismissed,
        )

    def scaled(self, factors: Array) -> NewtonState:
        """Return the state whose targets count that many times as much, (targets,); a trial ends without a verdict.

        With the identity link it goes on as if each target had been multiplied before it was learnt.
        """
        solution, square = self.solution.copy(), factors * factors
        solution[:, :, solution.shape[3] :] *= factors[:, None]
        watched = np.concatenate([[1.0], factors, square, np.ones(len(factors))])
        pool = np.concatenate([np.ones(POOL + 1), square])
        watch, noticed = frozen(self.watch * watched), frozen(self.noticed * pool)
        return self._replace(solution=frozen(solution), watch=watch, noticed=noticed, trial=())

    @property
    def changes(self) -> Array:
        """How many changes of the world were noticed, (lanes,)."""
        return self.noticed[:, CHANGES]

    @property
    def forgotten(self) -> Array:
        """How many outcomes no longer count, because a change was noticed after them, (lanes,)."""
        return self.noticed[:, FORGOTTEN]

    def predicted_of_one(self, x: Array) -> tuple[Array, list[float]]:
        """Return `predicted_with_leverage` of one request: x (k, m) for the only block, or (m,) for every block."""
        if x.ndim == 2:
            m = x.shape[1]
            images = x.dot(self.solution[0, 0].T)
            leverage = np.vecdot(images[:, :m], x)
        else:
            m = len(x)
            images = self.solution.reshape(-1, m).dot(x).reshape(self.solution.shape[1], -1)
            leverage = images[:, :m].dot(x)
        return images[:, m:], leverage.tolist()

    def writable(self, blocks: set[int]) -> NewtonState:
        """Return a copy that an update may change in place, if it changes A of these blocks only."""
        return NewtonState(
            self.solution.copy(),
            tuple(part.copy() if b in blocks else part for b, part in enumerate(self.gram)),
            self.updates.copy(),
            self.watch.copy(),
            self.noticed.copy(),
            np.broadcast_to(self.dismissed, len(self.noticed)).copy(),  # snapshots of earlier versions have none
            tuple(part.copy() for part in self.trial),
        )

    def frozen(self) -> NewtonState:
        """Return the state; its arrays are read-only from now on."""
        for part in (self.solution, *self.gram, self.updates, self.watch, self.noticed, self.dismissed, *self.trial):
            frozen(part)
        return self

    def fault(self) -> str | None:
        """Return what is wrong with the numbers of a forged state, after its path; None if nothing is.

        Counts are not negative, and A must be positive definite, because it is factored again from time to time.
        """
        if (self.noticed < 0.0).any() or (self.watch[..., 0] < 0.0).any() or (self.dismissed < 0.0).any():
            return ".noticed, .dismissed and the counts of .watch must not be negative"
        try:
            for gram in self.gram:
                np.linalg.cholesky(gram)
        except np.linalg.LinAlgError:
            return ".gram must be positive definite"
        return None


def predicted_with_leverage(state: NewtonState, x: Array) -> tuple[Array, Array]:
    """Return φᵀθ (n, k * blocks, targets) and φᵀA⁻¹φ (n, k * blocks) of the only lane, for features (n, k, m)."""
    (rows, k, m), (_, blocks, width, _) = x.shape, state.solution.shape
    candidates, solution = k * blocks, state.solution.reshape(-1, m).T
    predictions, leverage = np.empty((rows, candidates, width - m)), np.empty((rows, candidates))
    each = candidates * width
    step = max(1, min(PRODUCT_MAX // each, max(PRODUCT_CACHED // each, PRODUCT_ROWS_MIN)))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        images = x[part].reshape(-1, m).dot(solution).reshape(-1, candidates, width)
        np.vecdot(images[..., :m], x[part], out=leverage[part])
        predictions[part] = images[..., m:]
    return predictions, leverage


def predicted_with_leverage_of_each(states: Sequence[NewtonState], x: Array) -> tuple[Array, Array]:
    """Return the same of row i of x (n, m) by the only lane of state i: (n, blocks, targets) and (n, blocks)."""
    m, (_, blocks, width, _) = x.shape[1], states[0].solution.shape
    images = np.empty((len(x), blocks, width))
    for state, row, image in zip(states, x, images.reshape(len(x), -1), strict=True):
        np.dot(state.solution.reshape(-1, m), row, out=image)
    return images[..., m:].copy(), np.vecdot(images[..., :m], x[:, None])


def linear_scores(theta: Array, x: Array) -> Array:
    """Return φᵀθ of every candidate: θ (lanes, m, blocks, q) and features (n, k, m) give (n, k * blocks, q)."""
    lanes, m, blocks, q = theta.shape
    flat = theta.reshape(lanes, m, blocks * q)
    if lanes == 1:  # one product over all rows is several times faster than one product per row
        scores = x.reshape(-1, m) @ flat[0]
    else:
        scores = np.matmul(x.reshape(-1, lanes, x.shape[1], m), flat)
    return np.asarray(scores).reshape(x.shape[0], x.shape[1] * blocks, q)


def leverages(inverse: Array, x: Array) -> Array:
    """Return φᵀA⁻¹φ of every candidate: A⁻¹ (lanes, blocks, m, m) and features (n, k, m) give (n, k * blocks)."""
    lanes, blocks, m, _ = inverse.shape
    if blocks == 1:
        if lanes == 1:
            images = x.reshape(-1, m) @ inverse[0, 0]
        else:
            images = np.matmul(x.reshape(-1, lanes, x.shape[1], m), inverse[:, 0])
        return np.asarray(np.vecdot(images.reshape(x.shape), x))
    if lanes == 1:
        images = np.matmul(x[:, 0], inverse[0])  # (blocks, n, m)
        return np.ascontiguousarray(np.vecdot(images, x[None, :, 0]).T)
    images = np.matmul(x.reshape(-1, lanes, 1, 1, m), inverse).reshape(x.shape[0], blocks, m)
    return np.asarray(np.vecdot(images, x))


def add_row(gram: Array, solution: Array, x: Array, images: Array) -> float:
    """Learn one row by least squares, in place: gram (m, m), solution (m + targets, m); return the leverage φᵀA⁻¹φ.

    images: A⁻¹φ, then the errors φᵀθ - y, (m + targets,). A += φφᵀ, and with a = A⁻¹φ: A⁻¹ -= a·aᵀ/(1 + φᵀa),
    θ -= a·error/(1 + φᵀa). Transposed, the arrays have the memory order of BLAS.
    """
    direction = images[: len(x)]
    leverage: float = ddot(direction, x)
    dger(1.0, x, x, 1, 1, gram.T, 1, 1, 1)
    dger(-1.0 / (1.0 + leverage), direction, images, 1, 1, solution.T, 1, 1, 1)
    return leverage
