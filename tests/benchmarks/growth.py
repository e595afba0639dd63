"""How time and bytes grow with the dimension m and the number of arms K."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.benchmarks import workloads
from tests.benchmarks.clock import Contender, Pace, Timing, measure
from tests.benchmarks.workloads import Size

DIMENSIONS = (10, 50, 100, 200)
ARMS = (10, 100, 1000)
# A per_arm state has two m×m matrices per arm; larger problems need another model.
PER_ARM_CELLS_MAX = 2_000_000
WARM_ROUNDS = 30
# The limit of the numbers in all different requests together.
ROUNDS_MAX = 64
POOL_NUMBERS_MAX = 2_000_000


@dataclass(frozen=True)
class Cell:
    """The timings at one size."""

    size: Size
    decide: Timing
    learn: Timing
    state_bytes: int


@dataclass(frozen=True)
class Slope:
    """The exponent of growth: over all sizes, and over the two largest."""

    what: str
    overall: float
    last: float


def grid(dimensions: tuple[int, ...] = DIMENSIONS, arms: tuple[int, ...] = ARMS) -> list[Size]:
    """Return every size for the shared model, and the small sizes for the per_arm model."""
    shared = [Size("shared", k, m) for k in arms for m in dimensions]
    per_arm = [Size("per_arm", k, m) for k in arms for m in dimensions if k * m * m <= PER_ARM_CELLS_MAX]
    return shared + per_arm


def measure_growth(sizes: list[Size], pace: Pace, on_slice: Callable[[], object]) -> list[Cell]:
    """Time decide and learn of one row at every size, alternating over the sizes."""
    contenders: list[Contender] = []
    state_bytes = []
    for size in sizes:
        rng = np.random.default_rng(0)
        policy = size.policy()
        count = max(2, min(ROUNDS_MAX, POOL_NUMBERS_MAX // (size.arms * size.dimension)))
        rounds = workloads.make_rounds(size, count, rng)
        state = workloads.warm_state(policy, rounds, WARM_ROUNDS)
        state_bytes.append(len(policy.encode(state)))
        contenders.append(workloads.decide(policy, state, rounds, name=f"decide {size}"))
        contenders.append(workloads.learn(policy, state, rounds, name=f"learn {size}"))
    timings = measure(contenders, pace, on_slice)
    return [
        Cell(size, timings[f"decide {size}"], timings[f"learn {size}"], size_bytes)
        for size, size_bytes in zip(sizes, state_bytes, strict=True)
    ]


def slopes(cells: list[Cell]) -> list[Slope]:
    """Return the exponents of learn and decide in m and in K."""
    found = []
    for model in dict.fromkeys(cell.size.model for cell in cells):
        own = [cell for cell in cells if cell.size.model == model]
        for k in dict.fromkeys(cell.size.arms for cell in own):
            line = [cell for cell in own if cell.size.arms == k]
            found += _slopes_of_line(f"in m, K = {k}, {model}", [cell.size.dimension for cell in line], line)
        for m in dict.fromkeys(cell.size.dimension for cell in own):
            line = [cell for cell in own if cell.size.dimension == m]
            found += _slopes_of_line(f"in K, m = {m}, {model}", [cell.size.arms for cell in line], line)
    return found


def _slopes_of_line(what: str, sizes: list[int], line: list[Cell]) -> list[Slope]:
    if len(sizes) < 2:
        return []
    return [
        Slope(f"decide {what}", *_powers(sizes, [cell.decide.median for cell in line])),
        Slope(f"learn {what}", *_powers(sizes, [cell.learn.median for cell in line])),
    ]


def _powers(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """Return the slope of log seconds over log size, and the slope between the two largest sizes.

    >>> [round(power, 6) for power in _powers([10, 100, 1000], [1.0, 1.0, 100.0])]
    [1.0, 2.0]
    """
    x, y = np.log(sizes), np.log(seconds)
    return float(np.polyfit(x, y, 1)[0]), float((y[-1] - y[-2]) / (x[-1] - x[-2]))
