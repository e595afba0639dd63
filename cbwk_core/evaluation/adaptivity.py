"""Whether the policy of a log learnt from its outcomes: then the rounds of the log are not independent."""

from __future__ import annotations

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.evaluation.log import ROUNDING, Log

# Numbers of independent rounds have the same mean in both halves of a log and no correlation between neighbours. More
# standard errors from that are no chance, for any number of arms.
DEVIATIONS_MAX = 5.0
# A shorter series says nothing.
ROUNDS_MIN = 8

# What a reader of the intervals must know. The service shows these texts with the result.
FIXED = "The log's probabilities do not change with time: all estimators and both intervals are valid."
ADAPTIVE = (
    "The log's policy learnt from its outcomes, so its rounds are not independent. IPS and DR stay unbiased, since the "
    "probabilities of a round depend on earlier rounds only and DR predicts each round from earlier ones; SNIPS is "
    "biased by a few percent of its standard error. The intervals are confidence sequences: they hold however often "
    "they are looked at, and are longer."
)


def is_adaptive(log: Log) -> bool:
    """Return whether the log's probabilities change with time, or differ between rounds with the same features.

    A policy that does not learn passes unless its contexts drift, and then longer intervals do no harm. A policy that
    learns but whose probabilities have moved so little that this does not show is as good as one that does not learn.

    >>> same = {"eligible": np.ones((100, 2), dtype=bool), "arm": [0, 1] * 50, "reward": np.zeros(100),
    ...         "costs": np.zeros((100, 1)), "features": np.ones((100, 1))}
    >>> moved = np.linspace(0.3, 0.7, 100)
    >>> given = np.column_stack([moved, 1.0 - moved])
    >>> is_adaptive(Log.of(propensity=[0.5] * 100, **same))
    False
    >>> is_adaptive(Log.of(propensity=given[np.arange(100), [0, 1] * 50], probabilities=given, **same))
    True
    """
    described = np.concatenate([log.features.reshape(log.rounds, -1), log.eligible], axis=1)
    # Equal rows have equal projections; a chance equality of others only makes intervals longer.
    projected = (described * np.sqrt(np.arange(2.0, 2.0 + described.shape[1]))).sum(axis=1)
    known = _known(log)
    return _differs_for_the_same_features(log, projected, known) or _changes_with_time(projected, known)


def _known(log: Log) -> Array:
    """Return the probability of each arm of each round, nan where the log does not say it: (n, arms)."""
    if log.probabilities is not None:
        return np.where(log.eligible, log.probabilities, np.nan)
    known = np.full(log.eligible.shape, np.nan)
    rows = np.flatnonzero(log.played)
    known[rows, log.arm[rows]] = log.propensity[rows]
    return known


def _changes_with_time(projected: Array, known: Array) -> bool:
    """Return whether an arm's probability, its square, or its product with the features changes along the log.

    The mean stays where two arms become sharper in different contexts; the square and the product do not.
    """
    centred = projected - projected.mean()
    for column in known.T:
        said = np.flatnonzero(~np.isnan(column))
        given = column[said]
        if any(_drifts(series) for series in (given, given * given, given * centred[said])):
            return True
    return False


def _drifts(series: Array) -> bool:
    """Return whether the halves of a series have different means, or neighbours of it are correlated.

    >>> _drifts(np.tile([0.2, 0.8], 500)), _drifts(np.repeat([0.2, 0.8], 500)), _drifts(np.full(9, 0.5))
    (True, True, False)
    >>> _drifts(np.random.default_rng(1).random(1000))
    False
    """
    n, half = series.size, series.size // 2
    if n < ROUNDS_MIN or np.ptp(series) <= ROUNDING * max(1.0, float(np.abs(series).max())):
        return False
    first, second = series[:half], series[half:]
    error = np.sqrt(first.var() / half + second.var() / (n - half))
    if abs(first.mean() - second.mean()) > ROUNDING + DEVIATIONS_MAX * error:
        return True
    centred = series - series.mean()
    correlation = (centred[1:] @ centred[:-1]) / (centred @ centred)
    return bool(abs(correlation) > DEVIATIONS_MAX / np.sqrt(n))


def _differs_for_the_same_features(log: Log, projected: Array, known: Array) -> bool:
    """Return whether two rounds with the same features and eligible arms have other probabilities."""
    order = np.argsort(projected, kind="stable")
    same = np.diff(projected[order]) == 0.0
    if log.probabilities is None:  # the same arm, too: the probabilities of other arms are not known
        same &= np.diff(log.arm[order]) == 0
    apart = np.abs(np.diff(known[order], axis=0))
    return bool((np.nan_to_num(apart[same]) > ROUNDING).any())
