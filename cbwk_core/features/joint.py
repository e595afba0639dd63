"""Joint feature maps of the shared model: φ(x, a) from the vectors of a context and of an arm."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, finite, numbers


def concatenate(context: ArrayLike, arm_features: ArrayLike) -> Array:
    """φ(x, a) = (x, a): contexts (n, p) and arms (k, r), or (n, k, r) if each request has its own, give (n, k, p + r).

    >>> concatenate([[1.0, 2.0]], [[7.0], [8.0]])
    array([[[1., 2., 7.],
            [1., 2., 8.]]])
    """
    x, arms = _checked_pair(context, arm_features)
    n, k, _ = arms.shape
    return np.concatenate([np.broadcast_to(x[:, None, :], (n, k, x.shape[1])), arms], axis=2)


def outer(context: ArrayLike, arm_features: ArrayLike) -> Array:
    """φ(x, a) = x ⊗ a, the arm's coordinate running fastest: (n, p) and (k, r) or (n, k, r) give (n, k, p·r).

    >>> outer([[1.0, 2.0]], [[3.0, 5.0]])
    array([[[ 3.,  5.,  6., 10.]]])
    """
    x, arms = _checked_pair(context, arm_features)
    n, k, r = arms.shape
    return (x[:, None, :, None] * arms[:, :, None, :]).reshape(n, k, x.shape[1] * r)


def _checked_pair(context: ArrayLike, arm_features: ArrayLike) -> tuple[Array, Array]:
    """Contexts (n, p) and arms (n, k, r), finite; arms shared by all requests are repeated without a copy."""
    x = finite("context", context, (None, None))
    given = numbers("arm_features", arm_features)
    if given.ndim == 3:
        return x, finite("arm_features", given, (x.shape[0], None, None))
    arms = finite("arm_features", given, (None, None))
    return x, np.broadcast_to(arms, (x.shape[0], *arms.shape))
