"""Whether the policy of a log learnt from its outcomes: then the rounds of the log are not independent."""

from __future__ import annotations

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.evaluation.log import ROUNDING, Log

# The probabilities of independent rounds have the same mean in both halves of a log. A difference of more standard
# errors is no chance, for any number of arms.
DEVIATIONS_MAX = 5.0

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
    return _drifts(log) or _differs_for_the_same_features(log)


def _known(log: Log) -> Array:
    """Return the probability of each arm of each round, nan where the log does not say it: (n, arms)."""
    if log.probabilities is not None:
        return np.where(log.eligible, log.probabilities, np.nan)
    known = np.full(log.eligible.shape, np.nan)
    rows = np.flatnonzero(log.played)
    known[rows, log.arm[rows]] = log.propensity[rows]
    return known


def _drifts(log: Log) -> bool:
    """Return whether the mean of an arm's probabilities differs between the halves of the log."""
    known, half = _known(log), log.rounds // 2
    said = ~np.isnan(known)
    sums = [(np.where(said[rows], known[rows], 0.0), said[rows]) for rows in (slice(0, half), slice(half, None))]
    means, errors = [], []
    for values, here in sums:
        count = np.maximum(here.sum(axis=0), 1)
        means.append(values.sum(axis=0) / count)
        errors.append((np.square(values - means[-1]) * here).sum(axis=0) / count**2)
    both = np.logical_and(*(here.sum(axis=0) > 1 for _, here in sums))
    apart = np.abs(means[0] - means[1])
    return bool((both & (apart > ROUNDING + DEVIATIONS_MAX * np.sqrt(errors[0] + errors[1]))).any())


def _differs_for_the_same_features(log: Log) -> bool:
    """Return whether two rounds with the same features and eligible arms have other probabilities."""
    described = np.concatenate([log.features.reshape(log.rounds, -1), log.eligible], axis=1)
    # Equal rows have equal projections; a chance equality of others only makes intervals longer.
    projected = (described * np.sqrt(np.arange(2.0, 2.0 + described.shape[1]))).sum(axis=1)
    known = _known(log)
    order = np.argsort(projected, kind="stable")
    same = np.diff(projected[order]) == 0.0
    if log.probabilities is None:  # the same arm, too: the probabilities of other arms are not known
        same &= np.diff(log.arm[order]) == 0
    apart = np.abs(np.diff(known[order], axis=0))
    return bool((np.nan_to_num(apart[same]) > ROUNDING).any())
