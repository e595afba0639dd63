"""Arguments of the policy, checked: a ValueError says what was asked and what was found."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.oracle import Array, as_array, finite


def checked_uniforms(uniforms: ArrayLike, rows: int) -> Array:
    """One number in [0, 1) per request."""
    u = finite("uniforms", uniforms, (rows,))
    if rows and not (u.min() >= 0.0 and u.max() < 1.0):
        raise ValueError(f"uniforms must lie in [0, 1), got {u.min()}..{u.max()}")
    return u


def checked_learn(learn: ArrayLike, rows: int) -> NDArray[np.bool_]:
    """Whether outcomes teach: for all, or one per row."""
    teaches = as_array("learn", learn)
    if teaches.dtype != np.bool_ or teaches.shape not in ((), (rows,)):
        raise ValueError(f"learn must be a boolean or one per row ({rows}), got {teaches.dtype} of {teaches.shape}")
    return teaches


def checked_retired(retired: object, arms: int) -> tuple[int, ...]:
    """The retired arms in order, each once."""
    if not isinstance(retired, Iterable):
        raise ValueError(f"retired must be arms, got {retired!r}")
    found = list(retired)
    if any(isinstance(arm, bool) or not isinstance(arm, int | np.integer) or not 0 <= arm < arms for arm in found):
        raise ValueError(f"retired must be arms in 0..{arms - 1}, got {found}")
    return tuple(sorted({int(arm) for arm in found}))


def positive_or_auto(name: str, value: float | str) -> float | str:
    """A setting that is "auto" or a positive number."""
    if isinstance(value, str) and value == "auto":
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f'{name} must be "auto" or a positive number, got {value!r}')
    return float(value)
