"""The `practical` preset for one lane, in plain floats.

An idle service decides one request and learns one outcome at a time. With three resources and ten arms the vectors are
so short that each call into numpy costs more than its arithmetic, so the same rules stand here once more, with as few
calls as possible. `Plain` answers the ordinary request, or several of them, and passes on everything else by answering
None: the general way (decision.py, and the lane-wise half of squarecbwk.py) then does it, or says what is wrong with
it. The tests hold the two together.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from itertools import accumulate
from math import isfinite, sqrt
from operator import ge
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg.blas import ddot, dger

from cbwk_core.arrays import FLOAT, Array, Floats, Integers, freeze, frozen
from cbwk_core.oracles.newton import Newton, NewtonState
from cbwk_core.presets import (
    BLIND_COUNT,
    DAMPING,
    GAMMA_FACTOR,
    NOISE_MIN,
    PRICE_CEILING,
    PRICE_CORRECTION,
    PRICE_STEP,
    PRIOR_WIDTH,
    RESIDUAL_PRIOR_COUNT,
    WIDTHS,
)
from cbwk_core.problem import NULL_ARM, POLICY, Choice, Thought, Ticket
from cbwk_core.rules.inverse_gap import sample
from cbwk_core.rules.pace import DELAY_SHARE_MIN, late_pace
from cbwk_core.state import State, layout

if TYPE_CHECKING:
    from cbwk_core.policy import SquareCBwK

# Up to here a loop over plain floats beats numpy.
CANDIDATES_MAX = 32
# From here on decisions are committed with few calls.
TOGETHER_MIN = 8
# Numbers in the images of several requests' candidates, 32 MB: more are taken in parts. Parts that caches hold are
# quicker, but not of so few rows that the model, which is read once for each, is larger.
IMAGES_MAX, IMAGES_CACHED, PART_ROWS_MIN = 4_000_000, 524_288, 64
BECAUSE_OF_POLICY = (POLICY,)
WHOLE = np.dtype(np.int64)


class Outlook(NamedTuple):
    """What a decision needs of the state alone."""

    prices: Array  # λ = p·R̂/ρ, (1, d)
    direction: Array  # u = (1, -λ)
    gamma: float
    noise: float  # uᵀΣ̂u
    pace: list[float] | None = None  # ρ_t, if somebody has looked ahead


class Plain:
    """A policy's numbers, ready to loop over. Books are a state's books as one list; `layout` says what is where."""

    def __init__(self, policy: SquareCBwK, oracle: Any) -> None:
        problem, where = policy.problem, layout(policy.resources)
        self.arms, self.resources, self.horizon = policy.arms, policy.resources, policy.horizon
        self.dimension, self.shared = policy.dimension, policy.model == "shared"
        self.budget, self.budgets = list(problem.budget), problem.budgets.tolist()
        self.unit, self.rho = problem.unit.tolist(), problem.rho.tolist()
        self.holds, self.hold = problem.hold, problem.hold.tolist()
        self.gamma = policy.gamma
        self.oracle, self.parameters = oracle, oracle.dimension * oracle.blocks
        self.newton = isinstance(oracle, Newton) and oracle.link == "identity" and not policy.retired
        self.position, self.energy = where["position"].start, where["energy"].start
        self.waited = where["slack"].start
        # What a decision for each arm may block, in max costs, behind what is below any reward: (arms, or 1 for
        # none, 1 + d).
        self.floors = np.column_stack([np.full(len(problem.hold), -np.inf), problem.hold / problem.unit])
        # What was worked out ahead, and the parts of a state it follows from; not the state, whose model is large.
        self.ahead: tuple[Outlook, Array, Array, Array] | None = None
        # The last books asked for late paces, and the answer: one decision asks three times.
        self.paced: tuple[list[float], list[tuple[float, float]]] = ([], [])
        self.spent, self.held, self.predicted = where["spent"].start, where["held"].start, where["predicted"].start
        self.accounts = [
            (budget, unit, self.spent + j, self.held + j)
            for j, (budget, unit) in enumerate(zip(self.budget, self.unit, strict=True))
        ]
        self.terms = [
            (rho, unit, budget, *(start + j for start in (self.position, self.energy, self.spent, self.predicted)))
            for j, (rho, unit, budget) in enumerate(zip(self.rho, self.unit, self.budgets, strict=True))
        ]
        # What a decision moves: ρ, and where each resource's part of the books stands.
        self.movements = [
            (rho, position, energy, self.held + j, predicted)
            for j, (rho, _, _, position, energy, _, predicted) in enumerate(self.terms)
        ]
        # For across.py: what policies must have in common to be asked together, and what each has declared.
        fits = self.newton and not self.shared and self.gamma == "auto" and self.arms > 0
        self.shape = (self.arms, self.dimension, self.resources) if fits else None
        self.declared = np.array([[self.horizon, *self.budgets, *self.unit, *self.rho]])
        # One read-only array per arm that `decide` may answer, null last, so that index -1 is null here too.
        self.arm_arrays = [frozen(np.array([arm])) for arm in (*range(max(self.arms, CANDIDATES_MAX)), NULL_ARM)]
        self.ones = np.ones((max(self.arms, 1) if self.shared else 1, self.dimension + 1))
        self.one_row = self.ones[0]
        self.columns = Floats(f"{where['predicted'].stop}d")

    def look_ahead(self, state: State) -> None:
        """Work out what the next decision needs of the state."""
        if self.newton:
            books = state.books.tolist()[0]
            outlook = self._new_outlook(state, books)._replace(pace=self._pace(books))
            self.ahead = outlook, state.books, state.residuals, state.oracle.noticed

    def decide(self, state: State, features: Any, uniforms: Any, free: Any) -> Choice | None:
        """Requests that need no mask, or None."""
        if not self._is_shaped(state, features) or type(uniforms) is not np.ndarray or uniforms.dtype != FLOAT:
            return None
        rows, books, drawn = len(features), state.books.tolist()[0], uniforms.tolist()
        if uniforms.shape != (rows,) or not (0.0 <= min(drawn) and max(drawn) < 1.0 and isfinite(sum(drawn))):
            return None
        if books[0] + rows > self.horizon or (books[1] >= BLIND_COUNT and books[2] < BLIND_COUNT):
            return None
        if not self._is_affordable(books, free, rows):
            return None
        if rows == 1:
            return self._decide_one(state, books, features[0] if self.shared else features, drawn[0])
        return self._decide_several(state, books, features, uniforms) if _are_finite(features) else None

    def _decide_one(self, state: State, books: list[float], x: Array, uniform: float) -> Choice | None:
        """x: (candidates, dimension) for "shared", (1, dimension) for "per_arm"."""
        lifted, m = self._lifted(x), self.dimension + 1
        if lifted is None:
            return None
        images = self._images(state.oracle, lifted)
        directions, predictions = images[:, :m], images[:, m:]
        leverage: list[float] = (np.vecdot(directions, lifted) if self.shared else directions.dot(lifted)).tolist()
        if len(leverage) > CANDIDATES_MAX or not (min(leverage) >= 0.0 and isfinite(sum(leverage))):
            return None
        outlook = self._outlook(state, books)
        prices, direction, gamma, noise, _ = outlook
        charged = self._charged(books, predictions) if self._is_late(books) else predictions
        weights = self._weights(charged.dot(direction).tolist(), leverage, gamma, noise)
        arm = bisect_right(list(accumulate(weights)), uniform)
        if arm > len(leverage):  # rounding left the uniform above the total: the best arm's
            arm = weights.index(max(weights))
        if arm == len(leverage):
            arm, chosen = NULL_ARM, np.zeros((1, self.dimension))
        else:
            chosen = x[arm : arm + 1].copy() if self.shared else x.copy()
        # One array and views of it: the call that makes an array costs more than what is in it.
        one = np.array([[gamma, weights[arm], *weights]])
        for array in (one, chosen, images, prices):
            freeze(array)
        ticket = partial(self._ticket, books, chosen, predictions, arm, outlook.pace)
        thought = Thought(images[None, :, m:], prices, one[:, :1])
        return Choice(self.arm_arrays[arm], one[0, 1:2], one[:, 2:], BECAUSE_OF_POLICY, ticket, thought)

    def _decide_several(self, state: State, books: list[float], x: Array, uniforms: Array) -> Choice | None:
        """x: (n, candidates, dimension) for "shared", (n, dimension) for "per_arm"."""
        rows, m, candidates = len(x), self.dimension + 1, x.shape[1] if self.shared else self.arms
        lifted = np.ones((*x.shape[:-1], m))
        lifted[..., :-1] = x
        solution, width = state.oracle.solution.reshape(-1, m).T, m + 1 + self.resources
        leverage, predictions = np.empty((rows, candidates)), np.empty((rows, candidates, 1 + self.resources))
        images_each = candidates * width
        step = max(1, min(IMAGES_MAX // images_each, max(IMAGES_CACHED // images_each, PART_ROWS_MIN)))
        for start in range(0, rows, step):
            part = slice(start, start + step)
            images = lifted[part].reshape(-1, m).dot(solution).reshape(-1, candidates, width)
            np.vecdot(images[..., :m], lifted[part] if self.shared else lifted[part, None], out=leverage[part])
            predictions[part] = images[..., m:]
        if not (leverage.min() >= 0.0 and isfinite(leverage.sum())):
            return None
        prices, direction, gamma, noise, _ = self._outlook(state, books)
        charged = self._charged(books, predictions) if self._is_late(books) else predictions
        weights, best = weights_of_several(charged.dot(direction), leverage, gamma, WIDTHS * sqrt(noise))
        arm = sample(weights, best, uniforms)
        arm[arm == leverage.shape[1]] = NULL_ARM
        probability = weights[np.arange(rows), arm]
        known = np.array([[gamma]])
        for array in (arm, probability, weights, predictions, prices, known):
            freeze(array)
        ticket = partial(self._tickets, books, x, predictions, arm)
        thought = Thought(predictions, prices, known)
        return Choice(arm, probability, weights, BECAUSE_OF_POLICY * rows, ticket, thought)

    def _is_shaped(self, state: State, features: Any) -> bool:
        """Whether this is one lane, and features are (n, candidates, dimension) or, for "per_arm", (n, dimension)."""
        if not self.newton or type(features) is not np.ndarray or features.dtype != FLOAT or len(state.books) != 1:
            return False
        shape = features.shape
        return len(shape) == (3 if self.shared else 2) and shape[-1] == self.dimension and 0 not in shape

    def _is_affordable(self, books: list[float], free: Any, rows: int) -> bool:
        """Whether as many max costs of every resource are free."""
        if free is None:
            for budget, unit, spent, held in self.accounts:
                if budget - books[spent] - books[held] < rows * unit:
                    return False
            return True
        if type(free) is list and len(free) == self.resources and set(map(type, free)) == {int}:
            left = free
        elif type(free) is np.ndarray and free.shape == (self.resources,) and free.dtype.kind in "iuf":
            left = free.tolist()
        else:
            return False
        needed = self.unit if rows == 1 else [rows * unit for unit in self.unit]
        return all(map(ge, left, needed)) and isfinite(sum(left))

    def _lifted(self, x: Array) -> Array | None:
        """Features with the constant, if finite: (candidates, m) for "shared", (m,) for "per_arm"."""
        if not self.shared:
            features = x.tolist()[0]
            features.append(1.0)
            return np.array(features) if isfinite(sum(features)) else None
        if not _are_finite(x):
            return None
        lifted: Array = self.ones.copy() if len(x) == len(self.ones) else np.ones((len(x), self.dimension + 1))
        lifted[:, :-1] = x
        return lifted

    def _lifted_row(self, x: Array) -> Array:
        """The features of one candidate, (dimension,) or (1, dimension), with the constant: (m,)."""
        lifted: Array = self.one_row.copy()
        lifted[:-1] = x
        return lifted

    def _images(self, oracle: NewtonState, lifted: Array) -> Array:
        """A⁻¹φ and φᵀθ of every candidate: (candidates, m + 1 + d)."""
        if self.shared:
            return lifted.dot(oracle.solution[0, 0].T)  # type: ignore[no-any-return]
        return oracle.solution.reshape(-1, len(lifted)).dot(lifted).reshape(self.arms, -1)  # type: ignore[no-any-return]

    def _outlook(self, state: State, books: list[float]) -> Outlook:
        """What was worked out ahead, if it was for this state."""
        ahead = self.ahead
        if ahead is not None:
            outlook, known, residuals, noticed = ahead
            if known is state.books and residuals is state.residuals and noticed is state.oracle.noticed:
                return outlook
        return self._new_outlook(state, books)

    def _new_outlook(self, state: State, books: list[float]) -> Outlook:
        rounds, position = books[0], self.position
        mean = books[4] / max(rounds, 1.0)
        prices = [books[position + j] * (mean / rho) for j, rho in enumerate(self.rho)]
        direction = np.array([1.0, *[-price for price in prices]])
        spread = float(state.residuals[0].dot(direction).dot(direction))
        noise = max(spread / (books[3] + RESIDUAL_PRIOR_COUNT), NOISE_MIN)
        if self.gamma == "auto":
            counted, gone = rounds + 1.0, state.oracle.noticed.item(1)
            if gone:
                counted *= (books[3] + 1.0 - min(gone, books[3])) / (books[3] + 1.0)
            gamma = GAMMA_FACTOR * sqrt((self.arms + 1) * counted / (noise * self.parameters))
        else:
            gamma = float(self.gamma)
        return Outlook(np.array([prices]), direction, gamma, noise)

    @staticmethod
    def _weights(values: list[float], leverage: list[float], gamma: float, noise: float) -> list[float]:
        """Inverse gap weights, null last, damped outside the widths; the null arm is worth 0 and known."""
        top = max(values)
        best, count, width = values.index(top), len(values) + 1, WIDTHS * sqrt(noise)
        reach = width * sqrt(leverage[best]) + PRIOR_WIDTH * leverage[best]
        if top < 0.0:
            top, best, reach = 0.0, len(values), 0.0
        weights = [
            (1.0 if (gap := top - value) <= width * root + PRIOR_WIDTH * each + reach else DAMPING)
            / (count + gamma * gap)
            for value, each, root in zip(values, leverage, map(sqrt, leverage))  # noqa: B905
        ]
        weights.append(0.0)
        weights[best] = 0.0
        weights[best] = 1.0 - sum(weights)
        return weights

    def _ticket(
        self, books: list[float], chosen: Array, predictions: Array, arm: int, pace: list[float] | None
    ) -> Ticket:
        """What `decide` decided, to be kept: chosen (1, dimension), predictions (candidates, 1 + d)."""
        rho = self._pace(books) if pace is None else pace
        if arm == NULL_ARM:
            reward, costs = 0.0, [0.0] * self.resources
            hold = costs
        else:
            reward, *costs = predictions[arm].tolist()
            costs = [cost if cost > 0.0 else 0.0 for cost in costs]
            hold = self.hold[arm] if len(predictions) == self.arms else self.unit
        numbers = np.array([[reward, max(reward, 0.0), books[0], *costs, *rho, *hold]])
        freeze(numbers)
        return Ticket(self.arm_arrays[arm], chosen, numbers)

    def _tickets(self, books: list[float], x: Array, predictions: Array, arm: Integers) -> Ticket:
        """The same of n decisions: x as in `_decide_several`, predictions (n, candidates, 1 + d)."""
        rows, candidates, q = predictions.shape
        d, index, null = q - 1, np.arange(rows), arm == NULL_ARM
        picked, numbers = predictions[index, arm], np.empty((rows, 3 + 3 * d))
        numbers[:, 0] = picked[:, 0]
        np.maximum(picked[:, 0], 0.0, out=numbers[:, 1])
        np.add(index, books[0], out=numbers[:, 2])
        np.maximum(picked[:, 1:], 0.0, out=numbers[:, 3 : 3 + d])
        numbers[:, 3 + d : 3 + 2 * d] = self._pace(books)
        numbers[:, 3 + 2 * d :] = self.holds[arm] if candidates == self.arms else self.unit
        chosen = x[index, arm] if self.shared else x.copy()
        if null.any():
            kept = numbers[null, 2 : 3 + 2 * d]
            numbers[null] = 0.0
            numbers[null, 2], numbers[null, 3 + d : 3 + 2 * d] = kept[:, 0], kept[:, 1 + d :]
            chosen[null] = 0.0
        for array in (chosen, numbers):
            freeze(array)
        return Ticket(arm, chosen, numbers)

    def _is_late(self, books: list[float], rounds: int = 0) -> bool:
        """Whether outcomes come so late that holds may run short before money does (pace.py), so many rounds on."""
        waited: float = books[self.waited]
        if waited == 0.0:
            return False
        return waited / max(books[2], 1.0) > DELAY_SHARE_MIN * max(self.horizon - books[0] - rounds, 1.0)

    def _late_paces(self, books: list[float]) -> list[tuple[float, float]]:
        """ρ_t and the share of a hold that counts, of each resource."""
        known, answer = self.paced
        if known == books:
            return answer
        delay, rest = books[self.waited] / max(books[2], 1.0), max(self.horizon - books[0], 1.0)
        result = []
        for j, (_, unit, budget, _, _, at_spent, at_predicted) in enumerate(self.terms):
            unspent, held, predicted = budget - books[at_spent] / unit, books[self.held + j] / unit, books[at_predicted]
            left, free = max(unspent - predicted, 0.0), max(unspent - held, 0.0)
            result.append(late_pace(left, free, held, predicted, delay, rest))
        self.paced = books.copy(), result
        return result

    def _charged(self, books: list[float], predictions: Array) -> Array:
        """Predictions (..., candidates, 1 + d) with costs that are at least what a decision blocks."""
        shares = [share for _, share in self._late_paces(books)]
        if predictions.shape[-2] == self.arms:
            return np.maximum(predictions, self.floors * [1.0, *shares])  # type: ignore[no-any-return]
        return np.maximum(predictions, [-np.inf, *shares])

    def _pace(self, books: list[float]) -> list[float]:
        """ρ_t: what is left of each budget, in max costs per round that is left, unless outcomes are late."""
        if self._is_late(books):
            return [rho for rho, _ in self._late_paces(books)]
        rounds_left = max(self.horizon - books[0], 1.0)
        return [
            max(budget - books[spent] / unit - books[open_], 0.0) / rounds_left
            for _, unit, budget, _, _, spent, open_ in self.terms
        ]

    def learn(self, state: State, features: Any, arm: Any, rewards: Any, costs: Any) -> State | None:
        """Commit and settle one decision for a real arm in one go, or None."""
        if not self._is_shaped(state, features) or len(features) != 1 or not _are_finite(features):
            return None
        if type(arm) is not np.ndarray or type(rewards) is not np.ndarray or type(costs) is not np.ndarray:
            return None
        if arm.shape != (1,) or arm.dtype != WHOLE or rewards.shape != (1,) or rewards.dtype != FLOAT:
            return None
        if costs.shape != (1, self.resources) or costs.dtype != FLOAT:
            return None
        m, played, reward, cost = self.dimension + 1, arm.item(), rewards.item(), costs.tolist()[0]
        if not (0 <= played < (features.shape[1] if self.shared else self.arms) and isfinite(reward + sum(cost))):
            return None
        books = state.books.tolist()[0]
        if books[self.waited] and self._is_late(books):
            return None
        block = 0 if self.shared else played
        taught = self._lifted_row(features[0, played] if self.shared else features)
        known = state.oracle
        image = known.solution[0, block].dot(taught)
        scores = image[m:]
        prediction: list[float] = scores.tolist()
        if not isfinite(sum(prediction)):
            return None
        errors, surprise = self._booked(books, prediction, reward, cost)
        scores[:] = errors
        off = scores if surprise is errors else np.array(surprise)
        residuals = state.residuals.copy()
        dger(1.0, off, off, 1, 1, residuals[0].T, 1, 1, 1)
        freeze(residuals)
        oracle = self.oracle.learnt_row(known, block, taught, image, errors)
        # What State(…) does by way of a Python function, in half the time.
        return tuple.__new__(State, (self._closed(books), oracle, residuals, state.stage))

    def _booked(
        self, books: list[float], prediction: list[float], reward: float, cost: list[float]
    ) -> tuple[list[float], list[float]]:
        """`commit` and `release` of one decision in one pass; prediction minus outcome, and ticket minus outcome.

        Hold and predicted cost come and go, so that held, predicted and opened stay as they are. The ticket has no
        costs below 0: where none was predicted, both answers are the same list.
        """
        rounds_left = max(self.horizon - books[0], 1.0)
        books[0] += 1.0
        books[2] += 1.0
        books[3] += 1.0
        worth, *guesses = prediction
        if worth > 0.0:
            books[4] += worth
        errors, is_ticket = [worth - reward], True
        rows = zip(self.terms, guesses, cost)  # noqa: B905
        for (even, unit, budget, at_position, at_energy, at_spent, at_predicted), raw, paid in rows:
            guess, actual, spent = raw, paid / unit, books[at_spent]
            if raw < 0.0:
                guess, is_ticket = 0.0, False
            left = budget - spent / unit - books[at_predicted]
            rho = left / rounds_left if left > 0.0 else 0.0
            before, after = (guess - rho) / even, (actual - rho) / even
            energy = books[at_energy] + before * before
            step = PRICE_STEP / sqrt(1.0 + energy)
            moved = books[at_position] + step * before
            moved = 0.0 if moved < 0.0 else PRICE_CEILING if moved > PRICE_CEILING else moved
            moved += step * PRICE_CORRECTION * (after - before)
            books[at_position] = 0.0 if moved < 0.0 else PRICE_CEILING if moved > PRICE_CEILING else moved
            books[at_energy] = energy
            books[at_spent] = spent + paid
            errors.append(raw - actual)
        if is_ticket:
            return errors, errors
        tickets = zip(self.unit, guesses, cost)  # noqa: B905
        return errors, [errors[0], *[max(raw, 0.0) - paid / unit for unit, raw, paid in tickets]]

    def commit(self, state: State, ticket: Ticket) -> State:
        """n decisions in order: prices move at (ĉ - ρ_t)/ρ, the energy grows by its square."""
        books, d, rows = state.books[0].tolist(), self.resources, len(ticket.arm)
        if rows >= TOGETHER_MIN and not self._is_late(books, rows - 1):
            return self._commit_several(state, ticket)
        for arm, numbers in zip(ticket.arm.tolist(), ticket.numbers.tolist(), strict=True):
            charged = costs = numbers[3 : 3 + d]
            paces, holds = numbers[3 + d : 3 + 2 * d], numbers[3 + 2 * d :]
            if self._is_late(books):
                blocked = zip(holds, self.unit, self._late_paces(books), costs, strict=True)
                charged = [max(cost, hold / unit * share) for hold, unit, (_, share), cost in blocked]
            books[0] += 1.0
            books[1] += arm != NULL_ARM
            books[4] += numbers[1]
            resources = zip(self.movements, costs, charged, paces, holds, strict=True)
            for (even, position, energy, held, predicted), cost, charge, pace, hold in resources:
                excess = (charge - pace) / even
                grown = books[energy] + excess * excess
                moved = books[position] + PRICE_STEP * excess / sqrt(1.0 + grown)
                books[energy] = grown
                books[position] = 0.0 if moved < 0.0 else min(moved, PRICE_CEILING)
                books[held] += hold
                books[predicted] += cost
        return State(self._closed(books), state.oracle, state.residuals, state.stage)

    def _commit_several(self, state: State, ticket: Ticket) -> State:
        """The same with few calls, where none is late. Sums are added in order: they are the loop's to the last bit."""
        books, numbers, d = state.books[0].copy(), ticket.numbers, self.resources
        excess = (numbers[:, 3 : 3 + d] - numbers[:, 3 + d : 3 + 2 * d]) / self.rho
        energy = _accumulated(books[self.energy : self.energy + d], excess * excess)
        steps = PRICE_STEP * excess / np.sqrt(1.0 + energy)
        for j, column in enumerate(steps.T.tolist()):
            moved = float(books[self.position + j])
            for step in column:
                moved += step
                moved = 0.0 if moved < 0.0 else min(moved, PRICE_CEILING)
            books[self.position + j] = moved
        books[0] += len(numbers)
        books[1] += np.count_nonzero(ticket.arm != NULL_ARM)
        books[4] = _accumulated(books[4:5], numbers[:, 1:2])[-1, 0]
        books[self.energy : self.energy + d] = energy[-1]
        for start, first in ((self.held, 3 + 2 * d), (self.predicted, 3)):
            books[start : start + d] = _accumulated(books[start : start + d], numbers[:, first : first + d])[-1]
        freeze(books)
        return state._replace(books=books[None])

    def release(self, state: State, tickets: Ticket, costs: list[list[float]]) -> State:
        """n outcomes, or cancellations at no costs: holds and predictions go, prices move by (c - ĉ)/ρ."""
        books = state.books.tolist()[0]
        for arm, numbers, cost in zip(tickets.arm.tolist(), tickets.numbers.tolist(), costs, strict=True):
            if arm != NULL_ARM:
                self._release(books, numbers, cost)
        return state._replace(books=self._closed(books))

    def _release(self, books: list[float], numbers: list[float], cost: list[float]) -> None:
        d = self.resources
        books[1] -= 1.0
        for j, even in enumerate(self.rho):
            guess = numbers[3 + j]
            self._move(books, j, PRICE_CORRECTION * (cost[j] / self.unit[j] - guess) / even)
            books[self.held + j] -= numbers[3 + 2 * d + j]
            books[self.predicted + j] -= guess
            books[self.spent + j] += cost[j]

    def settle(self, state: State, ticket: Ticket, reward: float, cost: list[float], learn: bool) -> State:
        """One outcome of a decision for a real arm: `release`, and the oracle learns it."""
        books, numbers = state.books.tolist()[0], ticket.numbers.tolist()[0]
        self._release(books, numbers, cost)
        books[2] += 1.0
        books[self.waited] += max(books[0] - 1.0 - numbers[2], 0.0)
        if not learn:
            return state._replace(books=self._closed(books))
        books[3] += 1.0
        target = [reward, *[each / unit for each, unit in zip(cost, self.unit, strict=True)]]
        guesses = [numbers[0], *numbers[3 : 3 + self.resources]]
        surprise = [each - guess for each, guess in zip(target, guesses, strict=True)]
        off = np.array(surprise)
        residuals = state.residuals.copy()
        dger(1.0, off, off, 1, 1, residuals[0].T, 1, 1, 1)
        freeze(residuals)
        lifted, block = self._lifted_row(ticket.features), 0 if self.shared else ticket.arm.item()
        image = state.oracle.solution[0, block].dot(lifted)
        scores = image[self.dimension + 1 :]
        scores -= target
        oracle = self.oracle.learnt_row(state.oracle, block, lifted, image, scores.tolist())
        return State(self._closed(books), oracle, residuals, state.stage)

    def _closed(self, books: list[float]) -> Array:
        return np.ndarray((1, len(books)), FLOAT, self.columns.pack(*books))

    def _move(self, books: list[float], j: int, excess: float) -> None:
        moved = books[self.position + j] + PRICE_STEP * excess / sqrt(1.0 + books[self.energy + j])
        books[self.position + j] = min(max(moved, 0.0), PRICE_CEILING)


def _are_finite(features: Array) -> bool:
    numbers = features.ravel()
    return isfinite(ddot(numbers, numbers))


def weights_of_several(
    values: Array, leverage: Array, gamma: Array | float, deviations: Array | float
) -> tuple[Array, Integers]:
    """`_weights` for n requests: values and leverage (n, candidates); weights (n, candidates + 1) and the best (n,).

    `deviations` is WIDTHS standard deviations of an outcome; like γ it may be (n, 1).
    """
    rows, candidates = values.shape
    index, best = np.arange(rows), values.argmax(axis=1)
    width = np.sqrt(leverage)
    width *= deviations
    width += PRIOR_WIDTH * leverage
    top, reach = values[index, best], width[index, best]
    null = top < 0.0
    if null.any():
        top[null], reach[null], best[null] = 0.0, 0.0, candidates
    gap = top[:, None] - values
    weights = np.zeros((rows, candidates + 1))
    real = weights[:, :-1]
    np.multiply(gap, gamma, out=real)
    real += candidates + 1
    np.divide(1.0, real, out=real)
    width += reach[:, None]
    real[gap > width] *= DAMPING
    weights[index, best] = 0.0
    weights[index, best] = 1.0 - weights.sum(axis=1)
    return weights, best


def _accumulated(start: Array, rows: Array) -> Array:
    """start (d,) plus rows (n, d) one after the other: (n, d)."""
    sums = rows.copy()
    sums[0] += start
    return np.add.accumulate(sums, axis=0, out=sums)
