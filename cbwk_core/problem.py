"""The problem a policy is made for: sizes, budgets and max costs.

Names follow the paper where it has them: T `horizon`, B `budget`, d `resources`, K `arms` (here without the null arm,
which every policy has in addition). Costs and budgets come in the caller's units. Inside, a cost is measured in *max
costs* of its resource, so budget j is B'_j = budget_j / max_cost_j and rho_j = B'_j / T (the paper assumes equal
budgets "without loss of generality"; DESIGN.md, "Units").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, broadcast, frozen


class ProblemRows(NamedTuple):
    """The numbers of one problem, or of several problems of one shape, one row each, for arithmetic over rows."""

    horizon: Array  # (rows,)
    budgets: Array  # (rows, d), in max costs
    unit: Array  # (rows, d), one max cost in the caller's units
    dearest: Array  # (rows, d), the largest hold of an arm in the caller's units
    rho: Array  # (rows, d), the even pace in max costs per round
    hold: Array  # (rows, arms, d), in the caller's units
    ranges: Array  # (rows, arms, 1 + d), of the outcomes of each arm: 1, then its max costs in max costs

    @classmethod
    def stacked(cls, problems: Sequence[ProblemRows]) -> ProblemRows:
        """The rows of all problems, in order."""
        return cls(*(np.concatenate(column) for column in zip(*problems, strict=True)))


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
    units: tuple[float, ...] | None = None  # of each resource, in the caller's units; None: the largest max cost
    arm_units: tuple[tuple[float, ...], ...] | None = None  # as max_cost; None: max_cost
    floor_arm: int | None = None  # the arm that every round must be able to pay; None: null may be played at any time

    @classmethod
    def of(
        cls,
        *,
        arms: int,
        dimension: int,
        resources: int,
        horizon: int,
        budget: ArrayLike,
        max_cost: ArrayLike = 1.0,
        unit: ArrayLike | None = None,
        arm_unit: ArrayLike | None = None,
        floor_arm: int | None = None,
    ) -> Problem:
        """Broadcast and check: `budget` and `unit` one number or one per resource, the others also per arm."""
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
        units = None if unit is None else broadcast("unit", unit, (resources,))
        if units is not None and (units <= 0).any():
            raise ValueError(f"unit must be positive, got {units.min()}")
        arm_units = None if arm_unit is None else broadcast("arm_unit", arm_unit, hold.shape)
        if arm_units is not None and (arm_units < 0).any():
            raise ValueError(f"arm_unit must not be negative, got {arm_units.min()}")
        if floor_arm is not None and (isinstance(floor_arm, bool) or floor_arm not in range(arms)):
            raise ValueError(f"floor_arm must be one of the {arms} arms, got {floor_arm!r}")
        return cls(
            int(arms),
            int(dimension),
            int(resources),
            int(horizon),
            tuple(granted.tolist()),
            tuple(tuple(row) for row in hold.tolist()),
            None if units is None else tuple(units.tolist()),
            None if arm_units is None else tuple(tuple(row) for row in arm_units.tolist()),
            None if floor_arm is None else int(floor_arm),
        )

    @cached_property
    def hold(self) -> Array:
        """What a decision for each arm may cost at most, (arms, resources), in the caller's units."""
        return frozen(np.array(self.max_cost, dtype=np.float64))

    @cached_property
    def unit(self) -> Array:
        """One max cost of each resource, (resources,): as declared, or the largest over the arms."""
        return self.dearest if self.units is None else frozen(np.array(self.units))

    @cached_property
    def dearest(self) -> Array:
        """The largest hold of an arm, (resources,), in the caller's units."""
        return frozen(self.hold.max(axis=0))

    @cached_property
    def arm_unit(self) -> Array:
        """What the noise of each arm's costs is counted in, (arms, resources): as declared, or its max costs."""
        return self.hold if self.arm_units is None else frozen(np.array(self.arm_units))

    @cached_property
    def ranges(self) -> Array:
        """The range of an arm's outcomes, (arms, 1 + d): 1, then its own unit of each cost in units.

        An arm that was free has no unit of its own; its residuals were counted in units, and are once it costs.
        """
        own = self.arm_unit / self.unit
        return frozen(np.column_stack([np.ones(len(self.hold)), np.where((own == 0.0) & (self.hold > 0.0), 1.0, own)]))

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
        """B'_min / B'_j, (resources,): the factors that make all budgets equal to the smallest one."""
        return frozen(self.budgets.min() / self.budgets)

    @cached_property
    def rows(self) -> ProblemRows:
        """The numbers of this problem as one row."""
        horizon = frozen(np.array([float(self.horizon)]))
        amounts = (self.budgets, self.unit, self.dearest, self.rho, self.hold, self.ranges)
        return ProblemRows(horizon, *(each[None] for each in amounts))
