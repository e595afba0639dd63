"""The problem a policy is made for, and what passes between a policy and its caller.

Names follow the paper where it has them: T `horizon`, B `budget`, d `resources`, K `arms` (here without the null arm,
which every policy has in addition). Costs and budgets come in the caller's units; inside, a cost is measured in
*max costs* of its resource, so budget j is B'_j = budget_j / max_cost_j and rho_j = B'_j / T (paper: equal budgets
"without loss of generality"; DESIGN.md, "Units").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, broadcast, frozen

# The null arm's index: the last column of `Choice.probabilities`, whatever the number of arms, now or later.
NULL_ARM = -1

# Why a decision is what it is, in order of precedence.
ENDED, ALL_EXCLUDED, BUDGET_EXHAUSTED, POLICY = "ended", "all_excluded", "budget_exhausted", "policy"


class Ticket(NamedTuple):
    """What must be kept with n decisions until they are settled or cancelled."""

    arm: Integers  # (n,), NULL_ARM for null
    features: Array  # (n, dimension) as the caller gave them for the chosen arm; zeros for null
    numbers: Array  # (n, 3 + 3d), see the properties: one array because each costs as much as its contents
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
        round: Integers,
        hold: Array,
        context: Array | None = None,
    ) -> Ticket:
        """A ticket from its parts."""
        rows, d = costs.shape
        numbers = np.empty((rows, 3 + 3 * d))
        numbers[:, 0], numbers[:, 1], numbers[:, 2] = reward, value, round
        numbers[:, 3 : 3 + d], numbers[:, 3 + d : 3 + 2 * d], numbers[:, 3 + 2 * d :] = costs, rho, hold
        return cls(arm, features, frozen(numbers), context)

    @property
    def resources(self) -> int:
        """d."""
        return int(self.numbers.shape[1]) // 3 - 1

    @property
    def reward(self) -> Array:
        """Predicted, (n,)."""
        return self.numbers[:, 0]

    @property
    def value(self) -> Array:
        """What the decision is predicted to earn, at least 0 and 0 for null, (n,)."""
        return self.numbers[:, 1]

    @property
    def round(self) -> Integers:
        """The round the decision takes, (n,)."""
        return self.numbers[:, 2].astype(np.int64)

    @property
    def costs(self) -> Array:
        """Predicted, in max costs, (n, d)."""
        return self.numbers[:, 3 : 3 + self.resources]

    @property
    def rho(self) -> Array:
        """The pace at the decision, in max costs per round, (n, d)."""
        return self.numbers[:, 3 + self.resources : 3 + 2 * self.resources]

    @property
    def hold(self) -> Array:
        """What the decision may cost at most, in the caller's units; 0 for null, (n, d)."""
        return self.numbers[:, 3 + 2 * self.resources :]


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


def taken(ticket: Ticket, rows: slice) -> Ticket:
    """Some rows of a ticket."""
    if rows.start == 0 and rows.stop == ticket.arm.shape[0]:
        return ticket
    context = None if ticket.context is None else ticket.context[rows]
    return Ticket(ticket.arm[rows], ticket.features[rows], ticket.numbers[rows], context)


class Thought(NamedTuple):
    """What a choice was drawn from, for whoever keeps or explains it: nothing has to be computed twice."""

    predictions: Array  # (n, arms, 1 + d): reward, then costs in max costs
    prices: Array  # (lanes, d), per max cost
    gamma: Array  # (lanes, 1)


class Choice(NamedTuple):
    """The answer to n requests."""

    arm: Integers  # (n,), NULL_ARM for null
    probability: Array  # (n,), exact, of the arm given
    probabilities: Array  # (n, arms + 1), null last
    reason: tuple[str, ...]  # (n,)
    kept: Ticket | Callable[[], Ticket]  # the ticket, or how to write it
    thought: Thought | None = None  # what it was drawn from, if the policy says

    @property
    def ticket(self) -> Ticket:
        """What must be kept until the outcomes are known; who learns at once never asks for it."""
        return self.kept if isinstance(self.kept, Ticket) else self.kept()


@dataclass(frozen=True)
class Problem:
    """Sizes, budgets and max costs, checked.

    >>> problem = Problem.of(arms=2, dimension=3, resources=2, horizon=100, budget=[50, 20], max_cost=[1.0, 0.5])
    >>> problem.rho
    array([0.5, 0.4])
    """

    arms: int
    dimension: int
    resources: int
    horizon: int
    budget: tuple[float, ...]  # per resource, in the caller's units
    max_cost: tuple[tuple[float, ...], ...]  # per arm and resource, in the caller's units: the hold of a decision

    @classmethod
    def of(
        cls, *, arms: int, dimension: int, resources: int, horizon: int, budget: ArrayLike, max_cost: ArrayLike = 1.0
    ) -> Problem:
        """Broadcast and check: `budget` a number or one per resource, `max_cost` also one per arm and resource."""
        least = {"arms": 0, "dimension": 1, "resources": 1, "horizon": 1}
        sizes = {"arms": arms, "dimension": dimension, "resources": resources, "horizon": horizon}
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < least[name]:
                raise ValueError(f"{name} must be a whole number of at least {least[name]}, got {size!r}")
        granted = broadcast("budget", budget, (resources,))
        hold = broadcast("max_cost", max_cost, (max(arms, 1), resources))
        if (granted <= 0).any():
            raise ValueError(f"budget must be positive, got {granted.min()}")
        if (hold < 0).any() or (hold.max(axis=0) <= 0).any():
            raise ValueError(f"max_cost must not be negative, each resource needs one above 0, got {hold.tolist()}")
        return cls(
            int(arms),
            int(dimension),
            int(resources),
            int(horizon),
            tuple(granted.tolist()),
            tuple(tuple(row) for row in hold.tolist()),
        )

    @cached_property
    def hold(self) -> Array:
        """What a decision for each arm may cost at most, (arms, resources), in the caller's units."""
        return frozen(np.array(self.max_cost, dtype=np.float64))

    @cached_property
    def unit(self) -> Array:
        """One max cost of each resource, (resources,): the largest over the arms."""
        return frozen(self.hold.max(axis=0))

    @cached_property
    def budgets(self) -> Array:
        """B', (resources,): budgets in max costs."""
        return frozen(np.array(self.budget) / self.unit)

    @cached_property
    def rho(self) -> Array:
        """B' / T, (resources,): the even pace, in max costs per round."""
        return frozen(self.budgets / self.horizon)

    @cached_property
    def scale(self) -> Array:
        """B'_min / B'_j, (resources,): what makes all budgets equal to the least one."""
        return frozen(self.budgets.min() / self.budgets)
