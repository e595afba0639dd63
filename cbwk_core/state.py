"""What a policy knows.

This module alone knows the columns of `State.books`. Lanes are independent runs side by side: one in ordinary use, one
per run in a simulation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, Mask, frozen
from cbwk_core.arrays import numbers as as_floats

# One row of numbers is read and written several times faster than a dozen small arrays. Counts are whole numbers and
# exact below 2**53.
ROUND, OPENED, SETTLED, LEARNT, VALUE = range(5)
_COUNTERS = ("round", "opened", "settled", "learnt", "value")


class Columns(NamedTuple):
    """Where the vectors of the books stand; the counters before them are ROUND to VALUE."""

    position: slice  # d, prices in units of value, or log-weights
    slack: slice  # 1, the log-weight of the entropic dual's slack
    energy: slice  # d
    spent: slice  # d
    held: slice  # d
    predicted: slice  # d
    waited: slice  # 1

    @property
    def width(self) -> int:
        """How many columns the books have."""
        return int(self.waited.stop)


@lru_cache(maxsize=64)
def columns(resources: int) -> Columns:
    """The columns for that many resources."""
    start, slices = len(_COUNTERS), []
    for name in Columns._fields:
        size = 1 if name in ("slack", "waited") else resources
        slices.append(slice(start, start + size))
        start += size
    return Columns(*slices)


class Stage(NamedTuple):
    """Where the two stages of Algorithm 2 stand; with one stage Algorithm 1 runs from round 0, nothing is collected."""

    running: Mask  # (lanes,), Algorithm 1 runs with its final radius
    radius: Array  # (lanes,), Z
    start: Integers  # (lanes,), the round in which it started to
    granted: Array  # (lanes, d), what was left then, in max costs
    issued: Integers  # (lanes,), decisions of stage one for a real arm
    returned: Integers  # (lanes,), those of them that are settled or cancelled
    features: Array  # (samples, lanes, dimension), outcomes of stage one in the order they came
    arms: Integers  # (samples, lanes)
    targets: Array  # (samples, lanes, 1 + d)
    weights: Array  # (samples, lanes), 0 where a lane has no outcome
    contexts: Array  # (T0, lanes, candidates, dimension)


class State(NamedTuple):
    """All that a policy knows.

    >>> from cbwk_core import SquareCBwK
    >>> policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=10, budget=5, model="per_arm")
    >>> state = policy.learn(policy.init(), [[1.0]], [0], rewards=[0.5], costs=[[0.25]])
    >>> state.round, state.learnt, state.spent
    (array([1]), array([1]), array([[0.25]]))
    """

    books: Array  # (lanes, 7 + 5d), or (lanes, 8 + 7d) with a floor arm; see the properties
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
        return self.books[:, ROUND].astype(np.int64)

    @property
    def opened(self) -> Integers:
        """Decisions for a real arm that are open, (lanes,)."""
        return self.books[:, OPENED].astype(np.int64)

    @property
    def settled(self) -> Integers:
        """Decisions for a real arm that were settled, (lanes,)."""
        return self.books[:, SETTLED].astype(np.int64)

    @property
    def learnt(self) -> Integers:
        """Outcomes the oracle learnt, (lanes,)."""
        return self.books[:, LEARNT].astype(np.int64)

    @property
    def value(self) -> Array:
        """Σ of the predicted rewards of the decisions, none below 0, (lanes,)."""
        return self.books[:, VALUE]

    @property
    def position(self) -> Array:
        """Where the prices in units of value stand, (lanes, d)."""
        return self.books[:, columns(self.resources).position]

    @property
    def log_weights(self) -> Array:
        """Where the entropic dual stands, (lanes, d + 1), the slack last."""
        where = columns(self.resources)
        return self.books[:, where.position.start : where.slack.stop]

    @property
    def energy(self) -> Array:
        """Σ of the squared relative steps of the prices in units of value, (lanes, d)."""
        return self.books[:, columns(self.resources).energy]

    @property
    def spent(self) -> Array:
        """Settled costs in the caller's units, (lanes, d)."""
        return self.books[:, columns(self.resources).spent]

    @property
    def held(self) -> Array:
        """Holds of open decisions in the caller's units, (lanes, d)."""
        return self.books[:, columns(self.resources).held]

    @property
    def predicted(self) -> Array:
        """Predicted costs of open decisions in max costs, (lanes, d)."""
        return self.books[:, columns(self.resources).predicted]

    @property
    def waited(self) -> Array:
        """`practical`: Σ over the decisions settled of the rounds between decision and outcome, (lanes,)."""
        return self.books[:, columns(self.resources).waited.start]

    @property
    def floor(self) -> Array:
        """Must play: how many outcomes of the floor arm are known, Σ c and Σ c² of its costs in max costs.

        (lanes, 1 + 2d).
        """
        return self.books[:, columns(self.resources).width :]

    def booked(self, **amounts: Any) -> State:
        """The state with amounts added to its books, by the names of the properties."""
        books = self.books.copy()
        for name, amount in amounts.items():
            books[:, _place(name, self.resources)] += amount
        return State(frozen(books), self.oracle, self.residuals, self.stage)

    def replaced(self, **values: Any) -> State:
        """The state with other values in its books, by the names of the properties."""
        books = self.books.copy()
        for name, value in values.items():
            books[:, _place(name, self.resources)] = value
        return State(frozen(books), self.oracle, self.residuals, self.stage)


def _place(name: str, resources: int) -> int | slice:
    """Where a property stands in the books."""
    if name in _COUNTERS:
        return _COUNTERS.index(name)
    where = columns(resources)
    if name == "waited":
        return int(where.waited.start)
    found: slice = getattr(where, "position" if name == "log_weights" else name)
    return slice(found.start, where.slack.stop) if name == "log_weights" else found


def width_of(resources: int, *, has_floor: bool) -> int:
    """How many columns the books of a policy have."""
    return columns(resources).width + has_floor * (1 + 2 * resources)


def new_books(lanes: int, resources: int, log_weights: Array | None = None, *, has_floor: bool = False) -> Array:
    """Books before the first round; prices in units of value start at 0, the entropic dual at its log-weights."""
    where = columns(resources)
    books = np.zeros((lanes, width_of(resources, has_floor=has_floor)))
    if log_weights is not None:
        books[:, where.position.start : where.slack.stop] = log_weights
    return frozen(books)


def read_books(numbers: ArrayLike, resources: int, *, value_prices: bool, has_floor: bool = False) -> Array:
    """Books with the columns of this version, from stored ones: those of version 0.1 have a column less.

    They kept `waited` in the column of the slack where prices were in units of value.

    >>> old = np.arange(11.0)  # one resource: counters, position, slack, energy, spent, held, predicted
    >>> read_books(old, 1, value_prices=True)[0, [6, -1]], read_books(old, 1, value_prices=False)[0, [6, -1]]
    (array([0., 6.]), array([6., 0.]))
    """
    where, width = columns(resources), width_of(resources, has_floor=has_floor)
    found = as_floats("numbers", numbers)
    if found.ndim not in (1, 2) or found.shape[-1] not in (width - (not has_floor), width):
        wanted = f"books of {width} columns for {resources} resources"
        raise ValueError(f"numbers must be {wanted}, got shape {found.shape}")
    books = found.reshape(-1, found.shape[-1])
    if books.shape[1] == width:
        return books
    read = np.zeros((len(books), width))
    read[:, :-1] = books
    if value_prices:
        read[:, -1:], read[:, where.slack] = books[:, where.slack], 0.0
    return frozen(read)


class Quote(NamedTuple):
    """What a state asks of its next decision.

    >>> from cbwk_core import SquareCBwK
    >>> policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=10, budget=5)
    >>> policy.quote(policy.init()).rho
    array([[0.5]])
    """

    prices: Array  # (lanes, d), λ per max cost
    rho: Array  # (lanes, d), max costs per round
    gamma: Array  # (lanes, 1)
    noise: Array  # (lanes, 1 or arms), uᵀΣ̂u: residual variance of the worth of an outcome at these prices
    blocking: Array | None = (
        None  # (lanes, d), the share of its hold that a decision counts as at least; see rules/pace.py
    )

    def resting(self, idle: list[bool]) -> Quote:
        """The quote with a pace of 0 where no arm can be paid: c - ρ_t is 0, and the prices stay."""
        return self._replace(rho=np.where(np.array(idle)[:, None], 0.0, self.rho)) if any(idle) else self
