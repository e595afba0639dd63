"""What passes between a policy and its caller: the answer to requests, and the ticket to keep with each decision.

This module alone knows the packed layouts: `Ticket.numbers`, a row per decision, and `Ticket.stored`, the part of it
that a log keeps beside the arm, the round and the hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.arrays import Array, Integers, Mask, freeze, frozen

# The index of the null arm: the last column of `Choice.probabilities`, whatever the number of arms, now or later.
NULL_ARM = -1

# Why a decision is what it is, in order of precedence.
ENDED, ALL_EXCLUDED, BUDGET_EXHAUSTED, POLICY = "ended", "all_excluded", "budget_exhausted", "policy"

# The columns of a ticket: predicted reward and value, then predicted costs and pace, d each; then round and hold. All
# before the round is what `Ticket.stored` keeps.
_REWARD, _VALUE, _COSTS = 0, 1, 2


class Ticket(NamedTuple):
    """What must be kept with n decisions until they are settled or cancelled.

    >>> ticket = Ticket.of(
    ...     arm=np.array([0, 1]), features=np.eye(2), reward=np.array([0.5, 0.2]), value=np.array([0.5, 0.2]),
    ...     costs=np.array([[0.1], [0.3]]), rho=np.array([[0.25]]), round=np.array([7, 8]), hold=np.ones((2, 1)),
    ... )
    >>> ticket.rows(slice(1, 2)).costs, ticket.resources
    (array([[0.3]]), 1)
    """

    arm: Integers  # (n,), NULL_ARM for null
    features: Array  # (n, dimension) as the caller gave them for the chosen arm; zeros for null
    numbers: Array  # (n, 3 + 3d), see the properties: one array because each array costs as much as its contents
    context: Array | None = None  # (n, candidates, dimension) in the rounds in which stage one collects contexts

    @classmethod
    def of(
        cls,
        *,
        arm: Integers,
        features: Array,
        reward: Array,
        costs: Array,
        rho: Array,
        value: Array,
        round: Array | Integers,
        hold: Array,
        context: Array | None = None,
    ) -> Ticket:
        """A ticket from its fields."""
        rows, d = costs.shape
        numbers = np.empty((rows, 3 + 3 * d))
        numbers[:, _REWARD], numbers[:, _VALUE], numbers[:, -1 - d] = reward, value, round
        numbers[:, _COSTS : _COSTS + d], numbers[:, _COSTS + d : -1 - d], numbers[:, -d:] = costs, rho, hold
        return cls(arm, frozen(features), frozen(numbers), context)

    @classmethod
    def of_one(
        cls,
        arm: Integers,
        features: Array,
        reward: float,
        costs: list[float],
        rho: list[float],
        round: float,
        hold: list[float],
    ) -> Ticket:
        """`Ticket.of` of one decision in plain floats; the value is the reward, at least 0."""
        value = reward if reward > 0.0 else 0.0
        numbers = np.array([[reward, value, *costs, *rho, round, *hold]])
        freeze(numbers)
        return cls(arm, features, numbers)

    @classmethod
    def from_store(
        cls, arm: ArrayLike, features: Array, stored: NDArray[np.float64], round: ArrayLike, hold: ArrayLike
    ) -> Ticket:
        """The ticket of stored decisions: `stored` as the property gives it, the rest from columns of the caller's."""
        d = stored.shape[1] // 2 - 1
        numbers = np.empty((len(stored), 3 + 3 * d))
        numbers[:, : -1 - d], numbers[:, -1 - d], numbers[:, -d:] = stored, round, hold
        return cls(np.asarray(arm, dtype=np.int64), features, numbers)

    @property
    def stored(self) -> Array:
        """(n, 2 + 2d): predicted reward, value, predicted costs, pace; `predicted_in` and `pace_in` read one row."""
        return self.numbers[:, : -(self.numbers.shape[1] // 3)]  # without round and hold, 1 + d of 3 + 3d columns

    @property
    def resources(self) -> int:
        """d."""
        return int(self.numbers.shape[1]) // 3 - 1

    @property
    def reward(self) -> Array:
        """Predicted, (n,)."""
        return self.numbers[:, _REWARD]

    @property
    def value(self) -> Array:
        """What the decision is predicted to earn, at least 0 and 0 for null, (n,)."""
        return self.numbers[:, _VALUE]

    @property
    def round(self) -> Integers:
        """The round the decision takes, (n,)."""
        return self.numbers[:, -(self.numbers.shape[1] // 3)].astype(np.int64)

    @property
    def costs(self) -> Array:
        """Predicted, in max costs, (n, d)."""
        return self.numbers[:, _COSTS : _COSTS + self.resources]

    @property
    def rho(self) -> Array:
        """The pace at the decision, in max costs per round, (n, d)."""
        return self.numbers[:, _COSTS + self.resources : -1 - self.resources]

    @property
    def hold(self) -> Array:
        """What the decision may cost at most, in the caller's units; 0 for null, (n, d)."""
        return self.numbers[:, -self.resources :]

    def rows(self, rows: slice | Integers | Mask) -> Ticket:
        """Some of the decisions, by a slice, by their indices or by a mask."""
        context = None if self.context is None else self.context[rows]
        return Ticket(self.arm[rows], self.features[rows], self.numbers[rows], context)


def predicted_in(stored: Array) -> Array:
    """Reward and costs, in max costs, as predicted for the arm, (1 + d,), from a row of `Ticket.stored`."""
    return np.concatenate([stored[:1], stored[2 : 1 + len(stored) // 2]])


def pace_in(stored: Array) -> Array:
    """The pace in max costs per round, (d,), from a row of `Ticket.stored`."""
    return stored[1 + len(stored) // 2 :]


def checked_ticket(ticket: Ticket, lanes: int, resources: int, dimension: int) -> int:
    """How many rows the ticket has, if it fits a policy of these sizes and a state with that many lanes."""
    if not isinstance(ticket, Ticket):
        raise ValueError(f"a ticket must be the `ticket` of a choice, got {type(ticket).__name__}")
    rows = int(ticket.arm.shape[0])
    if ticket.numbers.shape != (rows, 3 + 3 * resources):
        raise ValueError(f"the ticket must be one for {resources} resources, got one for {ticket.resources}")
    if ticket.features.shape != (rows, dimension):
        raise ValueError(f"the ticket must have features of shape {(rows, dimension)}, got {ticket.features.shape}")
    if rows % lanes:
        raise ValueError(f"tickets must be a multiple of the state's {lanes} lanes, got {rows}")
    return rows


class TicketRow(NamedTuple):
    """The only decision of a ticket, in plain floats.

    >>> ticket = Ticket.of_one(np.array([0]), np.ones((1, 2)), 0.5, [0.1], rho=[0.25], round=7.0, hold=[1.0])
    >>> only_row(ticket, resources=1, dimension=2)
    TicketRow(arm=0, reward=0.5, value=0.5, costs=[0.1], rho=[0.25], round=7.0, hold=[1.0])
    """

    arm: int
    reward: float
    value: float
    costs: list[float]
    rho: list[float]
    round: float
    hold: list[float]


def only_row(ticket: Any, resources: int, dimension: int) -> TicketRow | None:
    """The decision of a ticket that has one and fits a policy of these sizes; None for anything else."""
    if type(ticket) is not Ticket or ticket.numbers.shape != (1, 3 + 3 * resources):
        return None
    if ticket.arm.shape != (1,) or ticket.features.shape != (1, dimension):
        return None
    row, d = ticket.numbers.tolist()[0], resources
    return TicketRow(ticket.arm.item(), row[0], row[1], row[2 : 2 + d], row[2 + d : -1 - d], row[-1 - d], row[-d:])


class Thought(NamedTuple):
    """What a choice was drawn from, for callers who store or explain it: nothing has to be computed twice.

    >>> from cbwk_core import SquareCBwK
    >>> policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=10, budget=5, model="per_arm")
    >>> policy.decide(policy.init(), [[1.0]], [0.5]).thought.predictions.shape
    (1, 2, 2)
    """

    predictions: Array  # (n, arms, 1 + d): reward, then costs in max costs
    prices: Array  # (lanes, d), per max cost
    gamma: Array  # (lanes, 1)


class Choice(NamedTuple):
    """The answer to n requests.

    >>> from cbwk_core import SquareCBwK
    >>> policy = SquareCBwK(arms=1, dimension=1, resources=1, horizon=10, budget=5, model="per_arm")
    >>> choice = policy.decide(policy.init(), [[1.0]], [0.5])
    >>> choice.arm, choice.reason, choice.probability == choice.probabilities[:, choice.arm[0]]
    (array([0]), ('policy',), array([ True]))
    """

    arm: Integers  # (n,), NULL_ARM for null
    probability: Array  # (n,), exact, of the arm given
    probabilities: Array  # (n, arms + 1), null last
    reason: tuple[str, ...]  # (n,)
    ticket_source: Ticket | Callable[[], Ticket]  # the ticket, or the function that makes it
    thought: Thought | None = None  # what it was drawn from, if the policy reports it

    @property
    def ticket(self) -> Ticket:
        """What must be kept until the outcomes are known; made on demand, because `learn` does not need it."""
        return self.ticket_source if isinstance(self.ticket_source, Ticket) else self.ticket_source()
