"""The configuration of a policy, checked, and what follows from it: problem, preset, oracle, features.

`SquareCBwK` (policy.py) adds the methods. The modules that do its work take a `Configuration`, so that they need not
import the policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arguments import checked_exclude, checked_holds, checked_retired, positive_or_auto
from cbwk_core.arrays import Array, Mask, finite
from cbwk_core.oracles.aggregate import Aggregate
from cbwk_core.oracles.build import build_oracle
from cbwk_core.oracles.halves import forgotten_rewards, halves_of
from cbwk_core.oracles.oracle import Oracle
from cbwk_core.oracles.product import Product, ProductState, forgotten
from cbwk_core.presets import PRESETS, RULES_VERSION, Preset, check_rules
from cbwk_core.problem import Problem
from cbwk_core.rules import dual, gamma
from cbwk_core.ticket import NULL_ARM

MODELS = ("shared", "per_arm")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The fields of `SquareCBwK`, which documents them."""

    arms: int
    dimension: int
    resources: int
    horizon: int
    budget: Any
    max_cost: Any = 1.0
    model: str = "shared"
    preset: str = "practical"
    oracle: Any = "newton"
    link: str = "identity"
    forgetting: float | None = None
    gamma: float | str = "auto"
    z: float | str = "auto"
    two_stage: bool | str = "auto"
    retired: tuple[int, ...] = ()
    stage_one: str = "auto"
    # Not in the repr, so that snapshots of version 0.1 fit.
    unit: Any = field(default=None, repr=False)
    arm_unit: Any = field(default=None, repr=False)
    paced: bool = field(default=False, repr=False)
    must_play: bool = field(default=False, repr=False)
    floor_arm: int | None = field(default=None, repr=False)
    rules: int = field(default=RULES_VERSION, repr=False)

    null_arm = NULL_ARM

    def __post_init__(self) -> None:
        problem = self.problem
        object.__setattr__(self, "budget", problem.budget)
        object.__setattr__(self, "max_cost", problem.max_cost)
        object.__setattr__(self, "unit", problem.units)
        object.__setattr__(self, "arm_unit", problem.arm_units)
        for name in ("arms", "dimension", "resources", "horizon"):
            object.__setattr__(self, name, getattr(problem, name))
        object.__setattr__(self, "retired", checked_retired(self.retired, self.arms))
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {MODELS}, got {self.model!r}")
        if self.model == "per_arm" and self.arms < 1:
            raise ValueError(f"a per_arm model needs at least 1 arm, got {self.arms}")
        if self.preset not in tuple(PRESETS):
            raise ValueError(f"preset must be one of {sorted(PRESETS)}, got {self.preset!r}")
        check_rules(self.rules)
        for name in ("gamma", "z"):
            object.__setattr__(self, name, positive_or_auto(name, getattr(self, name)))
        self._check_floor()
        _ = self.regressor

    def _check_floor(self) -> None:
        if self.must_play is not True:
            if self.must_play is not False or self.floor_arm is not None:
                raise ValueError(f"floor_arm needs must_play=True, got {self.must_play!r} and {self.floor_arm!r}")
            return
        if self.floor_arm is None or self.floor_arm in self.retired:
            raise ValueError(f"must_play needs a floor_arm that is not retired, got {self.floor_arm!r}")
        if not self.variant.value_prices or self.rules < 4:
            raise ValueError(f"must_play needs the practical preset of rules 4, got {self.preset!r} of {self.rules}")
        object.__setattr__(self, "floor_arm", self.problem.floor_arm)

    @cached_property
    def problem(self) -> Problem:
        """Sizes, budgets and max costs, checked."""
        return Problem.of(
            arms=self.arms,
            dimension=self.dimension,
            resources=self.resources,
            horizon=self.horizon,
            budget=self.budget,
            max_cost=self.max_cost,
            unit=self.unit,
            arm_unit=self.arm_unit,
            floor_arm=self.floor_arm,
        )

    @cached_property
    def variant(self) -> Preset:
        """What the preset stands for."""
        return PRESETS[self.preset]

    @cached_property
    def fingerprint(self) -> str:
        """What a snapshot of this configuration is marked with: everything that decides, the rules included."""
        known = repr(self) if self.unit is None else f"{self!r} unit {self.unit}"
        known = known if self.arm_unit is None else f"{known} arm_unit {self.arm_unit}"
        known = f"{known} paced" if self.paced else known
        known = f"{known} floor {self.floor_arm}" if self.must_play else known
        return known if self.rules == 1 else f"{known} rules {self.rules}"

    @property
    def surprise_in_own_root(self) -> bool:
        """Whether the square of a surprising cost counts in the root of its own price step (rules/dual.py)."""
        return self.rules >= 3

    @property
    def prices_rest(self) -> bool:
        """Whether prices stay where they are while no arm can be paid, as after the end of a day's limit."""
        return self.rules >= 5 and self.paced and self.variant.value_prices

    @property
    def energy_kept(self) -> float:
        """What the energy of price steps keeps of itself at each step (rules/dual.py)."""
        return dual.energy_kept(self.rules >= 5 and self.paced)

    @cached_property
    def tries_plausible_arms(self) -> bool:
        """Whether arms are tried by their plausibility (rules/inverse_gap.py).

        Each must have parameters of its own: in a shared model every play teaches about every arm. The leverages of
        "aggregate" are those of cells, not of a regression with that many parameters.
        """
        own = self.model == "per_arm" and not isinstance(self.regressor, Aggregate)
        return self.rules >= 4 and self.variant.value_prices and own

    @property
    def is_optimistic_at_prices(self) -> bool:
        """Whether a decision tries arms by upper bounds at prices that the caller adds (rules/inverse_gap.py)."""
        return self.rules >= 5 and self.tries_plausible_arms

    @cached_property
    def ranges(self) -> Array | None:
        """The range of each arm's outcomes, in which residuals are counted: (arms, 1 + d); None if all are 1.

        Without it the noise of an arm that costs a hundredth of another would be that of the other. In a shared model
        residuals of all arms are counted in one unit.
        """
        differ = (self.problem.arm_unit / self.problem.unit != 1.0).any()
        return self.problem.ranges if self.has_arm_units and differ else None

    @property
    def has_arm_units(self) -> bool:
        """Whether the noise of each arm is counted in the arm's own unit, and not in that of all costs."""
        return self.rules >= 4 and self.variant.value_prices and self.model == "per_arm"

    @cached_property
    def limits_dear_arms(self) -> bool:
        """Whether an arm that is dearer than others is tried only as often as the budget bears (rules/dear_arms.py)."""
        return self.rules >= 4 and self.variant.value_prices

    @cached_property
    def first_oracle(self) -> Any:
        """The oracle's state before the first outcome."""
        return self.regressor.init()

    @cached_property
    def learns_costs_first(self) -> bool:
        """Whether the oracle learns costs when they come, before their reward is known (`oracles/halves.py`)."""
        return self.rules >= 4 and self.variant.value_prices and self.halves is not None

    @cached_property
    def halves(self) -> Product | None:
        """The regressor of states that have learnt costs before their reward; None if the oracle cannot do that."""
        return halves_of(self.regressor)

    def regressor_of(self, state: Any) -> Oracle[Any]:
        """The oracle that this state of it belongs to: the regressor, or its halves."""
        return self.halves if self.halves is not None and isinstance(state, ProductState) else self.regressor

    def forgotten(self, state: Any) -> Array | float:
        """How many of the outcomes learnt the oracle has forgotten, (lanes,) or 0, by its state."""
        return forgotten(state) if isinstance(self.regressor, Product) else forgotten_rewards(state)

    @cached_property
    def regressor(self) -> Oracle[Any]:
        """The oracle that predicts reward and costs."""
        return self.make_oracle(self.arms if self.model == "per_arm" else 1)

    def make_oracle(self, blocks: int) -> Oracle[Any]:
        """The policy's kind of oracle with that many parameter blocks."""
        return build_oracle(
            self.oracle,
            dimension=self.dimension + self.variant.constant,
            targets=1 + self.resources,
            blocks=blocks,
            preset=self.variant,
            link=self.link,
            forgetting=self.forgetting,
            has_trials=self.rules >= 4,
        )

    @property
    def parameters(self) -> int:
        """How many parameters of the oracle predict one target; rules 1 do not count the features of a kernel."""
        oracle = self.regressor
        return oracle.dimension * oracle.blocks if self.rules == 1 else oracle.parameters

    def oracle_regrets(self, rounds: int) -> tuple[float, float]:
        """Reg_sq^r and Reg_sq^c of the policy's oracle over that many rounds, constants 1 where the paper has O(·)."""
        if self.oracle == "gradient":
            # Every block has a regret of √t over its own t rounds; equal shares are the worst case.
            bound = (rounds * (1 if self.rules == 1 else self.regressor.blocks)) ** 0.5
            return bound, self.resources * bound
        if self.oracle == "aggregate":
            bound = self.regressor.error_bound(rounds)
            return bound, self.resources * bound
        return gamma.linear_oracle_regrets(self.parameters, self.resources, rounds)

    def checked_features(self, features: ArrayLike) -> Array:
        """(n, candidates, dimension) for "shared", (n, 1, dimension) for "per_arm"."""
        if self.model == "per_arm":
            return finite("features", features, (None, self.dimension))[:, None, :]
        x = finite("features", features, (None, None, self.dimension))
        if x.shape[1] < 1:
            raise ValueError("features must have at least one candidate, got none")
        return x

    def lifted(self, x: Array) -> Array:
        """Features with the constant one appended where the preset has it."""
        if not self.variant.constant:
            return x
        lifted = np.empty((*x.shape[:-1], self.dimension + 1))
        lifted[..., :-1] = x
        lifted[..., -1] = 1.0
        return lifted

    @cached_property
    def active(self) -> Mask | None:
        """Arms that are not retired, (arms,); None if none is."""
        if not self.retired:
            return None
        active = np.ones(self.arms, dtype=bool)
        active[list(self.retired)] = False
        return active

    def asked(self, exclude: ArrayLike | None, rows: int, candidates: int) -> Mask | None:
        """Candidates that are neither excluded nor retired, (n, candidates); None if that is all of them."""
        active = self.active if candidates == self.arms else None
        if exclude is None:
            return None if active is None else np.broadcast_to(active, (rows, candidates))
        excluded = checked_exclude(exclude, rows, candidates)
        return ~excluded if active is None else ~excluded & active

    def holds(self, holds: ArrayLike | None, rows: int, candidates: int) -> Array:
        """(1 or n, candidates, d) in the caller's units."""
        if holds is not None:
            return checked_holds(holds, rows, candidates, self.problem.dearest)
        if candidates == self.arms:
            return self.problem.hold[None]
        return np.broadcast_to(self.problem.dearest, (1, candidates, self.resources))
