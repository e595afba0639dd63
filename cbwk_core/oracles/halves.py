"""Reward and costs of one oracle as parts of a product, for outcomes whose costs come before their reward.

An oracle that learns whole outcomes keeps what its targets share once: with Newton one Gram matrix A. A half that comes
alone belongs to its own targets only, so the first one splits the state: the reward and the costs each get a copy of
what was shared, and from then on each learns its own rows. A state is split once and stays split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.oracles.newton import Newton
from cbwk_core.oracles.newton_state import NewtonState, predicted_with_leverage_of_each
from cbwk_core.oracles.oracle import Oracle
from cbwk_core.oracles.product import Product, ProductState, forgotten

Linear = NewtonState | ProductState


def halves_of(oracle: Oracle[Any]) -> Product | None:
    """Return the product of an oracle for the reward and one for the costs; None if the oracle cannot be split.

    A product whose first part is the reward alone is split already.

    >>> [part.targets for part in halves_of(Newton(dimension=2, targets=4)).parts]
    [1, 3]
    """
    if isinstance(oracle, Product):
        return oracle if oracle.parts[0].targets == 1 else None
    if oracle.targets < 2 or not hasattr(oracle.init(), "of_targets"):
        return None
    own: Any = replace(oracle, watched=oracle.targets) if isinstance(oracle, Newton) else oracle
    return Product((replace(own, targets=1), replace(own, targets=oracle.targets - 1)))


def split(state: Any) -> ProductState:
    """Return the state for `halves_of`; it predicts what the state predicts."""
    if isinstance(state, ProductState):
        return state
    return ProductState((state.of_targets(slice(0, 1)), state.of_targets(slice(1, None))))


def forgotten_rewards(state: Linear) -> Array | float:
    """Return how many outcomes are discarded, (lanes,); after a split, how many rewards: more costs may have come."""
    return forgotten(state.parts[0] if isinstance(state, ProductState) else state)


def predicted_of_each(states: Sequence[Linear], x: Array) -> tuple[Array, Array]:
    """Return `predicted_with_leverage_of_each` of states that may be split; the leverage is that of the reward."""
    whole = [state for state in states if isinstance(state, NewtonState)]
    if len(whole) == len(states):
        return predicted_with_leverage_of_each(whole, x)
    found = [state.predicted_of_one(row) for state, row in zip(states, x, strict=True)]
    return np.stack([each for each, _ in found]), np.array([leverage for _, leverage in found])
