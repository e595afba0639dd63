"""How prices move: one rule for the presets of the paper, one for `practical`.

A decision moves the prices twice: at its predicted cost when it is made, and by the difference when its cost is known,
so that open decisions are paced as well.

**Entropic** (paper, "Online Mirror Descent"): normalised exponentiated gradient on the simplex with a slack coordinate.
log w_j += η·s_j·(c_j - ρ_j), the gradient of the slack is 0, w is normalised and λ_j = Z·w_j·s_j. s_j = B'_min / B'_j
brings all budgets to the smallest one. Log-weights are (lanes, d + 1), the slack last.

**In units of value** (`practical`): λ_j = p_j·R̂ / ρ_j with p_j in [0, PRICE_CEILING], starting at 0. By duality
λ*ᵀρ <= OPT, so with R̂, the mean predicted reward of the decisions, in place of OPT the optimal p_j lies in [0, 1]: this
is the theorem's condition on the radius. Steps are relative, x_j = (c_j - ρ_t,j) / ρ_j and
p_j += PRICE_STEP·x_j / √(1 + energy_j), where the energy is the sum of x_j² over all decisions at their predicted cost.
From rules 3 on the square of a surprise x_j also counts in the root of its own step, √(1 + energy_j + x_j²): a rare
cost of a thousand paces then moves the price by at most PRICE_STEP instead of to the ceiling.
Positions p and energies are (lanes, d).

Where a caller limits the pace (`paced`), ρ_t may stay far below ρ: a day's limit matters and not the budget. p and its
energy keep their units, so that prices do not jump with the limit; a step and the ceiling are those of a policy whose
even pace is ρ_t. With the tightness k = ρ / ρ_t that is p/k += PRICE_STEP·k·x / √(1 + k²·energy), up to PRICE_CEILING.
The ceiling stops a price but lowers none: at the end of a day ρ_t may be large for a moment.
Every day has a price of its own, by its traffic. So from rules 5 on the energy keeps ENERGY_KEPT of itself at each
step: it is that of about the last 1/(1 - ENERGY_KEPT) decisions, and steps do not become shorter from day to day.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.presets import ENERGY_KEPT, PRICE_CEILING, PRICE_CORRECTION, PRICE_STEP

# The smallest log-weight; the smallest normal double is 2.2e-308. A price may come close to 0 but never is 0, so it
# can always rise again.
LOG_WEIGHT_MIN = -700.0
# Where it divides: a pace may be 0.
TIGHTNESS_MAX = 1e9


def entropic_rate(resources: int, horizon: int) -> float:
    """η = √(ln(d + 1) / T), the rate of exponentiated gradient over d + 1 coordinates (lem-OCO).

    >>> round(entropic_rate(4, 2000), 4)
    0.0284
    """
    return sqrt(log(resources + 1.0) / horizon)


def entropic_start(lanes: int, resources: int) -> Array:
    """Log-weights of equal weights.

    >>> np.exp(entropic_start(1, 3))
    array([[0.25, 0.25, 0.25, 0.25]])
    """
    return np.full((lanes, resources + 1), -np.log(resources + 1.0))


def entropic_prices(log_weights: Array, radius: Array, scale: Array) -> Array:
    """λ = Z·w·s for radius Z (lanes,) and scale s (lanes, d): (lanes, d).

    >>> entropic_prices(entropic_start(1, 2), radius=np.array([3.0]), scale=np.ones((1, 2)))
    array([[1., 1.]])
    """
    return np.exp(log_weights[:, :-1]) * radius[:, None] * scale


def entropic_step(log_weights: Array, excess: Array, scale: Array, rate: Array) -> Array:
    """Log-weights after a step for the excess c - ρ, or for the difference c - ĉ of a cost that is known now.

    excess and scale are (lanes, d), the rate η is (lanes, 1).

    >>> one, rate = np.ones((1, 1)), np.array([[np.log(3.0)]])
    >>> np.exp(entropic_step(entropic_start(1, 1), one, scale=one, rate=rate)).round(3)
    array([[0.75, 0.25]])
    """
    moved = log_weights.copy()
    moved[:, :-1] += rate * scale * excess
    return _normalised(moved)


def entropic_restored(prices: Array, radius: Array, scale: Array) -> Array:
    """Log-weights whose prices are the given ones, as far as the radius allows: a new radius keeps λ, not the weights.

    >>> ones, radius = np.ones((1, 2)), np.array([5.0])
    >>> entropic_prices(entropic_restored(ones, radius, ones), radius, ones)
    array([[1., 1.]])
    """
    weights = prices / (radius[:, None] * scale)
    total = weights.sum(axis=1, keepdims=True)
    weights = weights * np.minimum(1.0, (1.0 - 1e-9) / np.maximum(total, 1e-300))
    slack = 1.0 - weights.sum(axis=1, keepdims=True)
    return _normalised(np.log(np.maximum(np.concatenate([weights, slack], axis=1), np.exp(LOG_WEIGHT_MIN))))


def _normalised(log_weights: Array) -> Array:
    top = log_weights.max(axis=1, keepdims=True)
    total = top + np.log(np.exp(log_weights - top).sum(axis=1, keepdims=True))
    return np.asarray(np.maximum(log_weights - total, LOG_WEIGHT_MIN))


def value_prices(position: Array, mean_value: Array, rho: Array) -> Array:
    """λ = p·R̂/ρ for R̂ (lanes,) and the even pace ρ (lanes, d): (lanes, d).

    >>> value_prices(np.array([[0.5]]), mean_value=np.array([0.2]), rho=np.array([[0.1]]))
    array([[1.]])
    """
    return np.asarray(position * (mean_value[:, None] / rho))


def value_prices_of_one(position: list[float], mean_value: float, rho: list[float]) -> list[float]:
    """`value_prices` of one lane."""
    return [each * (mean_value / pace) for each, pace in zip(position, rho)]  # noqa: B905


def tightness(rho: Array, even: Array) -> Array:
    """k = ρ / ρ_t, at least 1, for the paces of n decisions (n, lanes, d) and the even pace (lanes, d).

    >>> tightness(np.array([[[0.1]], [[0.5]]]), even=np.array([[0.2]])).ravel()
    array([2., 1.])
    """
    return np.asarray(np.clip(even / np.maximum(rho, even / TIGHTNESS_MAX), 1.0, None))


def tightness_of_one(rho: float, even: float) -> float:
    """`tightness` of one decision and one resource."""
    return 1.0 if rho >= even else even / max(rho, even / TIGHTNESS_MAX)


def energy_kept(fades: bool) -> float:
    """What the energy of price steps keeps of itself at each step.

    >>> energy_kept(False)
    1.0
    """
    return ENERGY_KEPT if fades else 1.0


def value_steps(
    position: Array, energy: Array, excess: Array, tight: Array | None = None, kept: float = 1.0
) -> tuple[Array, Array]:
    """Positions and energies after n decisions in order, at their relative excess (c - ρ_t) / ρ, (n, lanes, d).

    tight: their tightness, if the policy is paced. kept: what an energy keeps of itself at each step.

    >>> value_steps(np.zeros((1, 1)), np.zeros((1, 1)), np.array([[[1.0]], [[-1.0]]]))[0].round(4)
    array([[0.0195]])
    """
    energies = accumulated(energy, excess * excess, kept)
    return _walked(position, _step_length(excess, energies, tight), tight), energies[-1]


def value_step_of_one(
    position: float, energy: float, excess: float, tight: float = 1.0, kept: float = 1.0
) -> tuple[float, float]:
    """`value_steps` of one decision and one resource."""
    energy = energy * kept + excess * excess
    return _moved_of_one(position, energy, excess, tight), energy


def value_replacements(
    position: Array, energy: Array, difference: Array, tight: Array | None = None, *, in_own_root: bool
) -> Array:
    """Positions after n costs are known in place of predictions, (c - ĉ) / ρ being (n, lanes, d).

    Part of the difference is noise, so PRICE_CORRECTION of it moves the price. in_own_root: its square counts in the
    root of its own step.

    >>> value_replacements(np.zeros((1, 1)), np.zeros((1, 1)), np.array([[[1.0]]]), in_own_root=False).round(4)
    array([[0.045]])
    >>> value_replacements(np.zeros((1, 1)), np.zeros((1, 1)), np.array([[[1e6]]]), in_own_root=True).round(4)
    array([[0.15]])
    """
    surprise = PRICE_CORRECTION * difference
    root = energy + surprise * surprise if in_own_root else energy
    return _walked(position, _step_length(surprise, root, tight), tight)


def value_replacement_of_one(
    position: float, energy: float, difference: float, in_own_root: bool, tight: float = 1.0
) -> float:
    """`value_replacements` of one cost."""
    surprise = PRICE_CORRECTION * difference
    return _moved_of_one(position, energy + surprise * surprise if in_own_root else energy, surprise, tight)


def value_corrections(position: Array, energy: Array, difference: Array) -> Array:
    """Positions after n late corrections of costs, each difference / ρ in full, (n, lanes, d): no noise is in them.

    >>> value_corrections(np.zeros((1, 1)), np.zeros((1, 1)), np.array([[[1.0]]]))
    array([[0.15]])
    """
    return _walked(position, _step_length(difference, energy))


def value_rescaled(position: Array, factor: Array) -> Array:
    """Positions at which the prices stay the same when the even pace is multiplied by the factor (lanes, d).

    >>> value_rescaled(np.array([[0.5, 1.0]]), np.array([[2.0, 2.0]]))
    array([[1. , 1.5]])
    """
    return np.minimum(position * factor, np.maximum(position, PRICE_CEILING))


def accumulated(start: Array, rows: Array, kept: float = 1.0) -> Array:
    """The sums after each of n rows (n, ...), added to the start (...) in order: the same bits as one row at a time.

    kept: what a sum keeps of itself before a row is added.

    >>> accumulated(np.zeros(1), np.ones((3, 1)), kept=0.5).ravel()
    array([1.  , 1.5 , 1.75])
    """
    sums = rows.copy()
    sums[0] += start * kept
    if kept < 1.0:
        for row in range(1, len(sums)):
            sums[row] += sums[row - 1] * kept
    elif len(sums) > 1:
        np.add.accumulate(sums, axis=0, out=sums)
    return sums


def _step_length(excess: Array, energy: Array, tight: Array | None = None) -> Array:
    if tight is None:
        return np.asarray(PRICE_STEP * excess / np.sqrt(1.0 + energy))
    square = tight * tight
    return np.asarray(PRICE_STEP * square * excess / np.sqrt(1.0 + square * energy))


def _walked(position: Array, steps: Array, tight: Array | None = None) -> Array:
    """Positions after the steps (n, lanes, d) in order, each kept in [0, PRICE_CEILING·tightness]."""
    ceilings = np.full(steps.shape, PRICE_CEILING) if tight is None else PRICE_CEILING * tight
    if len(steps) == 1:
        return np.asarray(np.minimum(np.maximum(position + steps[0], 0.0), np.maximum(ceilings[0], position)))
    result = np.empty(position.size)
    columns = [each.reshape(len(steps), -1).T.tolist() for each in (steps, ceilings)]
    # A step depends on the one before, so this is a loop; over plain floats it takes a tenth of the time.
    for at, (moved, lengths, tops) in enumerate(zip(position.ravel().tolist(), *columns)):  # noqa: B905
        for step, top in zip(lengths, tops):  # noqa: B905
            top = moved if moved > top else top
            moved += step
            moved = 0.0 if moved < 0.0 else top if moved > top else moved
        result[at] = moved
    return result.reshape(position.shape)


def _moved_of_one(position: float, energy: float, excess: float, tight: float = 1.0) -> float:
    """`_walked` by one `_step_length`."""
    square = tight * tight
    moved = position + PRICE_STEP * square * excess / sqrt(1.0 + square * energy)
    if moved < 0.0:
        return 0.0
    top = PRICE_CEILING * tight
    return moved if moved <= top or moved <= position else max(top, position)
