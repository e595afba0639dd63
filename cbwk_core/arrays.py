"""Arrays as the library uses them: checked where they come in, read-only where they go out."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from operator import methodcaller
from struct import Struct
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
FLOAT = np.dtype(np.float64)
# Makes an array read-only. By position, which numpy's types do not know of: a keyword takes three times as long.
freeze = methodcaller("setflags", False)
Scalar = TypeVar("Scalar", bound=np.generic)


def finite(name: str, values: ArrayLike, shape: tuple[int | None, ...]) -> Array:
    """`values` as a finite float array of the given shape (None: any length), or a ValueError that names it.

    >>> finite("rewards", [0.5, 1], (2,))
    array([0.5, 1. ])
    """
    array = numbers(name, values)
    if array.shape != shape and (
        array.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True))
    ):
        wanted = ", ".join("n" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {array.shape}")
    return without_nan(name, array)


def broadcast(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Array:
    """One number for all, or as many as the shape has, as finite floats of that shape."""
    array = numbers(name, values)
    try:
        return without_nan(name, np.broadcast_to(array, shape))
    except ValueError as error:
        raise ValueError(f"{name} must be one finite number or have shape {shape}, got {values!r}") from error


def numbers(name: str, values: ArrayLike) -> Array:
    """`values` as floats of any shape; text is no number, even where numpy could read it as one."""
    array = as_array(name, values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, got {type(values).__name__} of {array.dtype}")
    return array.astype(np.float64, copy=False)


def as_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """`values` as an array of whatever they are, or a ValueError that names them where rows differ in length."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array, got {type(values).__name__} that is none") from error


def without_nan(name: str, array: Array) -> Array:
    """The array itself, or a ValueError that names it if a number is not finite."""
    # A finite sum of squares means finite numbers, and costs a third of looking at each.
    if not isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)].flat[0]}")
    return array


def folded(rows: int, lanes: int) -> Iterator[slice]:
    """The slices of `lanes` rows each in which a state is updated, in order."""
    for start in range(0, rows, lanes):
        yield slice(start, start + lanes)


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """The same array, read-only: a frozen state does not freeze what it points to."""
    freeze(array)
    return array


class Floats(Struct):
    """So many floats as bytes: an array over them is read-only, and made in half the time that np.array needs.

    A Struct that can be pickled, since a policy that keeps it may be sent to other processes.

    >>> np.ndarray((1, 2), FLOAT, Floats("2d").pack(0.5, 1.0))
    array([[0.5, 1. ]])
    """

    def __reduce__(self) -> tuple[type[Floats], tuple[str]]:
        return Floats, (self.format,)
