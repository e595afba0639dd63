"""Joint feature maps of the shared model: φ(x, a) from the vector of a context and the vector of an arm."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, finite, numbers


def concatenate(context: ArrayLike, arm_features: ArrayLike) -> Array:
    """Return φ(x, a) = (x, a), of shape (n, k, p + r).

    Contexts have shape (n, p). Arms have shape (k, r), or (n, k, r) if each request has its own arms.

    >>> concatenate([[1.0, 2.0]], [[7.0], [8.0]])
    array([[[1., 2., 7.],
            [1., 2., 8.]]])
    """
    x, arms = _checked_pair(context, arm_features)
    n, k, _ = arms.shape
    return np.concatenate([np.broadcast_to(x[:, None, :], (n, k, x.shape[1])), arms], axis=2)


def outer(context: ArrayLike, arm_features: ArrayLike) -> Array:
    """Return φ(x, a) = x ⊗ a, of shape (n, k, p·r); the index of the arm's coordinate varies fastest.

    Contexts have shape (n, p). Arms have shape (k, r), or (n, k, r) if each request has its own arms.

    >>> outer([[1.0, 2.0]], [[3.0, 5.0]])
    array([[[ 3.,  5.,  6., 10.]]])
    """
    x, arms = _checked_pair(context, arm_features)
    n, k, r = arms.shape
    return (x[:, None, :, None] * arms[:, :, None, :]).reshape(n, k, x.shape[1] * r)


def _checked_pair(context: ArrayLike, arm_features: ArrayLike) -> tuple[Array, Array]:
    """Return finite contexts (n, p) and arms (n, k, r); arms of shape (k, r) are repeated without a copy."""
    x = finite("context", context, (None, None))
    given = numbers("arm_features", arm_features)
    if given.ndim == 3:
        return x, finite("arm_features", given, (x.shape[0], None, None))
    arms = finite("arm_features", given, (None, None))
    return x, np.broadcast_to(arms, (x.shape[0], *arms.shape))
