"""Checks arrays that callers pass in, makes arrays read-only before the library returns them, adds outer products."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from operator import methodcaller
from struct import Struct
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import dger

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
FLOAT = np.dtype(np.float64)
# Makes an array read-only. The argument is positional because a keyword takes three times as long; numpy's type stubs
# do not declare the positional form, so a direct call would not type-check.
freeze = methodcaller("setflags", False)
Scalar = TypeVar("Scalar", bound=np.generic)


def finite(name: str, values: ArrayLike, shape: tuple[int | None, ...]) -> Array:
    """Return `values` as an array of finite floats. A None in `shape` allows any length. A ValueError gives `name`.

    >>> finite("rewards", [0.5, 1], (2,))
    array([0.5, 1. ])
    >>> finite("rewards", [0.5, 1], (3,))
    Traceback (most recent call last):
    ValueError: rewards must have shape (3), got (2,)
    """
    array = numbers(name, values)
    if array.shape != shape and (
        array.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True))
    ):
        wanted = ", ".join("n" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {array.shape}")
    return without_nan(name, array)


def broadcast(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Return finite floats of the given shape, from one number or from an array that broadcasts to the shape."""
    array = numbers(name, values)
    try:
        return without_nan(name, np.broadcast_to(array, shape))
    except ValueError as error:
        raise ValueError(f"{name} must be one finite number or have shape {shape}, got {values!r}") from error


def numbers(name: str, values: ArrayLike) -> Array:
    """Return `values` as floats of any shape. Refuse text, although numpy could convert it."""
    array = as_array(name, values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, got {type(values).__name__} of {array.dtype}")
    return array.astype(np.float64, copy=False)


def as_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return `values` as an array of any type. A ValueError gives `name`, for example if rows differ in length."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array, got {type(values).__name__} that numpy cannot convert") from error


def without_nan(name: str, array: Array) -> Array:
    """Return the array itself if every number is finite. Otherwise raise a ValueError that gives `name`."""
    # A finite sum of squares implies finite numbers, and takes a third of the time of checking each number.
    if not isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)].flat[0]}")
    return array


def are_finite(numbers: object) -> bool:
    """Return whether every float in an array, or in nested tuples of arrays, is finite.

    >>> are_finite((np.ones(2), (np.array([1, 2]),))), are_finite((np.array([0.5, np.inf]),))
    (True, False)
    """
    if isinstance(numbers, tuple):
        return all(map(are_finite, numbers))
    return not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "f" or bool(np.isfinite(numbers).all())


def folded(rows: int, lanes: int) -> Iterator[slice]:
    """Split `rows` into consecutive slices of `lanes` rows; an update applies them in this order."""
    for start in range(0, rows, lanes):
        yield slice(start, start + lanes)


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Make the array read-only and return it. A frozen dataclass or a NamedTuple does not do this for its arrays."""
    freeze(array)
    return array


class Floats(Struct):
    """Packs a fixed number of floats into bytes. An array over these bytes is read-only.

    This takes half the time of `np.array`. Unlike a plain Struct it can be pickled, so that a policy that contains one
    can be sent to other processes.

    >>> np.ndarray((1, 2), FLOAT, Floats("2d").pack(0.5, 1.0))
    array([[0.5, 1. ]])
    """

    def __reduce__(self) -> tuple[type[Floats], tuple[str]]:
        return Floats, (self.format,)


def add_outer(matrix: Array, column: Array, row: Array, factor: float) -> None:
    """Add factor · column · rowᵀ to the matrix in place, through its transpose, which has the memory order of BLAS."""
    dger(factor, row, column, 1, 1, matrix.T, 1, 1, 1)
