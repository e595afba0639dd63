"""Encodes contexts as vectors.

A context is an object by feature name, or a list of numbers. The encoder adds no constant coordinate: the policy
appends one if its preset has one. For `model="shared"`, `concatenate` and `outer` join the vectors of a context and
of an arm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.features.feature import (
    CLIPPED,
    DIMENSION_MAX,
    SHOWN_LENGTH_MAX,
    UNKNOWN,
    Feature,
    FeatureError,
    NumberFeature,
    as_float,
    check_size,
)

# A list of numbers has no declared ranges. With coordinates up to this limit, Σφφᵀ has entries up to 1e12 after a
# million rounds, which is the most that a ridge of 1 survives in double precision. The caller must scale larger
# numbers, for example a time stamp or a price in cents.
COORDINATE_MAX = 1e3
# From this many contexts on, array operations over all of them are faster than a loop over each.
BATCH_MIN = 6

_MISSING = object()
_NUMBER_TYPES = frozenset({float, int})


class Encoded(NamedTuple):
    """One encoded context.

    >>> ContextEncoder((NumberFeature("hour", 0, 24),)).encode({"hour": 25}).clipped
    ('hour',)
    """

    vector: Array  # (dimension,)
    clipped: tuple[str, ...]  # the features whose number was outside its range
    unknown: tuple[str, ...]  # the features whose category was not declared


class EncodedMany(NamedTuple):
    """Several encoded contexts.

    >>> ContextEncoder((NumberFeature("hour", 0, 24),)).encode_many([{"hour": 25}, {"hour": 12}, {"hour": -1}]).clipped
    2
    """

    vectors: Array  # (n, dimension)
    clipped: int  # how many numbers were outside their range, over all contexts
    unknown: int  # how many categories were not declared, over all contexts


@dataclass(frozen=True)
class ContextEncoder:
    """Encodes contexts by declared features; `ContextEncoder.vector` encodes lists of numbers.

    >>> from cbwk_core.features import CategoryFeature
    >>> encoder = ContextEncoder((NumberFeature("hour", 0, 24), CategoryFeature("device", ("mobile", "desktop"))))
    >>> encoder.names
    ('hour', 'device=mobile', 'device=desktop')
    >>> encoder.encode({"hour": 36, "device": "mobile"})
    Encoded(vector=array([1., 1., 0.]), clipped=('hour',), unknown=())
    >>> encoder.encode({"hour": 12})
    Traceback (most recent call last):
    cbwk_core.features.feature.FeatureError: feature 'device' is missing and has no default
    """

    features: tuple[Feature, ...]
    coordinates: int | None = None  # the length of a list of numbers, if there are no features

    def __post_init__(self) -> None:
        if not isinstance(self.features, tuple) or not all(isinstance(feature, Feature) for feature in self.features):
            raise ValueError("features must be a tuple of NumberFeature, CategoryFeature and HashFeature")
        if self.coordinates is not None:
            check_size("dimension", self.coordinates, DIMENSION_MAX)
            if self.features:
                raise ValueError("an encoder has either features or a dimension, got both")
            return
        size = sum(feature.size for feature in self.features)
        if not 1 <= size <= DIMENSION_MAX:
            raise ValueError(f"features must have 1..{DIMENSION_MAX} coordinates in total, got {size}")
        seen: set[str] = set()
        for feature in self.features:
            if feature.name in seen:
                raise ValueError(f"feature {feature.name!r} is declared twice")
            seen.add(feature.name)

    @classmethod
    def vector(cls, dimension: int) -> ContextEncoder:
        """Return an encoder of lists of `dimension` numbers, which it does not scale.

        >>> ContextEncoder.vector(3).encode([0.5, -1, 2]).vector
        array([ 0.5, -1. ,  2. ])
        """
        return cls((), dimension)

    @cached_property
    def dimension(self) -> int:
        """The length of an encoded context."""
        return len(self.names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The label of each coordinate."""
        if self.coordinates is not None:
            return tuple(f"x[{index}]" for index in range(self.coordinates))
        return tuple(label for feature in self.features for label in feature.labels)

    def encode(self, context: Mapping[str, object] | Sequence[float]) -> Encoded:
        """Encode one context. A ValueError names the feature that is wrong.

        >>> ContextEncoder((NumberFeature("hour", 0, 24),)).encode({"hour": 6})
        Encoded(vector=array([0.25]), clipped=(), unknown=())
        """
        row = np.empty(self.dimension)
        return Encoded(row, *self._fill(row, context))

    def encode_many(self, contexts: Iterable[Mapping[str, object] | Sequence[float]]) -> EncodedMany:
        """Encode several contexts, each as `encode` does. A ValueError names the row and the feature that are wrong.

        >>> ContextEncoder((NumberFeature("hour", 0, 24),)).encode_many([{"hour": 6}, {"hour": 30}])
        EncodedMany(vectors=array([[0.25],
               [1.  ]]), clipped=1, unknown=0)
        """
        rows = list(contexts)
        if len(rows) >= BATCH_MIN and self.features:
            vectors = self._batch.encode(rows)
            if vectors is not None:
                return EncodedMany(vectors, 0, 0)
        vectors = np.empty((len(rows), self.dimension))
        clipped_count = unknown_count = 0
        for index, context in enumerate(rows):
            try:
                clipped, unknown = self._fill(vectors[index], context)
            except ValueError as error:
                raise ValueError(f"context {index}: {error}") from error
            clipped_count += len(clipped)
            unknown_count += len(unknown)
        return EncodedMany(vectors, clipped_count, unknown_count)

    @cached_property
    def _batch(self) -> _BatchEncoder:
        return _BatchEncoder(self.features)

    @cached_property
    def _plan(self) -> tuple[tuple[Feature, str, int, tuple[float, float, float] | None, dict[str, int]], ...]:
        """For each feature: itself, its name, its first coordinate, a number's limits, the coordinates of strings."""
        return tuple(
            (feature, feature.name, start, feature.limits, {})
            if isinstance(feature, NumberFeature)
            else (feature, feature.name, start, None, feature.coordinate_of)
            for feature, start in zip(self.features, _starts(self.features), strict=False)
        )

    def _fill(self, row: Array, context: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Write one encoded context into `row`. Return the names of the clipped and of the unknown features."""
        if self.coordinates is not None:
            _fill_with_numbers(row, context)
            return (), ()
        if not isinstance(context, Mapping):
            raise ValueError(f"context must be an object by feature name, got {type(context).__name__}")
        misfits: list[tuple[str, int]] = []
        absent, values = 0, [0.0] * row.size
        for feature, name, start, limits, coordinate_of in self._plan:
            value = context.get(name, _MISSING)
            if value is _MISSING:
                if feature.default is None:
                    raise FeatureError(name, "is missing and has no default")
                value, absent = feature.default, absent + 1
            # Most values are numbers in their range or known strings. For them a call of `locate` would be slow.
            if limits is not None:
                low, high, span = limits
                if (type(value) is float or type(value) is int) and low <= value <= high:
                    values[start] = (value - low) / span
                    continue
            elif type(value) is str and value in coordinate_of:
                values[start + coordinate_of[value]] = 1.0
                continue
            coordinate, amount, fit = feature.locate(value)
            values[start + coordinate] = amount
            if fit:
                misfits.append((name, fit))
        row[:] = values
        if len(context) + absent != len(self.features):
            raise self._undeclared(context)
        if not misfits:
            return (), ()
        clipped, unknown = (tuple(name for name, fit in misfits if fit == want) for want in (CLIPPED, UNKNOWN))
        return clipped, unknown

    def _undeclared(self, context: Mapping[object, object]) -> FeatureError:
        declared = {feature.name for feature in self.features}
        name = next(name for name in context if name not in declared)
        shown = ascii(name[:SHOWN_LENGTH_MAX]) if isinstance(name, str) else f"a name of type {type(name).__name__}"
        message = f"context has a feature that is not declared: {shown}"
        return FeatureError(str(name), "is not declared", message=message)


class _BatchEncoder:
    """Encodes many contexts with one array operation per step, if each is a dict and every value fits its feature."""

    def __init__(self, features: tuple[Feature, ...]) -> None:
        starts = _starts(features)
        numbers, strings = [], []
        for feature, start in zip(features, starts, strict=False):
            if isinstance(feature, NumberFeature):
                numbers.append((feature.name, start, feature.limits))
            else:
                strings.append((feature.name, start, feature.coordinate_of))
        self._size, self._dimension = len(features), starts[-1]
        self._numbers = [name for name, _, _ in numbers]
        self._number_coordinates = np.array([start for _, start, _ in numbers], dtype=np.intp)
        self._low, self._high, self._span = np.array([limits for _, _, limits in numbers]).reshape(-1, 3).T
        self._strings = [(name, coordinate_of) for name, _, coordinate_of in strings]
        self._string_starts = np.array([[start] for _, start, _ in strings], dtype=np.intp)

    def encode(self, contexts: Sequence[Any]) -> Array | None:
        """Return (n, dimension), or None if one of the contexts must be encoded by `ContextEncoder.encode`."""
        if set(map(type, contexts)) != {dict} or set(map(len, contexts)) != {self._size}:
            return None
        try:
            places = [[coordinate_of[context[name]] for context in contexts] for name, coordinate_of in self._strings]
            values = [context[name] for context in contexts for name in self._numbers]
            if not _NUMBER_TYPES.issuperset(map(type, values)):
                return None
            numbers = np.array(values, dtype=np.float64).reshape(len(contexts), len(self._numbers))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        if not ((numbers >= self._low) & (numbers <= self._high)).all():  # false for NaN
            return None
        vectors = np.zeros((len(contexts), self._dimension))
        vectors[:, self._number_coordinates] = (numbers - self._low) / self._span
        if places:
            vectors[np.arange(len(contexts)), np.array(places) + self._string_starts] = 1.0
        return vectors


def _starts(features: tuple[Feature, ...]) -> list[int]:
    """The first coordinate of each feature, and the number of all coordinates."""
    return [0, *accumulate(feature.size for feature in features)]


def _fill_with_numbers(row: Array, context: object) -> None:
    """Write a list of numbers into `row`."""
    if isinstance(context, np.ndarray):
        context = context.tolist()
    if not isinstance(context, Sequence) or isinstance(context, str | bytes | bytearray):
        raise ValueError(f"context must be a list of {row.size} numbers, got {type(context).__name__}")
    if len(context) != row.size:
        raise ValueError(f"context must be a list of {row.size} numbers, got {len(context)}")
    # numpy would read strings and bools as numbers.
    if _NUMBER_TYPES.issuperset(map(type, context)):
        with suppress(OverflowError):
            row[:] = context
            if -COORDINATE_MAX <= row.min() and row.max() <= COORDINATE_MAX:  # both are false for NaN
                return
    for index, value in enumerate(context):
        row[index] = as_float(index, value)
        if abs(row[index]) > COORDINATE_MAX:
            raise FeatureError(index, f"must lie within ±{COORDINATE_MAX:g}, got a number outside")
