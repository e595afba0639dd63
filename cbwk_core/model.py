"""The model of a policy: the oracle, and how far its predictions were off.

A policy can take the model of another policy of the same shape. Budgets, horizon, prices, rounds and the speed of
forgetting are not part of the shape. The bytes name the units that the model counts in, and are converted to those of
the policy that takes it (`model_units.py`). The caller must know what the coordinates of the features mean.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from cbwk_core import snapshot
from cbwk_core.arrays import Array, Integers
from cbwk_core.configuration import Configuration
from cbwk_core.model_units import Units, in_units
from cbwk_core.oracles.product import without_trial
from cbwk_core.rules.noise import first_residuals
from cbwk_core.snapshot import ForeignSnapshotError, MismatchError
from cbwk_core.state import State

# The books count in floats, which are exact below this number.
LEARNT_MAX = 2**53
_ROOT = "model"


class Model(NamedTuple):
    """Everything that the policy has learnt from outcomes."""

    oracle: Any  # the oracle's own state
    residuals: Array  # (lanes, 1 + d, 1 + d), as in `State`
    learnt: Integers  # (lanes,), outcomes behind both


class ForeignModelError(ForeignSnapshotError):
    """The model is of another shape; `differing` names the properties that differ."""

    def __init__(self, differing: tuple[str, ...]) -> None:
        super().__init__(f"the model is of another shape, it differs in {', '.join(differing)}")
        self.differing = differing


def model_of(state: State) -> Model:
    """The model in a state."""
    return Model(state.oracle, state.residuals, state.learnt)


def with_model(state: State, model: Model) -> State:
    """The state with another model; rounds, prices and accounts stay."""
    taught = state.booked(learnt=model.learnt - state.learnt)
    return taught._replace(oracle=model.oracle, residuals=model.residuals)


def shape_of(policy: Configuration) -> dict[str, Any]:
    """What two policies must share for one to go on from the other's model."""
    variant = policy.variant
    return {
        "model": policy.model,
        "dimension": policy.dimension,
        "resources": policy.resources,
        "arms": policy.arms if policy.model == "per_arm" else None,
        "oracle": policy.oracle if isinstance(policy.oracle, str) else repr(policy.oracle),
        "link": policy.link,
        "preset.constant": variant.constant,
        "preset.projected": variant.projected,
        "preset.ridge": variant.ridge,
        "preset.scaled_ridge": variant.scaled_ridge,
    }


def encode(policy: Configuration, state: State) -> bytes:
    """The model of a state as versioned, checksummed bytes, without candidates of alarms that are on trial."""
    model = model_of(state)
    model = model._replace(oracle=without_trial(model.oracle))
    named = shape_of(policy) | Units.of(policy)._asdict()
    return snapshot.encode(model, fingerprint=json.dumps({_ROOT: named}, sort_keys=True))


def units_of(data: bytes) -> Units | None:
    """The units that the model in the bytes counts in; None if they name none, as those of version 0.1."""
    return Units.named_in(_named(snapshot.fingerprint_of(data)))


def decode(policy: Configuration, data: bytes, *, is_own: bool = False) -> Model:
    """The model in the bytes, of the policy's shape, in its units, with finite numbers; else a SnapshotError.

    is_own: whether bytes that name no units, as those of version 0.1, are in those of this policy.
    """
    found = snapshot.fingerprint_of(data)
    named = _named(found)
    _check_shape(named, shape_of(policy))
    units = Units.named_in(named)
    if units is None and not is_own:
        raise MismatchError("the model names no units, as those of version 0.1: encode it with this version")
    residuals, learnt = first_residuals(1, 1 + policy.resources), np.zeros(1, dtype=np.int64)
    blank = Model(blank_oracle(policy, data), residuals, learnt)
    model = snapshot.decode(data, blank, fingerprint=found)
    _check(model, blank, _ROOT)
    if (model.learnt >= LEARNT_MAX).any():
        raise MismatchError(f"{_ROOT}.learnt must be below {LEARNT_MAX}")
    if units is None or units == Units.of(policy):
        return model
    with np.errstate(over="ignore", invalid="ignore"):  # forged units may leave no finite numbers: refused below
        oracle, residuals = in_units(policy, model.oracle, model.residuals, units)
    model = model._replace(oracle=oracle, residuals=residuals)
    _check(model, blank, _ROOT)
    return model


def blank_oracle(policy: Configuration, data: bytes) -> Any:
    """The oracle's state before any data, split if the one in the bytes of a state or a model is."""
    if policy.halves is not None and snapshot.has(data, "oracle.parts"):
        return policy.halves.init()
    return policy.regressor.init()


def _named(fingerprint: str) -> dict[str, Any]:
    """What the fingerprint of a model names: its shape and its units."""
    try:
        found = json.loads(fingerprint)
    except (ValueError, RecursionError):
        found = None
    match found:
        case {"model": dict(named)} if len(found) == 1:
            return named
        case _:
            raise ForeignSnapshotError("the bytes are a snapshot, but not of a model")


def _check_shape(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    differing = tuple(name for name in wanted if name not in found or found[name] != wanted[name])
    if differing:
        raise ForeignModelError(differing)


def _check(found: Any, blank: Any, path: str) -> None:
    """Refuse what no policy of this shape could have written: its own bytes never fail, so this is for forged ones."""
    if isinstance(blank, np.ndarray):
        _check_array(found, blank, path)
    elif isinstance(blank, tuple):
        if len(found) != len(blank):
            raise MismatchError(f"{path} must have {len(blank)} elements, got {len(found)}")
        names = getattr(blank, "_fields", range(len(blank)))
        for name, one, other in zip(names, found, blank, strict=True):
            _check(one, other, f"{path}.{name}")
        if hasattr(found, "fault") and (fault := found.fault()) is not None:
            raise MismatchError(f"{path}{fault}")


def _check_array(found: Any, blank: Any, path: str) -> None:
    grows = blank.shape[:1] == (0,)
    if found.shape[grows:] != blank.shape[grows:]:
        raise MismatchError(f"{path} must have shape {blank.shape}, got {found.shape}")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise MismatchError(f"{path} must be finite")
    if found.dtype.kind == "i" and (found < 0).any():
        raise MismatchError(f"{path} must not be negative")
