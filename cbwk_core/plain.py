"""The `practical` preset for one lane, in plain floats.

An idle service decides one request and learns one outcome at a time. With three resources and ten arms the vectors are
so short that each call into numpy costs more than its arithmetic, so the same rules stand here once more without it.
`Plain` answers the ordinary request and passes on everything else by answering None: the general way (decision.py, and
the lane-wise half of squarecbwk.py) then does it, or says what is wrong with it. The tests hold the two together.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cbwk_core.oracle import Array
from cbwk_core.oracles.newton import Newton, NewtonState
from cbwk_core.presets import (
    BLIND_COUNT,
    DAMPING,
    GAMMA_FACTOR,
    NOISE_MIN,
    PRICE_CEILING,
    PRICE_STEP,
    RESIDUAL_PRIOR_COUNT,
    WIDTHS,
)
from cbwk_core.problem import NULL_ARM, POLICY, Choice, Ticket
from cbwk_core.state import State

if TYPE_CHECKING:
    from cbwk_core.squarecbwk import SquareCBwK

# Up to here a loop over plain floats beats numpy.
CANDIDATES_MAX = 32
BECAUSE_OF_POLICY = (POLICY,)


class Row(NamedTuple):
    """One row of a `Ticket`, as far as the books need it."""

    arm: int
    value: float
    costs: list[float]
    rho: list[float]
    hold: list[float]


class Books:
    """A state's books, open for writing."""

    __slots__ = ("counters", "energy", "held", "position", "predicted", "slack", "spent")

    def __init__(self, books: Array, resources: int) -> None:
        row: list[float] = books[0].tolist()
        d, start = resources, 6 + resources  # see state.layout
        self.counters = row[:5]  # round, opened, settled, learnt, value
        self.position, self.slack = row[5 : start - 1], row[start - 1]
        self.energy, self.spent = row[start : start + d], row[start + d : start + 2 * d]
        self.held, self.predicted = row[start + 2 * d : start + 3 * d], row[start + 3 * d :]

    def closed(self) -> Array:
        """The books as an array again."""
        vectors = (*self.energy, *self.spent, *self.held, *self.predicted)
        books = np.array([(*self.counters, *self.position, self.slack, *vectors)])
        books.setflags(write=False)
        return books


class Plain:
    """A policy's numbers, ready to loop over."""

    def __init__(self, policy: SquareCBwK, oracle: Any) -> None:
        problem = policy.problem
        self.arms, self.resources, self.horizon = policy.arms, policy.resources, policy.horizon
        self.dimension, self.shared = policy.dimension, policy.model == "shared"
        self.budget, self.budgets = list(problem.budget), problem.budgets.tolist()
        self.unit, self.rho = problem.unit.tolist(), problem.rho.tolist()
        self.hold = problem.hold.tolist()
        self.gamma = policy.gamma
        self.oracle = oracle
        self.newton = isinstance(oracle, Newton) and oracle.link == "identity" and not policy.retired

    def decide(self, state: State, features: Any, uniforms: Any, free: Any) -> Choice | None:
        """One request that needs no mask, or None."""
        x = self._features(state, features)
        if x is None or not _is_one(uniforms, "f"):
            return None
        uniform = float(uniforms[0])
        books = Books(state.books, self.resources)
        if not (0.0 <= uniform < 1.0 and self._is_ordinary(books, free)):
            return None
        lifted = self._lifted(x)
        images = self._images(state.oracle, lifted)
        m = lifted.shape[-1]
        directions, predictions = images[:, :m], images[:, m:]
        leverage: list[float] = (np.vecdot(directions, lifted) if self.shared else directions.dot(lifted)).tolist()
        if not isfinite(sum(leverage)):
            return None
        direction, gamma, noise = self._quote(books, state.residuals[0])
        values: list[float] = predictions.dot(direction).tolist()
        weights = self._weights(values, leverage, gamma, noise)
        drawn = bisect_right(list(accumulate(weights)), uniform)
        if drawn > len(values):  # rounding left the uniform above the total: the best arm's
            drawn = weights.index(max(weights))
        arm = drawn if drawn < len(values) else NULL_ARM
        return self._choice(books, x, predictions.tolist(), arm, weights)

    def _features(self, state: State, features: Any) -> Array | None:
        """Features of one request, (candidates, dimension) or (1, dimension), if they have the right shape."""
        if type(features) is not np.ndarray or features.dtype != np.float64 or state.books.shape[0] != 1:
            return None
        shape = features.shape
        if self.shared:
            if len(shape) != 3 or shape[0] != 1 or shape[2] != self.dimension or not 1 <= shape[1] <= CANDIDATES_MAX:
                return None
            return np.asarray(features[0])
        return np.asarray(features) if shape == (1, self.dimension) and self.arms <= CANDIDATES_MAX else None

    def _is_ordinary(self, books: Books, free: Any) -> bool:
        """Whether nothing needs a mask or a throttle: rounds are left, every arm can be paid, outcomes come back."""
        rounds, opened, settled, _, _ = books.counters
        if not self.newton or rounds >= self.horizon or (opened >= BLIND_COUNT and settled < BLIND_COUNT):
            return False
        if free is None:
            for budget, spent, held, unit in zip(self.budget, books.spent, books.held, self.unit, strict=True):
                if budget - spent - held < unit:
                    return False
            return True
        if type(free) is not np.ndarray or free.shape != (self.resources,) or free.dtype.kind not in "iuf":
            return False
        return all(left >= unit for left, unit in zip(free.tolist(), self.unit, strict=True))

    def _lifted(self, x: Array) -> Array:
        """Features with the constant: (candidates, m) for "shared", (m,) for "per_arm"."""
        if not self.shared:
            lifted = np.empty(self.dimension + 1)
            lifted[:-1] = x[0]
            lifted[-1] = 1.0
            return lifted
        lifted = np.empty((x.shape[0], self.dimension + 1))
        lifted[:, :-1] = x
        lifted[:, -1] = 1.0
        return lifted

    def _images(self, oracle: NewtonState, lifted: Array) -> Array:
        """A⁻¹φ and φᵀθ of every candidate: (candidates, m + 1 + d)."""
        if self.shared:
            return np.asarray(lifted.dot(oracle.solution[0, 0].T))
        m = lifted.shape[0]
        return np.asarray(oracle.solution.reshape(-1, m).dot(lifted).reshape(self.arms, -1))

    def _quote(self, books: Books, residuals: Array) -> tuple[Array, float, float]:
        """u = (1, -λ) with λ = p·R̂/ρ, γ, and the noise uᵀΣ̂u."""
        rounds, _, _, learnt, value = books.counters
        mean = value / max(rounds, 1.0)
        direction = np.array([1.0, *[-p * (mean / rho) for p, rho in zip(books.position, self.rho, strict=True)]])
        noise = max(float(residuals.dot(direction).dot(direction)) / (learnt + RESIDUAL_PRIOR_COUNT), NOISE_MIN)
        if self.gamma == "auto":
            gamma = GAMMA_FACTOR * sqrt((self.arms + 1) * (rounds + 1.0) / (noise * (self.dimension + 1)))
        else:
            gamma = float(self.gamma)
        return direction, gamma, noise

    @staticmethod
    def _weights(values: list[float], leverage: list[float], gamma: float, noise: float) -> list[float]:
        """Inverse gap weights, null last, damped outside the widths; the null arm is worth 0 and known."""
        top = max(values)
        best = values.index(top)
        reach = WIDTHS * sqrt(leverage[best] * noise)
        if top < 0.0:
            top, best, reach = 0.0, len(values), 0.0
        count = len(values) + 1
        weights = [
            (1.0 if top - value <= WIDTHS * sqrt(each * noise) + reach else DAMPING) / (count + gamma * (top - value))
            for value, each in zip(values, leverage, strict=True)
        ]
        weights.append(0.0)
        weights[best] = 0.0
        weights[best] = 1.0 - sum(weights)
        return weights

    def _choice(self, books: Books, x: Array, predictions: list[list[float]], arm: int, weights: list[float]) -> Choice:
        reward, row = self._row(books, predictions, arm)
        numbers = np.array([[reward, row.value, books.counters[0], *row.costs, *row.rho, *row.hold]])
        chosen = np.zeros((1, self.dimension)) if arm == NULL_ARM else np.array(x[arm if self.shared else 0], ndmin=2)
        arms, probability, probabilities = np.array([arm]), np.array([weights[arm]]), np.array([weights])
        for array in (numbers, chosen, arms, probability, probabilities):
            array.setflags(write=False)
        return Choice(arms, probability, probabilities, BECAUSE_OF_POLICY, Ticket(arms, chosen, numbers))

    def _row(self, books: Books, predictions: list[list[float]], arm: int) -> tuple[float, Row]:
        """The predicted reward, and what the books need, of one decision: predictions (candidates, 1 + d)."""
        rounds_left = max(self.horizon - books.counters[0], 1.0)
        rho = [
            max(budget - spent / unit - predicted, 0.0) / rounds_left
            for budget, spent, unit, predicted in zip(
                self.budgets, books.spent, self.unit, books.predicted, strict=True
            )
        ]
        value = max(0.0, *[prediction[0] for prediction in predictions])
        if arm == NULL_ARM:
            nothing = [0.0] * self.resources
            return 0.0, Row(arm, value, nothing, rho, nothing)
        reward, *costs = predictions[arm]
        hold = self.hold[arm] if len(predictions) == self.arms else self.unit
        return reward, Row(arm, value, [cost if cost > 0.0 else 0.0 for cost in costs], rho, hold)

    def learn(self, state: State, features: Any, arm: Any, rewards: Any, costs: Any) -> State | None:
        """Commit and settle one decision with the books open once, or None."""
        x = self._features(state, features)
        if x is None or not self.newton or not _is_one(arm, "i") or not _is_one(rewards, "f"):
            return None
        if type(costs) is not np.ndarray or costs.shape != (1, self.resources) or costs.dtype != np.float64:
            return None
        lifted = self._lifted(x)
        predictions = self._images(state.oracle, lifted)[:, lifted.shape[-1] :].tolist()
        played, reward, cost = int(arm[0]), float(rewards[0]), costs[0].tolist()
        total = sum([prediction[0] for prediction in predictions]) + reward + sum(cost)
        if not (NULL_ARM <= played < len(predictions) and isfinite(total)):
            return None
        books = Books(state.books, self.resources)
        guess, row = self._row(books, predictions, played)
        self.commit(books, row)
        if played == NULL_ARM:
            return state._replace(books=books.closed())
        self.release(books, row, cost)
        books.counters[2] += 1.0
        books.counters[3] += 1.0
        target = np.array([reward, *[each / unit for each, unit in zip(cost, self.unit, strict=True)]])
        surprise = target - np.array([guess, *row.costs])
        residuals = state.residuals + surprise[:, None] * surprise
        residuals.setflags(write=False)
        taught = lifted[played] if self.shared else lifted
        oracle = self.oracle.learnt_row(state.oracle, 0 if self.shared else played, taught, target)
        return State(books.closed(), oracle, residuals, state.stage)

    def rows(self, ticket: Ticket) -> list[Row]:
        """The rows of a ticket."""
        d = self.resources
        return [
            Row(arm, numbers[1], numbers[3 : 3 + d], numbers[3 + d : 3 + 2 * d], numbers[3 + 2 * d :])
            for arm, numbers in zip(ticket.arm.tolist(), ticket.numbers.tolist(), strict=True)
        ]

    def commit(self, books: Books, row: Row) -> None:
        """A decision: prices move at (ĉ - ρ_t)/ρ, the energy grows by its square."""
        books.counters[0] += 1.0
        books.counters[1] += row.arm != NULL_ARM
        books.counters[4] += row.value
        position, energy = books.position, books.energy
        for j, cost in enumerate(row.costs):
            excess = (cost - row.rho[j]) / self.rho[j]
            energy[j] += excess * excess
            moved = position[j] + PRICE_STEP * excess / sqrt(1.0 + energy[j])
            position[j] = 0.0 if moved < 0.0 else min(moved, PRICE_CEILING)
            books.held[j] += row.hold[j]
            books.predicted[j] += cost

    def release(self, books: Books, row: Row, costs: list[float]) -> None:
        """An outcome, or a cancellation at no costs: hold and prediction go, prices move by (c - ĉ)/ρ."""
        if row.arm == NULL_ARM:
            return
        books.counters[1] -= 1.0
        position, energy = books.position, books.energy
        for j, cost in enumerate(costs):
            excess = (cost / self.unit[j] - row.costs[j]) / self.rho[j]
            moved = position[j] + PRICE_STEP * excess / sqrt(1.0 + energy[j])
            position[j] = 0.0 if moved < 0.0 else min(moved, PRICE_CEILING)
            books.held[j] -= row.hold[j]
            books.predicted[j] -= row.costs[j]
            books.spent[j] += cost


def _is_one(array: Any, kind: str) -> bool:
    return type(array) is np.ndarray and array.shape == (1,) and array.dtype.kind == kind
