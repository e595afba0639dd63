"""What a policy knows, and what that makes it ask for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.rules.dual import DualState
from cbwk_core.two_stage import Stage

# The columns of `State.books`: five numbers, then vectors over the resources. One row of numbers is read and written
# several times faster than ten little arrays; counts are whole and exact below 2**53.
COUNTERS = ("round", "opened", "settled", "learnt", "value")
VECTORS = ("position", "slack", "energy", "spent", "held", "predicted")


@lru_cache(maxsize=64)
def layout(resources: int) -> dict[str, slice]:
    """Where each part of the books stands.

    >>> layout(2)["spent"], layout(2)["predicted"].stop
    (slice(10, 12, None), 16)
    """
    slices, start = {name: slice(i, i + 1) for i, name in enumerate(COUNTERS)}, len(COUNTERS)
    for name in VECTORS:
        stop = start + (1 if name == "slack" else resources)
        slices[name] = slice(start, stop)
        start = stop
    return slices


@lru_cache(maxsize=64)
def columns(resources: int) -> dict[str, slice | int]:
    """The layout with counters as plain columns, and all of the dual's position in one piece.

    Prices in units of value have no slack: `practical` keeps in its column how long outcomes were waited for.
    """
    where = layout(resources)
    dual = slice(where["position"].start, where["slack"].stop)
    waited = where["slack"].start
    return {**where, **{name: i for i, name in enumerate(COUNTERS)}, "dual": dual, "waited": waited}


class State(NamedTuple):
    """All that a policy knows; lanes are independent runs side by side, one in ordinary use."""

    books: Array  # (lanes, 6 + 5d), see the properties
    oracle: Any  # the oracle's own state
    residuals: Array  # (lanes, 1 + d, 1 + d), Σ of outer products of outcome minus prediction, and a prior
    stage: Stage

    @property
    def resources(self) -> int:
        """d."""
        return int(self.residuals.shape[1]) - 1

    @property
    def round(self) -> Integers:
        """Rounds committed, (lanes,)."""
        return self.books[:, 0].astype(np.int64)

    @property
    def opened(self) -> Integers:
        """Decisions for a real arm that are open, (lanes,)."""
        return self.books[:, 1].astype(np.int64)

    @property
    def settled(self) -> Integers:
        """Decisions for a real arm that were settled, (lanes,)."""
        return self.books[:, 2].astype(np.int64)

    @property
    def learnt(self) -> Integers:
        """Outcomes the oracle learnt, (lanes,)."""
        return self.books[:, 3].astype(np.int64)

    @property
    def value(self) -> Array:
        """Σ of the predicted rewards of the decisions, none below 0, (lanes,)."""
        return self.books[:, 4]

    @property
    def waited(self) -> Array:
        """`practical`: Σ over the decisions settled of the rounds between decision and outcome, (lanes,)."""
        return self.books[:, columns(self.resources)["waited"]]

    @property
    def dual(self) -> DualState:
        """Where the prices stand."""
        where = columns(self.resources)
        return DualState(self.books[:, where["dual"]], self.books[:, where["energy"]])

    @property
    def spent(self) -> Array:
        """Settled costs in the caller's units, (lanes, d)."""
        return self.books[:, layout(self.resources)["spent"]]

    @property
    def held(self) -> Array:
        """Holds of open decisions in the caller's units, (lanes, d)."""
        return self.books[:, layout(self.resources)["held"]]

    @property
    def predicted(self) -> Array:
        """Predicted costs of open decisions in max costs, (lanes, d)."""
        return self.books[:, layout(self.resources)["predicted"]]

    def booked(self, dual: DualState | None = None, **added: Any) -> State:
        """The state with numbers added to parts of its books, and with another dual."""
        where, books = columns(self.resources), self.books.copy()
        if dual is not None:
            books[:, where["dual"]] = dual.position
            books[:, where["energy"]] = dual.energy
        for name, amount in added.items():
            books[:, where[name]] += amount
        books.setflags(write=False)
        return State(books, self.oracle, self.residuals, self.stage)


def new_books(lanes: int, resources: int, dual: DualState) -> Array:
    """Empty books at the dual's first position, (lanes, 6 + 5d)."""
    books = np.zeros((lanes, layout(resources)["predicted"].stop))
    books[:, columns(resources)["dual"]] = dual.position
    return frozen(books)


class Quote(NamedTuple):
    """What a state asks: prices, pace and learning rate of its next decision."""

    prices: Array  # (lanes, d), λ per max cost
    rho: Array  # (lanes, d), max costs per round
    gamma: Array  # (lanes, 1)
    noise: Array  # (lanes,), uᵀΣ̂u: residual variance of an outcome's worth at these prices
    blocking: Array | None = None  # (lanes, d), the share of its hold that a decision counts as at least; None for 0
