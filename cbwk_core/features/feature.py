"""Features as they are declared: a number in a range, one of some strings, any string.

Each knows how many coordinates it takes and where a value goes among them, all in [0, 1], so that one feature cannot
drown another. Messages name the feature and the kind of thing that was found, never the value: it may be long, or
private.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from math import isfinite

import numpy as np

# Newton's A⁻¹ has dimension² numbers per block: 128 MiB at this size, beyond which nobody is served.
DIMENSION_MAX = 4096
# Enough that a declared hash feature is limited by DIMENSION_MAX and not by this.
BUCKETS_MAX = 65536
# A name stands in every message and label.
NAME_LENGTH_MAX = 128
# What is shown of a name the caller made up.
SHOWN_LENGTH_MAX = 40
# Of hashed strings the same few come again and again; so many are remembered, unless they are long.
REMEMBERED_MAX = 16_384
REMEMBERED_LENGTH_MAX = 128

FITS, CLIPPED, UNKNOWN = range(3)
# Coordinate within the feature, the number to put there, and whether the value was FITS, CLIPPED or UNKNOWN.
Place = tuple[int, float, int]


@dataclass(frozen=True)
class NumberFeature:
    """A number with a declared range, scaled to [0, 1]; outside it is clipped, or refused when `strict`.

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
        low, high, span = self._range
        if not low < high or not isfinite(span):
            raise ValueError(f"feature {self.name!r} must have min < max and a finite max - min")
        _check_default(self)

    @cached_property
    def _range(self) -> tuple[float, float, float]:
        low, high = (as_float(f"{self.name}.{end}", value) for end, value in (("min", self.min), ("max", self.max)))
        return low, high, high - low

    @property
    def quick(self) -> tuple[float, float, float]:
        """What it takes to place a number within the range."""
        return self._range

    @property
    def size(self) -> int:
        """How many coordinates the feature takes."""
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the one coordinate."""
        return (self.name,)

    def locate(self, value: object) -> Place:
        """Where the value goes: (value - min) / (max - min) at coordinate 0."""
        low, high, span = self._range
        number = value if type(value) is float or type(value) is int else as_float(self.name, value)
        if low <= number <= high:
            return 0, (number - low) / span, FITS
        number = as_float(self.name, number)
        if self.strict:
            raise ValueError(f"feature {self.name!r} must lie in its declared range, got a number outside")
        return 0, float(number > high), CLIPPED


@dataclass(frozen=True)
class CategoryFeature:
    """One of the declared strings, one-hot; another string encodes as zeros, or is refused when `strict`.

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
        if "" in self.values or len(self._index) != len(self.values):
            raise ValueError(f"feature {self.name!r} must have values that are different and not empty")
        _check_default(self)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {value: index for index, value in enumerate(self.values)}

    @property
    def quick(self) -> dict[str, int]:
        """What it takes to place a declared value."""
        return self._index

    @property
    def size(self) -> int:
        """How many coordinates the feature takes."""
        return len(self.values)

    @property
    def labels(self) -> tuple[str, ...]:
        """One label per declared value."""
        return tuple(f"{self.name}={value}" for value in self.values)

    def locate(self, value: object) -> Place:
        """Where the value goes: 1 at its index among the declared ones."""
        if not isinstance(value, str):
            raise _wrong_kind(self.name, "a string", value)
        index = self._index.get(value)
        if index is not None:
            return index, 1.0, FITS
        if self.strict:
            raise ValueError(f"feature {self.name!r} must be one of its declared values, got another string")
        return 0, 0.0, UNKNOWN


@dataclass(frozen=True)
class HashFeature:
    """Any string, one-hot in one of `buckets`; for identifiers too many to declare.

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

    @property
    def quick(self) -> None:
        """Nothing is quicker than to hash."""
        return None

    @property
    def size(self) -> int:
        """How many coordinates the feature takes."""
        return self.buckets

    @property
    def labels(self) -> tuple[str, ...]:
        """One label per bucket."""
        return tuple(f"{self.name}#{bucket}" for bucket in range(self.buckets))

    def locate(self, value: object) -> Place:
        """Where the value goes: blake2b of name, a zero byte and value, 8 bytes big-endian, modulo buckets.

        Oracles learn what a bucket means, so this function may never change, nor differ between processes as `hash`
        does.
        """
        if type(value) is str and len(value) <= REMEMBERED_LENGTH_MAX:
            return _hashed(self.name, value) % self.buckets, 1.0, FITS
        return _digest(self.name, _as_bytes(self.name, value)) % self.buckets, 1.0, FITS


@lru_cache(maxsize=REMEMBERED_MAX)
def _hashed(name: str, value: str) -> int:
    return _digest(name, _as_bytes(name, value))


def _digest(name: str, value: bytes) -> int:
    return int.from_bytes(blake2b(name.encode() + b"\x00" + value, digest_size=8).digest(), "big")


Feature = NumberFeature | CategoryFeature | HashFeature
# Least, greatest and span of a number's range; the declared strings with their coordinates; None for anything else.
Quick = tuple[float, float, float] | dict[str, int] | None


def as_float(name: str, value: object) -> float:
    """A finite float; a bool is no number, and a whole number may be too large to be one."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise _wrong_kind(name, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"feature {name!r} must be a finite number, got a whole number too large for one") from None
    if not isfinite(number):
        raise ValueError(f"feature {name!r} must be a finite number, got {number}")
    return number


def _as_bytes(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise _wrong_kind(name, "a string", value)
    try:
        return value.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can write; the original message shows the value
        raise ValueError(f"feature {name!r} must be text in Unicode, got half a surrogate pair") from None


def _wrong_kind(name: str, wanted: str, value: object) -> ValueError:
    return ValueError(f"feature {name!r} must be {wanted}, got {type(value).__name__}")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise ValueError(f"a feature's name must be a string of 1..{NAME_LENGTH_MAX} characters")
    if not name.isprintable():  # refuses half surrogate pairs too
        raise ValueError(f"a feature's name must be printable, got {name[:SHOWN_LENGTH_MAX]!a}")


def check_size(name: str, size: object, size_max: int) -> None:
    """Refuse what is no whole number in 1..size_max."""
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= size_max:
        raise ValueError(f"{name} must be a whole number in 1..{size_max}")


def _check_default(feature: Feature) -> None:
    if feature.default is not None and feature.locate(feature.default)[2] != FITS:
        raise ValueError(f"feature {feature.name!r} must have a default that it would accept without a remark")
