"""Build one oracle for reward and costs from the options of a policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from cbwk_core.oracles.aggregate import Aggregate
from cbwk_core.oracles.gradient import Gradient
from cbwk_core.oracles.kernel import Kernel
from cbwk_core.oracles.links import LINKS
from cbwk_core.oracles.newton import Newton
from cbwk_core.oracles.oracle import Oracle
from cbwk_core.oracles.product import Product
from cbwk_core.presets import FIRST_SCORE, Preset

# The value of `forgetting` with which old data keep their full weight and no change is detected.
FORGETTING_OFF = 1.0
KINDS = ("aggregate", "gradient", "kernel", "newton")


def build_oracle(
    kind: Any,
    *,
    dimension: int,
    targets: int,
    blocks: int,
    preset: Preset,
    link: str,
    forgetting: float | None,
    has_trials: bool = True,
) -> Oracle[Any]:
    """Return one oracle for 1 + d targets: the reward, then the costs.

    The reward has the given link. The costs have the identity, or the same link if the preset links costs. `dimension`
    includes the constant feature if the preset appends one. If `kind` is an
    Oracle, it is checked and returned. has_trials: whether alarms of the Newton oracle go on trial (trial.py).

    >>> from cbwk_core.presets import PRESETS
    >>> options = {"preset": PRESETS["paper"], "link": "logistic", "forgetting": None}
    >>> [part.link for part in build_oracle("newton", dimension=2, targets=3, blocks=1, **options).parts]
    ['logistic', 'identity']
    """
    if link not in tuple(LINKS):
        raise ValueError(f"link must be one of {sorted(LINKS)}, got {link!r}")
    if not isinstance(kind, str):
        return _checked_oracle(kind, dimension, targets, blocks)
    if forgetting is not None and (isinstance(forgetting, bool) or not isinstance(forgetting, int | float)):
        raise ValueError(f"forgetting must be a number or None, got {forgetting!r}")
    if forgetting is not None and kind != "newton":
        raise ValueError(f"forgetting is an option of the newton oracle, got oracle {kind!r}")
    if link != "identity" and kind not in ("newton", "gradient"):
        raise ValueError(f"the {kind} oracle has no link to choose, got {link!r}")
    if kind == "aggregate":
        return Aggregate(dimension=dimension, targets=targets, blocks=blocks, constant=preset.constant)
    if kind == "kernel":
        return Kernel(dimension=dimension, targets=targets, blocks=blocks, constant=preset.constant, ridge=preset.ridge)
    if kind not in ("newton", "gradient"):
        raise ValueError(f"oracle must be one of {KINDS} or an Oracle, got {kind!r}")
    if link == "identity":
        return _linear_oracle(kind, dimension, targets, blocks, preset, link, forgetting, has_trials)
    reward = _linear_oracle(kind, dimension, 1, blocks, preset, link, forgetting, has_trials)
    if kind == "newton" and preset.linked_costs:
        # A logistic model only approaches a cost that always equals the max cost. Its errors keep one sign, which
        # change detection would report as a change.
        cost = replace(cast(Newton, reward), watch=False)
        return Product((reward, *[cost] * (targets - 1)))
    costs = _linear_oracle(kind, dimension, targets - 1, blocks, preset, "identity", forgetting, has_trials)
    return Product((reward, costs))


def _linear_oracle(
    kind: str,
    dimension: int,
    targets: int,
    blocks: int,
    preset: Preset,
    link: str,
    forgetting: float | None,
    has_trials: bool,
) -> Oracle[Any]:
    if kind == "gradient":
        return Gradient(dimension=dimension, targets=targets, blocks=blocks, link=link)
    return Newton(
        dimension=dimension,
        targets=targets,
        blocks=blocks,
        link=link,
        ridge=preset.linear_ridge(dimension),
        radius=1.0 if preset.projected else None,
        local_curvature=not preset.projected,
        forgetting=None if forgetting == FORGETTING_OFF else forgetting,
        watch=forgetting is None and preset.watches,
        has_trials=has_trials,
        start=FIRST_SCORE if link == "logistic" and preset.constant else 0.0,
    )


def _checked_oracle(oracle: Any, dimension: int, targets: int, blocks: int) -> Oracle[Any]:
    expected = {"dimension": dimension, "targets": targets, "blocks": blocks}
    found = {name: getattr(oracle, name, None) for name in expected}
    if found != expected:
        raise ValueError(f"the oracle must have {expected}, got {found}")
    if not getattr(oracle, "parameters", 0) >= 1:
        raise ValueError(f"the oracle must have parameters >= 1, got {getattr(oracle, 'parameters', None)}")
    checked: Oracle[Any] = oracle
    return checked
