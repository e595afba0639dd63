"""What a policy has learnt, apart from where its campaign stands: the oracle and how far its predictions were off.

Such a model goes from one policy to another if they have the same shape. Budgets, horizon, prices and rounds are no
part of that, nor is how fast an oracle forgets. What the coordinates of features mean is the caller's to know.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cbwk_core import snapshot
from cbwk_core.arrays import Array, Integers
from cbwk_core.oracles.aggregate import AggregateState
from cbwk_core.oracles.newton import NewtonState
from cbwk_core.snapshot import ForeignSnapshotError, MismatchError

if TYPE_CHECKING:
    from cbwk_core.policy import SquareCBwK
    from cbwk_core.state import State

# Books count in floats, which are exact below this.
LEARNT_MAX = 2**53
_ROOT = "model"


class Model(NamedTuple):
    """Everything that outcomes have taught."""

    oracle: Any  # the oracle's own state
    residuals: Array  # (lanes, 1 + d, 1 + d), as in `State`
    learnt: Integers  # (lanes,), outcomes behind both


class ForeignModelError(ForeignSnapshotError):
    """The model is of another shape; `differing` names in what."""

    def __init__(self, differing: tuple[str, ...]) -> None:
        super().__init__(f"the model is of another shape, it differs in {', '.join(differing)}")
        self.differing = differing


def model_of(state: State) -> Model:
    """What the state has learnt."""
    return Model(state.oracle, state.residuals, state.learnt)


def with_model(state: State, model: Model) -> State:
    """The state with another model; rounds, prices and accounts stay."""
    taught = state.booked(learnt=model.learnt - state.learnt)
    return taught._replace(oracle=model.oracle, residuals=model.residuals)


def shape_of(policy: SquareCBwK) -> dict[str, Any]:
    """What two policies must share for one to go on from the other's model.

    >>> from cbwk_core import SquareCBwK
    >>> rich = SquareCBwK(arms=2, dimension=3, resources=1, horizon=100, budget=50)
    >>> poor = SquareCBwK(arms=5, dimension=3, resources=1, horizon=200, budget=7)
    >>> shape_of(rich) == shape_of(poor)  # a shared model knows features, not arms
    True
    """
    rules = policy.rules
    return {
        "model": policy.model,
        "dimension": policy.dimension,
        "resources": policy.resources,
        "arms": policy.arms if policy.model == "per_arm" else None,
        "oracle": policy.oracle if isinstance(policy.oracle, str) else repr(policy.oracle),
        "link": policy.link,
        "preset.constant": rules.constant,
        "preset.projected": rules.projected,
        "preset.ridge": rules.ridge,
        "preset.scaled_ridge": rules.scaled_ridge,
    }


def encode(policy: SquareCBwK, state: State) -> bytes:
    """The model of a state as versioned, checksummed bytes."""
    return snapshot.encode(model_of(state), fingerprint=json.dumps({_ROOT: shape_of(policy)}, sort_keys=True))


def decode(policy: SquareCBwK, data: bytes) -> Model:
    """The model in the bytes, fit to be used: of the policy's shape, every number finite. Else a SnapshotError."""
    found = snapshot.fingerprint_of(data)
    _check_shape(found, shape_of(policy))
    blank = model_of(policy.init())
    model = snapshot.decode(data, blank, fingerprint=found)
    _check(model, blank, _ROOT)
    if (model.learnt >= LEARNT_MAX).any():
        raise MismatchError(f"{_ROOT}.learnt must be below {LEARNT_MAX}")
    return model


def _check_shape(fingerprint: str, wanted: dict[str, Any]) -> None:
    try:
        found = json.loads(fingerprint)
    except (ValueError, RecursionError):
        found = None
    match found:
        case {"model": dict(shape)} if len(found) == 1:
            differing = tuple(name for name in wanted if name not in shape or shape[name] != wanted[name])
            if differing:
                raise ForeignModelError(differing)
        case _:
            raise ForeignSnapshotError("the bytes are a snapshot, but not of a model")


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
        if isinstance(found, NewtonState):
            _check_newton(found, path)
        if isinstance(found, AggregateState):
            _check_aggregate(found, path)


def _check_array(found: Any, blank: Any, path: str) -> None:
    grows = blank.shape[:1] == (0,)
    if found.shape[grows:] != blank.shape[grows:]:
        raise MismatchError(f"{path} must have shape {blank.shape}, got {found.shape}")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise MismatchError(f"{path} must be finite")
    if found.dtype.kind == "i" and (found < 0).any():
        raise MismatchError(f"{path} must not be negative")


def _check_newton(state: NewtonState, path: str) -> None:
    """A is factored again from time to time, and must let itself be; counts are never negative."""
    if (state.noticed < 0.0).any() or (state.watch[..., 0] < 0.0).any():
        raise MismatchError(f"{path}.noticed and the counts of {path}.watch must not be negative")
    try:
        for gram in state.gram:
            np.linalg.cholesky(gram)
    except np.linalg.LinAlgError as error:
        raise MismatchError(f"{path}.gram must be positive definite") from error


def _check_aggregate(state: AggregateState, path: str) -> None:
    cells = state.keys.shape[0]
    if state.visits.shape[0] != cells or state.totals.shape[0] != cells:
        raise MismatchError(f"{path} must have as many visits and totals as keys")
    if (np.diff(state.keys) <= 0).any() or (state.visits < 1).any():
        raise MismatchError(f"{path} must have increasing keys of cells that were visited")
