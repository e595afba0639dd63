"""The three kinds of features: a number in a range, one of several strings, any string.

A feature knows how many coordinates it has, and it maps a value to one of them. Every coordinate lies in [0, 1], so
that no feature outweighs the others by its unit. An error message names the feature and the type of the value, but
never shows the value itself, because it may be long or private.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from math import isfinite

import numpy as np

# The A⁻¹ of the Newton oracle has dimension² numbers per block: 128 MiB at this size.
DIMENSION_MAX = 4096
# Larger than DIMENSION_MAX, so that only the dimension of the encoder limits a hash feature.
BUCKETS_MAX = 65536
# Every label and every error message repeats the name.
NAME_LENGTH_MAX = 128
# An error message shows this many characters of a name that is not declared.
SHOWN_LENGTH_MAX = 40
# Most requests repeat a few strings, so a hash feature caches the buckets of this many short strings.
CACHED_STRINGS_MAX = 16_384
CACHED_LENGTH_MAX = 128

FITS, CLIPPED, UNKNOWN = range(3)
# The coordinate within the feature, its value, and FITS, CLIPPED or UNKNOWN.
Place = tuple[int, float, int]


class FeatureError(ValueError):
    """A context with a value that does not fit a feature.

    `feature` is the name of the feature, or the place in a list of numbers. `reason` begins with a verb.

    >>> error = FeatureError("hour", "must be a number, got str")
    >>> str(error), error.feature
    ("feature 'hour' must be a number, got str", 'hour')
    """

    def __init__(self, feature: str | int, reason: str, *, message: str | None = None) -> None:
        name = feature if isinstance(feature, str) else f"x[{feature}]"
        super().__init__(message or f"feature {name!r} {reason}")
        self.feature = feature
        self.reason = reason


@dataclass(frozen=True)
class NumberFeature:
    """A number in a declared range, scaled to [0, 1].

    A number outside the range is clipped. With `strict`, it is refused.

    >>> NumberFeature("hour", min=0, max=24).locate(6)
    (0, 0.25, 0)
    """

    name: str
    min: float
    max: float
    default: float | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        low, high, span = self.limits
        if not low < high or not isfinite(span):
            raise ValueError(f"feature {self.name!r} must have min < max and a finite max - min")
        _check_default(self)

    @cached_property
    def limits(self) -> tuple[float, float, float]:
        """(min, max, max - min) as floats."""
        low, high = (as_float(f"{self.name}.{end}", value) for end, value in (("min", self.min), ("max", self.max)))
        return low, high, high - low

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the only coordinate."""
        return (self.name,)

    def locate(self, value: object) -> Place:
        """Return (value - min) / (max - min) at coordinate 0."""
        low, high, span = self.limits
        number = value if type(value) is float or type(value) is int else as_float(self.name, value)
        if low <= number <= high:
            return 0, (number - low) / span, FITS
        number = as_float(self.name, number)
        if self.strict:
            raise FeatureError(self.name, f"must lie in its declared range, {low:g} to {high:g}, got a number outside")
        return 0, float(number > high), CLIPPED


@dataclass(frozen=True)
class CategoryFeature:
    """One of the declared strings, encoded one-hot.

    Any other string is encoded as zeros. With `strict`, it is refused.

    >>> CategoryFeature("device", ("mobile", "desktop")).locate("desktop")
    (1, 1.0, 0)
    """

    name: str
    values: tuple[str, ...]
    default: str | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not isinstance(self.values, tuple) or not self.values:
            raise ValueError(f"feature {self.name!r} must have a tuple of at least one value")
        if len(self.values) > DIMENSION_MAX:
            raise ValueError(f"feature {self.name!r} must have at most {DIMENSION_MAX} values, got {len(self.values)}")
        for value in self.values:
            _as_bytes(self.name, value)
        if "" in self.values or len(self.coordinate_of) != len(self.values):
            raise ValueError(f"feature {self.name!r} must have values that are different and not empty")
        _check_default(self)

    @cached_property
    def coordinate_of(self) -> dict[str, int]:
        """The coordinate of each declared value."""
        return {value: index for index, value in enumerate(self.values)}

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self.values)

    @property
    def labels(self) -> tuple[str, ...]:
        """One label per declared value."""
        return tuple(f"{self.name}={value}" for value in self.values)

    def locate(self, value: object) -> Place:
        """Return 1 at the coordinate of a declared value, and 0 for any other string."""
        if not isinstance(value, str):
            raise _wrong_type(self.name, "a string", value)
        index = self.coordinate_of.get(value)
        if index is not None:
            return index, 1.0, FITS
        if self.strict:
            raise FeatureError(self.name, "must be one of its declared values, got another string")
        return 0, 0.0, UNKNOWN


@dataclass(frozen=True)
class HashFeature:
    """Any string, hashed into one of `buckets` and encoded one-hot; for identifiers that are too many to declare.

    >>> HashFeature("site", buckets=16).locate("example.com")
    (11, 1.0, 0)
    """

    name: str
    buckets: int
    default: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        check_size(f"feature {self.name!r} buckets", self.buckets, BUCKETS_MAX)
        _check_default(self)

    @cached_property
    def coordinate_of(self) -> dict[str, int]:
        """The bucket of each string; a missing key is hashed and cached."""
        return _BucketCache(self.name, self.buckets)

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.buckets

    @property
    def labels(self) -> tuple[str, ...]:
        """One label per bucket."""
        return tuple(f"{self.name}#{bucket}" for bucket in range(self.buckets))

    def locate(self, value: object) -> Place:
        """Return 1 at the bucket of the string: blake2b of name, a zero byte and value; 8 bytes, big-endian, modulo.

        Oracles learn what a bucket means. The bucket of a string must therefore never change, and must not differ
        between processes as `hash` does.
        """
        if not isinstance(value, str):
            raise _wrong_type(self.name, "a string", value)
        return self.coordinate_of[value], 1.0, FITS


class _BucketCache(dict[str, int]):
    """The buckets of recent strings; it is emptied when it is full."""

    def __init__(self, name: str, buckets: int) -> None:
        super().__init__()
        self._name, self._buckets = name, buckets

    def __missing__(self, value: str) -> int:
        content = self._name.encode() + b"\x00" + _as_bytes(self._name, value)
        bucket = int.from_bytes(blake2b(content, digest_size=8).digest(), "big") % self._buckets
        if len(value) <= CACHED_LENGTH_MAX:
            if len(self) >= CACHED_STRINGS_MAX:
                self.clear()
            self[value] = bucket
        return bucket


Feature = NumberFeature | CategoryFeature | HashFeature


def as_float(name: str | int, value: object) -> float:
    """Return the value of a feature, or of a place in a list, as a finite float. Refuse bools and ints beyond floats.

    >>> as_float("hour", 6)
    6.0
    >>> as_float("hour", "6")
    Traceback (most recent call last):
    cbwk_core.features.feature.FeatureError: feature 'hour' must be a number, got str
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise _wrong_type(name, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        raise FeatureError(name, "must be a finite number, got an integer too large for a float") from None
    if not isfinite(number):
        raise FeatureError(name, f"must be a finite number, got {number}")
    return number


def _as_bytes(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise _wrong_type(name, "a string", value)
    try:
        return value.encode()
    except UnicodeEncodeError:  # JSON can contain half a surrogate pair; the original error would show the value
        raise FeatureError(name, "must be Unicode text, got half a surrogate pair") from None


def _wrong_type(name: str | int, wanted: str, value: object) -> FeatureError:
    return FeatureError(name, f"must be {wanted}, got {type(value).__name__}")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise ValueError(f"a feature's name must be a string of 1..{NAME_LENGTH_MAX} characters")
    if not name.isprintable():  # also refuses half a surrogate pair
        raise ValueError(f"a feature's name must be printable, got {name[:SHOWN_LENGTH_MAX]!a}")


def check_size(name: str, size: object, size_max: int) -> None:
    """Refuse a size that is not an integer in 1..size_max.

    >>> check_size("dimension", 0, 4096)
    Traceback (most recent call last):
    ValueError: dimension must be an integer in 1..4096
    """
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= size_max:
        raise ValueError(f"{name} must be an integer in 1..{size_max}")


def _check_default(feature: Feature) -> None:
    if feature.default is not None and feature.locate(feature.default)[2] != FITS:
        raise ValueError(f"feature {feature.name!r} must have a default that is neither clipped nor unknown")
