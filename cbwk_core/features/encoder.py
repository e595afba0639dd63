"""From what a caller knows about a request to the numbers an oracle learns from.

Two steps. A `ContextEncoder` turns a context (an object by feature name, or a plain list of numbers) into a vector;
declared features give coordinates in [0, 1], so that one feature cannot drown another and vectors stay bounded. For
`model="shared"`, `concatenate` and `outer` join the vectors of contexts and arms into one φ(x, a) per arm. Neither
step adds a constant coordinate: the policy appends it where its preset wants one.

Messages name the feature and the kind of thing that was found, never the value: see `declared`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.features.feature import (
    CLIPPED,
    DIMENSION_MAX,
    REMEMBERED_LENGTH_MAX,
    REMEMBERED_MAX,
    SHOWN_LENGTH_MAX,
    UNKNOWN,
    CategoryFeature,
    Feature,
    HashFeature,
    NumberFeature,
    Place,
    Quick,
    as_float,
    check_size,
)

# Coordinates of plain vectors have no declared range. Σφφᵀ over a million rounds then has entries up to 1e12, the most
# that a ridge of 1 survives in double precision; a raw time stamp or a price in cents has to be scaled by the caller.
COORDINATE_MAX = 1e3
# From so many contexts on it pays to encode them column by column.
TOGETHER_MIN = 6

_MISSING = object()
_PLAIN_NUMBERS = frozenset({float, int})


class Encoded(NamedTuple):
    """One context as numbers."""

    vector: Array  # (dimension,)
    clipped: tuple[str, ...]  # features whose number was outside its range
    unknown: tuple[str, ...]  # features whose category was not declared


class EncodedMany(NamedTuple):
    """Several contexts as numbers."""

    vectors: Array  # (n, dimension)
    clipped: int  # numbers outside their range, over all contexts
    unknown: int  # undeclared categories, over all contexts


@dataclass(frozen=True)
class ContextEncoder:
    """Turns contexts into vectors: by declared features, or (`ContextEncoder.vector`) from plain lists of numbers.

    >>> encoder = ContextEncoder((NumberFeature("hour", 0, 24), CategoryFeature("device", ("mobile", "desktop"))))
    >>> encoder.names
    ('hour', 'device=mobile', 'device=desktop')
    >>> encoder.encode({"hour": 36, "device": "mobile"})
    Encoded(vector=array([1., 1., 0.]), clipped=('hour',), unknown=())
    >>> encoder.encode({"hour": 12})
    Traceback (most recent call last):
    ValueError: feature 'device' is missing and has no default
    """

    features: tuple[Feature, ...]
    coordinates: int | None = None  # set by `vector`, where no features are declared

    def __post_init__(self) -> None:
        if not isinstance(self.features, tuple) or not all(isinstance(feature, Feature) for feature in self.features):
            raise ValueError("features must be a tuple of NumberFeature, CategoryFeature and HashFeature")
        if self.coordinates is not None:
            check_size("dimension", self.coordinates, DIMENSION_MAX)
            if self.features:
                raise ValueError("an encoder has features or a plain dimension, not both")
            return
        size = sum(feature.size for feature in self.features)
        if not 1 <= size <= DIMENSION_MAX:
            raise ValueError(f"features must make 1..{DIMENSION_MAX} coordinates together, got {size}")
        seen: set[str] = set()
        for feature in self.features:
            if feature.name in seen:
                raise ValueError(f"feature {feature.name!r} is declared twice")
            seen.add(feature.name)

    @classmethod
    def vector(cls, dimension: int) -> ContextEncoder:
        """For contexts that are lists of numbers, taken as they are.

        >>> ContextEncoder.vector(3).encode([0.5, -1, 2]).vector
        array([ 0.5, -1. ,  2. ])
        """
        return cls((), dimension)

    @cached_property
    def dimension(self) -> int:
        """Length of an encoded context."""
        return len(self.names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What each coordinate means."""
        if self.coordinates is not None:
            return tuple(f"x[{index}]" for index in range(self.coordinates))
        return tuple(label for feature in self.features for label in feature.labels)

    @cached_property
    def _plan(self) -> tuple[tuple[str, int, Quick, Callable[[object], Place], Place | None], ...]:
        """Per feature: name, first coordinate, the quick way, where values go otherwise, where a missing one goes."""
        plan, start = [], 0
        for feature in self.features:
            default = None if feature.default is None else feature.locate(feature.default)
            plan.append((feature.name, start, feature.quick, feature.locate, default))
            start += feature.size
        return tuple(plan)

    @cached_property
    def _usual(self) -> _Usual:
        return _Usual(self.features)

    def encode(self, context: Mapping[str, object] | Sequence[float]) -> Encoded:
        """One context; a ValueError names the feature that is wrong."""
        row = np.zeros(self.dimension)
        return Encoded(row, *self._fill(row, context))

    def encode_many(self, contexts: Iterable[Mapping[str, object] | Sequence[float]]) -> EncodedMany:
        """Several contexts; a ValueError names the row and the feature that are wrong.

        >>> ContextEncoder((CategoryFeature("device", ("mobile",)),)).encode_many([{"device": "tv"}])
        EncodedMany(vectors=array([[0.]]), clipped=0, unknown=1)
        """
        rows = list(contexts)
        if len(rows) >= TOGETHER_MIN and self.features:
            together = self._usual.encode(rows)
            if together is not None:
                return EncodedMany(together, 0, 0)
        usual = [self._usual.values(context) if self.features else None for context in rows]
        if rows and None not in usual:
            return EncodedMany(np.array(usual), 0, 0)
        vectors = np.zeros((len(rows), self.dimension))
        clipped_count = unknown_count = 0
        for index, (context, values) in enumerate(zip(rows, usual, strict=True)):
            if values is not None:
                vectors[index] = values
                continue
            try:
                clipped, unknown = self._fill(vectors[index], context)
            except ValueError as error:
                raise ValueError(f"context {index}: {error}") from error
            clipped_count += len(clipped)
            unknown_count += len(unknown)
        return EncodedMany(vectors, clipped_count, unknown_count)

    def _fill(self, row: Array, context: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Write one context into a row of zeros; returns the names that were clipped and those that were unknown."""
        if self.coordinates is not None:
            _fill_plain(row, context)
            return (), ()
        if not isinstance(context, Mapping):
            raise ValueError(f"context must be an object by feature name, got {type(context).__name__}")
        odd: list[tuple[str, int]] = []
        absent, values = 0, [0.0] * row.size
        for name, start, quick, locate, default in self._plan:
            value = context.get(name, _MISSING)
            # Most values are numbers in their range or declared strings: for them a call would cost most of the time.
            if type(quick) is tuple:
                if (type(value) is float or type(value) is int) and quick[0] <= value <= quick[1]:
                    values[start] = (value - quick[0]) / quick[2]
                    continue
            elif type(quick) is dict and type(value) is str and value in quick:
                values[start + quick[value]] = 1.0
                continue
            if value is not _MISSING:
                coordinate, amount, fit = locate(value)
                if fit:
                    odd.append((name, fit))
            elif default is not None:
                coordinate, amount, _ = default
                absent += 1
            else:
                raise ValueError(f"feature {name!r} is missing and has no default")
            values[start + coordinate] = amount
        row[:] = values
        if len(context) + absent != len(self.features):
            raise ValueError(f"context has a feature that is not declared: {self._undeclared(context)}")
        if not odd:
            return (), ()
        clipped, unknown = (tuple(name for name, fit in odd if fit == want) for want in (CLIPPED, UNKNOWN))
        return clipped, unknown

    def _undeclared(self, context: Mapping[object, object]) -> str:
        declared = {feature.name for feature in self.features}
        name = next(name for name in context if name not in declared)
        return ascii(name[:SHOWN_LENGTH_MAX]) if isinstance(name, str) else f"a name of type {type(name).__name__}"


class _Usual:
    """Contexts that are as declared, all features there and nothing odd about any; several go column by column."""

    def __init__(self, features: tuple[Feature, ...]) -> None:
        starts = [0, *accumulate(feature.size for feature in features)]
        numeric, strings = list[tuple[NumberFeature, int]](), list[tuple[CategoryFeature | HashFeature, int]]()
        for feature, start in zip(features, starts, strict=False):
            if isinstance(feature, NumberFeature):
                numeric.append((feature, start))
            else:
                strings.append((feature, start))
        self._count, self._dimension = len(features), starts[-1]
        self._numbers = _getter([feature.name for feature, _ in numeric])
        self._strings = _getter([feature.name for feature, _ in strings])
        self._coordinates = np.array([start for _, start in numeric], dtype=np.intp)
        self._low, self._high, self._span = np.array([feature.quick for feature, _ in numeric]).reshape(-1, 3).T
        self._places = [_Places(feature, start).__getitem__ for feature, start in strings]
        self._ranges = [(start, *feature.quick) for feature, start in numeric]

    def values(self, context: Any) -> list[float] | None:
        """One context in plain floats, or None where it has to be looked at."""
        if type(context) is not dict or len(context) != self._count:
            return None
        values = [0.0] * self._dimension
        try:
            numbers = self._numbers(context)
            if not _PLAIN_NUMBERS.issuperset(map(type, numbers)):
                return None
            for (start, low, high, span), value in zip(self._ranges, numbers, strict=True):
                if not low <= value <= high:
                    return None
                values[start] = (value - low) / span
            for place, text in zip(self._places, self._strings(context), strict=True):
                values[place(text)] = 1.0
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return values

    def encode(self, contexts: Sequence[Any]) -> Array | None:
        """(n, dimension), or None where one of them has to be looked at."""
        if set(map(type, contexts)) != {dict} or set(map(len, contexts)) != {self._count}:
            return None
        try:
            numbers, strings = [*map(self._numbers, contexts)], [*map(self._strings, contexts)]
            places = [[*map(place, column)] for place, column in zip(self._places, zip(*strings, strict=True))]  # noqa: B905
            if not _PLAIN_NUMBERS.issuperset(map(type, chain.from_iterable(numbers))):
                return None
            given = np.array(numbers, dtype=np.float64)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        if not ((given >= self._low).all() and (given <= self._high).all()):  # false for NaN
            return None
        vectors = np.zeros((len(contexts), self._dimension))
        vectors[:, self._coordinates] = (given - self._low) / self._span
        if places:
            vectors[np.arange(len(contexts)), places] = 1.0
        return vectors


class _Places(dict[str, int]):
    """The coordinates of a feature's strings, those of hashed ones as they come."""

    def __init__(self, feature: CategoryFeature | HashFeature, start: int) -> None:
        super().__init__({value: start + index for value, index in (feature.quick or {}).items()})
        self._feature, self._start = feature, start

    def __missing__(self, value: str) -> int:
        if isinstance(self._feature, CategoryFeature):
            raise KeyError("not declared")
        place = self._start + self._feature.locate(value)[0]
        if len(self) < REMEMBERED_MAX and len(value) <= REMEMBERED_LENGTH_MAX:
            self[value] = place
        return place


def _getter(names: Sequence[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """What takes these out of a dictionary, one or none of them too."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda context: tuple(context[name] for name in names)


def _fill_plain(row: Array, context: object) -> None:
    """Write a list of numbers into a row."""
    if isinstance(context, np.ndarray):
        context = context.tolist()
    if not isinstance(context, Sequence) or isinstance(context, str | bytes | bytearray):
        raise ValueError(f"context must be a list of {row.size} numbers, got {type(context).__name__}")
    if len(context) != row.size:
        raise ValueError(f"context must be a list of {row.size} numbers, got {len(context)}")
    # The quick way must not meet strings or bools, which numpy would take for numbers.
    if _PLAIN_NUMBERS.issuperset(map(type, context)):
        with suppress(OverflowError):
            row[:] = context
            if -COORDINATE_MAX <= row.min() and row.max() <= COORDINATE_MAX:  # both are false for NaN
                return
    for index, value in enumerate(context):
        row[index] = as_float(f"x[{index}]", value)
        if abs(row[index]) > COORDINATE_MAX:
            raise ValueError(f"feature 'x[{index}]' must lie within ±{COORDINATE_MAX:g}, got a number outside")
