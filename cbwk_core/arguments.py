"""Checks the arguments of the policy. A ValueError says what the policy expects and what it got."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.arrays import Array, Integers, as_array, finite, numbers
from cbwk_core.ticket import NULL_ARM


def checked_uniforms(uniforms: ArrayLike, rows: int) -> Array:
    """Return one number in [0, 1) per request."""
    u = finite("uniforms", uniforms, (rows,))
    if rows and not (u.min() >= 0.0 and u.max() < 1.0):
        raise ValueError(f"uniforms must lie in [0, 1), got {u.min()}..{u.max()}")
    return u


def checked_exclude(exclude: ArrayLike, rows: int, candidates: int) -> NDArray[np.bool_]:
    """Return which candidates each request excludes, (rows, candidates)."""
    excluded = as_array("exclude", exclude)
    if excluded.dtype != np.bool_ or excluded.shape != (rows, candidates):
        raise ValueError(
            f"exclude must be booleans of shape ({rows}, {candidates}), got {excluded.dtype} of {excluded.shape}"
        )
    return excluded


def checked_holds(holds: ArrayLike, rows: int, candidates: int, unit: Array) -> Array:
    """Return the most that each candidate can cost, (1 or n, candidates, d), at most `unit` of each resource."""
    given = numbers("holds", holds)
    given = given[None] if given.ndim == 2 else given
    checked = finite("holds", given, (None, candidates, len(unit)))
    if checked.shape[0] not in (1, rows) or (checked < 0).any() or (checked > unit).any():
        raise ValueError(
            f"holds must lie between 0 and the policy's max costs, for all requests or for each of {rows}, "
            f"got {checked.min(initial=np.inf)}..{checked.max(initial=-np.inf)} for {checked.shape[0]}"
        )
    return checked


def checked_free(free: ArrayLike, lanes: int, resources: int) -> Array:
    """Return the amounts that are free to hold, (lanes, d), in the number type of the caller."""
    given = as_array("free", free)
    given = given[None] if given.ndim == 1 else given
    shape = (lanes, resources)
    if given.dtype.kind not in "iuf" or given.shape != shape or not np.isfinite(given).all():
        raise ValueError(f"free must be finite numbers of shape {shape[1:]}, got {given.dtype} of {given.shape}")
    return given


def checked_pace(pace: ArrayLike, rows: int, resources: int) -> Array:
    """Return what a round may cost, (1 or n, d): positive numbers, infinite where nothing limits it."""
    given = as_array("pace", pace)
    given = given[None] if given.ndim == 1 else given
    is_right = given.dtype.kind in "iuf" and given.shape in ((1, resources), (rows, resources)) and (given > 0).all()
    if not is_right:
        raise ValueError(
            f"pace must be positive numbers of shape {(resources,)} or {(rows, resources)}, "
            f"got {given.dtype} of {given.shape}"
        )
    return given.astype(np.float64)


def checked_prices(prices: ArrayLike, lanes: int, resources: int) -> Array:
    """Return what is added to the prices, (1 or lanes, d): numbers that are not negative."""
    given = finite("prices", np.atleast_2d(numbers("prices", prices)), (None, resources))
    if len(given) not in (1, lanes) or (given < 0).any():
        message = f"prices must not be negative, for all lanes or for each of {lanes}"
        raise ValueError(f"{message}, got {given.min()} for {len(given)}")
    return given


def checked_arms(arm: ArrayLike, rows: int, last: int) -> Integers:
    """Return the arm of each row: the null arm, or an arm from 0 to `last`."""
    arms = as_array("arm", arm)
    if arms.shape != (rows,) or arms.dtype.kind not in "iu":
        raise ValueError(f"arm must be one integer per row ({rows}), got {arms.dtype} of shape {arms.shape}")
    if rows and not (NULL_ARM <= arms.min() and arms.max() <= last):
        raise ValueError(f"arm must lie in {NULL_ARM}..{last}, got {arms.min()}..{arms.max()}")
    return arms.astype(np.int64, copy=False)


def checked_learn(learn: ArrayLike, rows: int, name: str = "learn") -> NDArray[np.bool_]:
    """Return whether the model learns from the outcomes: one boolean for all rows, or one per row."""
    flags = as_array(name, learn)
    if flags.dtype != np.bool_ or flags.shape not in ((), (rows,)):
        raise ValueError(f"{name} must be a boolean or one per row ({rows}), got {flags.dtype} of {flags.shape}")
    return flags


def checked_retired(retired: object, arms: int) -> tuple[int, ...]:
    """Return the retired arms, sorted and without duplicates."""
    if not isinstance(retired, Iterable):
        raise ValueError(f"retired must be arms, got {retired!r}")
    found = list(retired)
    if any(isinstance(arm, bool) or not isinstance(arm, int | np.integer) or not 0 <= arm < arms for arm in found):
        raise ValueError(f"retired must be arms in 0..{arms - 1}, got {found}")
    return tuple(sorted({int(arm) for arm in found}))


def positive_or_auto(name: str, value: float | str) -> float | str:
    """Return the value of a setting that is "auto" or a positive number."""
    if isinstance(value, str) and value == "auto":
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f'{name} must be "auto" or a positive number, got {value!r}')
    return float(value)
