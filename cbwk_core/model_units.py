"""The units that a model counts in, and a model in the units of another policy.

Predicted costs are in the policy's units of cost, and so is their noise (`State.residuals`). With a model per arm the
noise is in the unit of each arm, from rules 4 on. A policy that keeps its units when max costs change, or that plays
older rules, counts otherwise than a new one with the same max costs.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from cbwk_core.arrays import Array, frozen
from cbwk_core.configuration import Configuration
from cbwk_core.oracles.kernel import Kernel
from cbwk_core.oracles.newton import Newton
from cbwk_core.oracles.product import Product, ProductState
from cbwk_core.presets import check_rules
from cbwk_core.rules.noise import first_residuals
from cbwk_core.snapshot import ForeignSnapshotError, MismatchError

# Quotients of units that differ by less than this are equal: they are rounded.
_ROUNDING = 1e-12


class ForeignUnitsError(ForeignSnapshotError):
    """The model counts in other units, and cannot be converted."""

    def __init__(self, field: str, found: list[float], wanted: list[float]) -> None:
        super().__init__(f"{field} of the model is {found}, which cannot be converted to {wanted}")
        self.field, self.found, self.wanted = field, found, wanted


class Units(NamedTuple):
    """What a model counts in, in the caller's units, and the rules of its policy.

    >>> Units(rules=3, unit=[2.0], arm_unit=None).noise, Units(rules=5, unit=[2.0], arm_unit=[[1.0], [0.0]]).noise
    (array([[2.]]), array([[1.],
           [2.]]))
    """

    rules: int
    unit: list[float]  # (d,), of predicted costs
    arm_unit: list[list[float]] | None  # (arms, d), of the noise of each arm's costs; None: `unit` for all

    @classmethod
    def of(cls, policy: Configuration) -> Units:
        """The units of the policy's own models."""
        own = policy.problem.arm_unit.tolist() if policy.has_arm_units else None
        return cls(policy.rules, policy.problem.unit.tolist(), own)

    @classmethod
    def named_in(cls, named: dict[str, Any]) -> Units | None:
        """The units that are named, if they are whole; None if none are."""
        if named.keys().isdisjoint(cls._fields):
            return None
        found: list[Any] = [named.get(name) for name in cls._fields]
        rules, unit, arm_unit = found
        try:
            check_rules(rules)
        except ValueError as error:
            raise MismatchError(f"model.{error}") from None
        resources, arms = named.get("resources"), named.get("arms")
        if not _is_row(unit, resources) or not all(unit):
            raise MismatchError("model.unit must have a positive number for each resource")
        if arm_unit is not None and not (
            isinstance(arm_unit, list) and len(arm_unit) == arms and all(_is_row(row, resources) for row in arm_unit)
        ):
            raise MismatchError("model.arm_unit must have a number for each arm and resource")
        return cls(rules, unit, arm_unit)

    @property
    def noise(self) -> Array:
        """The unit of the residuals of each arm's costs, (1 or arms, d); an arm without one has that of all costs."""
        unit, own = np.array([self.unit]), np.array(self.unit if self.arm_unit is None else self.arm_unit, ndmin=2)
        return np.where(own > 0.0, own, unit)


def _is_row(found: Any, length: Any) -> bool:
    """Whether that is a list of that many finite numbers of at least 0."""
    return (
        isinstance(found, list)
        and len(found) == length
        and all(type(each) is float and isfinite(each) and each >= 0.0 for each in found)
    )


def in_units(policy: Configuration, oracle: Any, residuals: Array, found: Units) -> tuple[Any, Array]:
    """The oracle's state and the residuals (1, 1 + d, 1 + d), counted in `found`, in the units of the policy.

    A ForeignUnitsError where that is not exact: an oracle whose predictions or steps have bounds, and residuals of arms
    whose units have changed in different ratios.
    """
    own = Units.of(policy)
    factors = np.array([1.0, *np.divide(found.unit, own.unit)])
    if (factors != 1.0).any():
        scaled = _scaled(policy.regressor_of(oracle), oracle, factors)
        if scaled is None:
            raise ForeignUnitsError("unit", found.unit, own.unit)
        oracle = scaled
    ratios = found.noise / own.noise
    if not np.allclose(ratios, ratios[0], rtol=_ROUNDING, atol=0.0):
        arm = int(np.argmin(np.isclose(ratios, 1.0, rtol=_ROUNDING, atol=0.0).all(axis=1)))  # the first that differs
        pair = (np.broadcast_to(units.noise, ratios.shape)[arm].tolist() for units in (found, own))
        raise ForeignUnitsError(f"arm_unit[{arm}]", *pair)
    if (ratios[0] == 1.0).all():
        return oracle, residuals
    scale, prior = np.array([1.0, *ratios[0]]), first_residuals(1, len(factors))
    return oracle, frozen(prior + (residuals - prior) * np.outer(scale, scale))


def _scaled(oracle: Any, state: Any, factors: Array) -> Any:
    """The state that predicts each target times its factor (targets,), and learns on like that; None if none does."""
    if (factors == 1.0).all():
        return state
    if isinstance(oracle, Product):
        ends = np.cumsum([part.targets for part in oracle.parts])[:-1]
        pairs = zip(oracle.parts, state.parts, np.split(factors, ends), strict=True)
        parts = tuple(_scaled(*each) for each in pairs)
        return None if any(part is None for part in parts) else ProductState(parts)
    newton = oracle.newton if isinstance(oracle, Kernel) else oracle
    if isinstance(newton, Newton) and newton.link == "identity" and newton.radius is None:
        return state.scaled(factors)
    return None
