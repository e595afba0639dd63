"""The outcome model: a regression oracle that predicts each round of a log after a fit to other rounds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.evaluation.log import Log
from cbwk_core.evaluation.parallel import Progress, in_parallel
from cbwk_core.evaluation.ridge import is_ridge, normal_equations, ridge_state, ridge_update
from cbwk_core.oracles.build import FORGETTING_OFF, build_oracle
from cbwk_core.oracles.oracle import Oracle
from cbwk_core.presets import PRESETS

# Each of two halves predicts the other. Five folds reduced the standard error of the doubly robust estimate by 0.5 %.
# But they need four times the updates of a row by row fit, and they doubled the length of Bernstein intervals.
FOLDS = 2
# Multiples of the golden ratio modulo 1 are spread evenly, also along every arithmetic progression of the rounds.
GOLDEN = (5.0**0.5 - 1.0) / 2.0
# The rounds of one prediction call: with fifty arms and four targets their predictions take 13 MB.
CHUNK_ROWS = 8192
# A fit that goes along the log learns in batches: at least this number of rounds, later a quarter of the rounds before.
FORWARD_ROWS_MIN = 16
FORWARD_DIVISOR = 4


@dataclass(frozen=True, kw_only=True)
class OutcomeModel:
    """The configuration of the outcome model.

    oracle: "newton" (ridge regression with a closed form), "gradient", "aggregate" or "kernel".
    link: "identity" or "logistic", for the reward. folds: a fit to the other folds predicts the rounds of a fold. An
    adaptive log has no folds: a fit to earlier rounds predicts each round.

    >>> OutcomeModel(link="logistic")
    OutcomeModel(oracle='newton', link='logistic', folds=2)
    """

    oracle: str = "newton"
    link: str = "identity"
    folds: int = FOLDS

    def __post_init__(self) -> None:
        if isinstance(self.folds, bool) or not isinstance(self.folds, int) or self.folds < 2:
            raise ValueError(f"folds must be a whole number of at least 2, got {self.folds!r}")
        self.build(dimension=1, targets=2, blocks=1)

    def build(self, *, dimension: int, targets: int, blocks: int) -> Oracle[Any]:
        """Return the oracle for features with `dimension` coordinates and an appended constant."""
        return build_oracle(
            self.oracle,
            dimension=dimension + 1,
            targets=targets,
            blocks=blocks,
            preset=PRESETS["practical"],
            link=self.link,
            forgetting=FORGETTING_OFF if self.oracle == "newton" else None,
        )


class Fitted(NamedTuple):
    """One fit per fold, each to the rounds outside the fold."""

    oracle: Oracle[Any]
    states: tuple[Any, ...]  # one state of the oracle per fold
    unit: Array  # (1 + d,), the divisor of the outcomes

    def predict(self, features: Array, fold: Integers) -> Array:
        """Return predictions (n, arms, 1 + d) in the units of the log; fold (n,) is the fold of each round."""
        x = with_constant(features)
        parts = [(rows, self.states[k]) for k in range(len(self.states)) if (rows := np.flatnonzero(fold == k)).size]
        arms = x.shape[1] * self.oracle.blocks
        predictions = np.empty((x.shape[0], arms, self.unit.size))
        for rows, state in parts:
            predictions[rows] = self.oracle.predict(state, x[rows])
        return np.asarray(predictions * self.unit)


def fold_of(rounds: int, folds: int) -> Integers:
    """Return the fold of each round, ⌊folds·(t·GOLDEN mod 1)⌋: each fold covers the whole flight evenly (Weyl 1916).

    A cyclic assignment fails on a cyclic log: if arm 0 is played in even rounds, only one of two folds contains it.

    >>> fold_of(8, 2)
    array([0, 1, 0, 1, 0, 0, 1, 0])
    """
    return np.asarray(np.arange(rounds) * GOLDEN % 1.0 * folds, dtype=np.int64)


def with_constant(features: Array) -> Array:
    """Return the features of each candidate, or of the one context, with a constant 1: (n, candidates, m + 1).

    >>> with_constant(np.array([[0.5]]))
    array([[[0.5, 1. ]]])
    """
    x = features if features.ndim == 3 else features[:, None, :]
    return np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2)


def cross_fit(
    log: Log, model: OutcomeModel, unit: Array, *, jobs: int | None = None, progress: Progress | None = None
) -> Fitted:
    """Fit the model once per fold to all other folds (Chernozhukov et al. 2018), so no fit predicts its own rounds.

    unit (1 + d,): the divisor of the outcomes, because oracles expect them in [0, 1].

    >>> log = Log.of(features=np.ones((4, 1)), eligible=np.ones((4, 1), dtype=bool), arm=[0] * 4, propensity=[1.0] * 4,
    ...              reward=[1, 0, 1, 0], costs=[[1.0]] * 4)
    >>> fitted = cross_fit(log, OutcomeModel(folds=2), np.ones(2))
    >>> fitted.predict(log.features, fold_of(4, 2))[:, 0, 0].round(1)  # each half predicts the other half
    array([0. , 0.9, 0. , 0.9])
    """
    oracle = model.build(
        dimension=log.dimension, targets=1 + log.resources, blocks=log.arms if log.model == "per_arm" else 1
    )
    played = np.flatnonzero(log.played)
    x = with_constant(log.chosen_features()[played])[:, 0]
    y = log.outcomes[played] / unit
    block = log.arm[played] if oracle.blocks > 1 else np.zeros(played.size, dtype=np.int64)
    fold = fold_of(log.rounds, model.folds)[played]
    if is_ridge(oracle):
        sums = in_parallel(
            normal_equations,
            [(x[fold == k], y[fold == k], block[fold == k], oracle.blocks) for k in range(model.folds)],
            jobs=jobs,
            progress=progress,
        )
        states: list[Any] = [ridge_state(oracle, sums[:k] + sums[k + 1 :]) for k in range(model.folds)]
    else:
        parts = [(oracle, x[fold != k], y[fold != k], block[fold != k]) for k in range(model.folds)]
        states = in_parallel(_fit, parts, jobs=jobs, progress=progress)
    return Fitted(oracle, tuple(states), frozen(np.array(unit, dtype=np.float64)))


def _fit(oracle: Oracle[Any], x: Array, y: Array, block: Integers) -> Any:
    return oracle.update(oracle.init(), x, y, block if oracle.blocks > 1 else None)


def forward_batches(rounds: int) -> list[slice]:
    """Return the batches of a fit that goes along the log: each is at most a quarter of the rounds before it, or 16.

    >>> [(rows.start, rows.stop) for rows in forward_batches(100)]
    [(0, 16), (16, 32), (32, 48), (48, 64), (64, 80), (80, 100)]
    """
    stops = [0]
    while stops[-1] < rounds:
        stops.append(min(rounds, stops[-1] + max(FORWARD_ROWS_MIN, stops[-1] // FORWARD_DIVISOR)))
    return [slice(start, stop) for start, stop in pairwise(stops)]


def predict_forward(
    log: Log,
    model: OutcomeModel,
    unit: Array,
    probabilities: Array,
    ranges: Array,
    *,
    progress: Progress | None = None,
) -> Predicted:
    """Return predictions of each round by a fit to earlier rounds only, clipped to the ranges (1 + d, 2).

    Cross-fitting is not enough if the log's policy learns: its later arms depend on the outcome of a round, so a fit to
    later rounds depends on that outcome too, and the doubly robust rows are no martingale.

    >>> log = Log.of(features=np.ones((40, 1)), eligible=np.ones((40, 1), dtype=bool), arm=[0] * 40,
    ...              propensity=[1.0] * 40, reward=np.ones(40), costs=np.zeros((40, 1)))
    >>> found = predict_forward(log, OutcomeModel(), np.ones(2), np.ones((40, 1)), np.array([[0.0, 1.0]] * 2))
    >>> found.played[[0, 15, 16, 39], 0].round(2)
    array([0.  , 0.  , 0.99, 1.  ])
    """
    oracle = model.build(
        dimension=log.dimension, targets=1 + log.resources, blocks=log.arms if log.model == "per_arm" else 1
    )
    state, chosen, outcomes = oracle.init(), log.chosen_features(), log.outcomes / unit
    parts = []
    for batch in forward_batches(log.rounds):
        for start in range(batch.start, batch.stop, CHUNK_ROWS):
            rows = slice(start, min(start + CHUNK_ROWS, batch.stop))
            one_fold = np.zeros(len(log.arm[rows]), dtype=np.int64)
            predicted = Fitted(oracle, (state,), unit).predict(log.features[rows], one_fold)
            clipped = np.clip(predicted, ranges[:, 0], ranges[:, 1])
            parts.append(played_and_expected(clipped, log.arm[rows], probabilities[rows]))
        learnt = batch.start + np.flatnonzero(log.played[batch])
        if learnt.size:
            x, block = with_constant(chosen[learnt])[:, 0], log.arm[learnt] * (oracle.blocks > 1)
            if is_ridge(oracle):
                state = ridge_update(state, x, outcomes[learnt], block)
            else:
                state = oracle.update(state, x, outcomes[learnt], block if oracle.blocks > 1 else None)
        if progress is not None:
            progress(batch.stop, log.rounds)
    return Predicted(np.concatenate([part.played for part in parts]), np.concatenate([part.expected for part in parts]))


class Predicted(NamedTuple):
    """The predictions q that the doubly robust estimate needs."""

    played: Array  # (n, 1 + d), q of the logged arm; 0 for null
    expected: Array  # (n, 1 + d), Σ_a π(a)·q_a


def predict_rows(
    log: Log,
    fitted: Fitted,
    probabilities: Array,
    ranges: Array,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Predicted:
    """Return cross-fitted predictions for the probabilities (n, arms) of a target, clipped to the ranges (1 + d, 2)."""
    fold = fold_of(log.rounds, len(fitted.states))
    starts = range(0, log.rounds, CHUNK_ROWS)
    chunks = [slice(start, start + CHUNK_ROWS) for start in starts]
    parts = in_parallel(
        _predict_chunk,
        [
            (fitted, log.features[rows], fold[rows], log.arm[rows], probabilities[rows], ranges[:, 0], ranges[:, 1])
            for rows in chunks
        ],
        jobs=jobs,
        progress=progress,
    )
    return Predicted(np.concatenate([part.played for part in parts]), np.concatenate([part.expected for part in parts]))


def _predict_chunk(
    fitted: Fitted, features: Array, fold: Integers, arm: Integers, probabilities: Array, low: Array, high: Array
) -> Predicted:
    return played_and_expected(np.clip(fitted.predict(features, fold), low, high), arm, probabilities)


def played_and_expected(predictions: Array, arm: Integers, probabilities: Array) -> Predicted:
    """Return the predictions of the logged arms, and the means of all predictions (n, arms, 1 + d) under π.

    >>> played_and_expected(np.array([[[1.0], [3.0]]]), np.array([1]), np.array([[0.5, 0.25]]))
    Predicted(played=array([[3.]]), expected=array([[1.25]]))
    """
    played = predictions[np.arange(arm.size), arm] * (arm >= 0)[:, None]
    return Predicted(played, np.matmul(probabilities[:, None, :], predictions)[:, 0])
