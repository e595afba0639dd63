"""From an oracle's name to an oracle for reward and costs together."""

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

# As `forgetting`: all data keep their weight, whatever happens.
NEVER = 1.0
KINDS = ("aggregate", "gradient", "kernel", "newton")


def build_oracle(
    kind: Any, *, dimension: int, targets: int, blocks: int, preset: Preset, link: str, forgetting: float | None
) -> Oracle[Any]:
    """One oracle for 1 + d targets: the reward with the given link, the costs with the identity or as the preset says.

    `dimension` counts the constant feature where the preset appends one. An Oracle is taken as it is, if it fits.
    """
    if link not in tuple(LINKS):
        raise ValueError(f"link must be one of {sorted(LINKS)}, got {link!r}")
    if not isinstance(kind, str):
        return _fitting(kind, dimension, targets, blocks)
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
        return _linear(kind, dimension, targets, blocks, preset, link, forgetting)
    reward = _linear(kind, dimension, 1, blocks, preset, link, forgetting)
    if kind == "newton" and preset.linked_costs:
        # A cost that is always a whole max cost is never quite predicted, and would be taken for one that has changed.
        cost = replace(cast(Newton, reward), watch=False)
        return Product((reward, *[cost] * (targets - 1)))
    return Product((reward, _linear(kind, dimension, targets - 1, blocks, preset, "identity", forgetting)))


def _linear(
    kind: str, dimension: int, targets: int, blocks: int, preset: Preset, link: str, forgetting: float | None
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
        forgetting=None if forgetting == NEVER else forgetting,
        watch=forgetting is None and preset.watches,
        start=FIRST_SCORE if link == "logistic" and preset.constant else 0.0,
    )


def _fitting(oracle: Any, dimension: int, targets: int, blocks: int) -> Oracle[Any]:
    wanted = {"dimension": dimension, "targets": targets, "blocks": blocks}
    found = {name: getattr(oracle, name, None) for name in wanted}
    if found != wanted:
        raise ValueError(f"the oracle must have {wanted}, got {found}")
    fitting: Oracle[Any] = oracle
    return fitting
