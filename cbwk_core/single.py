"""One request and one outcome of `practical` with the Newton oracle and the identity link, in plain floats.

With three resources and ten arms the vectors are so short that a call into numpy costs more than its arithmetic. This
module does what `round.py` does for a single row of a single lane, with the scalar twins of the rules. It contains no
formula. It accepts a subset of the requests that `round.py` accepts, with the same answers, and returns None for
anything else.
"""

from __future__ import annotations

from functools import partial
from math import isfinite
from operator import ge
from typing import Any

import numpy as np
from scipy.linalg.blas import ddot, dger

from cbwk_core.arrays import FLOAT, Array, Floats, freeze, frozen
from cbwk_core.configuration import Configuration
from cbwk_core.oracles.newton import Newton
from cbwk_core.oracles.newton_state import predicted_with_leverage_of_one
from cbwk_core.rules import dual, gamma, inverse_gap, lagrangian, noise, pace
from cbwk_core.state import LEARNT, OPENED, ROUND, SETTLED, VALUE, State, columns
from cbwk_core.ticket import NULL_ARM, POLICY, Choice, Thought, Ticket

# Up to this many candidates a loop over plain floats is faster than numpy.
CANDIDATES_MAX = 32
_REASON = (POLICY,)
_WHOLE = np.dtype(np.int64)


def serves(policy: Configuration) -> bool:
    """Whether a policy's single requests can be served here."""
    oracle = policy.regressor
    is_linear = isinstance(oracle, Newton) and oracle.link == "identity"
    return policy.variant.value_prices and is_linear and not policy.retired


class Single:
    """The numbers of a policy, ready for loops. Books are the only row of a state's books, as a list."""

    def __init__(self, policy: Configuration) -> None:
        assert isinstance(policy.regressor, Newton), "serves() says so"
        problem, where = policy.problem, columns(policy.resources)
        self.oracle: Newton = policy.regressor
        self.parameters, self.gamma = policy.parameters, policy.gamma
        self.arms, self.resources, self.horizon = policy.arms, policy.resources, policy.horizon
        self.dimension, self.shared = policy.dimension, policy.model == "shared"
        self.budgets = problem.budgets.tolist()
        self.unit, self.rho = problem.unit.tolist(), problem.rho.tolist()
        self.hold = problem.hold.tolist()
        self.holds_in_units = problem.hold / problem.unit
        self.waited, self.position = where.waited.start, where.position
        # Of each resource: ρ, one max cost, B', and its columns.
        starts = (where.position.start, where.energy.start, where.spent.start, where.held.start, where.predicted.start)
        self.terms = [
            (rho, unit, budget, *(start + j for start in starts))
            for j, (rho, unit, budget) in enumerate(zip(self.rho, self.unit, self.budgets, strict=True))
        ]
        # Of each resource: the budget, and the columns of what is spent and held.
        terms = zip(problem.budget, self.terms, strict=True)
        self.accounts = [(budget, spent, held) for budget, (*_, spent, held, _) in terms]
        # One read-only array per arm that `decide` may return, null last, so that index -1 is null here too.
        self.arm_arrays = [frozen(np.array([arm])) for arm in (*range(max(self.arms, CANDIDATES_MAX)), NULL_ARM)]
        self.constant_row = np.ones(self.dimension + 1)
        self.row_bytes = Floats(f"{where.width}d")

    def decide(self, state: State, features: Any, uniforms: Any, free: Any) -> Choice | None:
        """The choice for one request that needs no mask; None for any other, or for arguments of other types."""
        if not self._is_shaped(features) or type(uniforms) is not np.ndarray or uniforms.dtype != FLOAT:
            return None
        books = state.books.tolist()[0]
        if uniforms.shape != (1,) or not 0.0 <= (uniform := uniforms.item()) < 1.0 or books[ROUND] >= self.horizon:
            return None
        if pace.blind_share_of_one(books[OPENED], books[SETTLED], self.budgets, self.rho) < 1.0:
            return None
        if not self._is_affordable(books, free):
            return None
        x = features[0] if self.shared else features
        lifted = self._lifted(x)
        if lifted is None:
            return None
        predictions, leverage = predicted_with_leverage_of_one(state.oracle, lifted)
        if len(leverage) > CANDIDATES_MAX:
            return None
        prices, rate, variance, u = self._quote(state, books)
        charged = self._charged(books, predictions) if books[self.waited] and self._is_late(books) else predictions
        weights = inverse_gap.damped_weights_of_one(lagrangian.scores_of_one(charged, u), leverage, rate, variance)
        arm = inverse_gap.sample_of_one(weights, uniform)
        if arm == len(leverage):
            arm, chosen = NULL_ARM, np.zeros((1, self.dimension))
        else:
            chosen = x[arm : arm + 1].copy() if self.shared else x.copy()
        # One array and views of it: making an array costs more than filling it.
        numbers = np.array([[rate, weights[arm], *weights]])
        price_row = np.array([prices])
        for array in (numbers, chosen, predictions, price_row):
            freeze(array)
        ticket = partial(self._ticket, books, chosen, predictions, arm)
        thought = Thought(predictions[None], price_row, numbers[:, :1])
        return Choice(self.arm_arrays[arm], numbers[0, 1:2], numbers[:, 2:], _REASON, ticket, thought)

    def _is_shaped(self, features: Any) -> bool:
        """Whether features are one request: (1, candidates, dimension) or, for "per_arm", (1, dimension)."""
        if type(features) is not np.ndarray or features.dtype != FLOAT:
            return False
        shape = features.shape
        if self.shared:
            return bool(len(shape) == 3 and shape[0] == 1 and shape[1] > 0 and shape[2] == self.dimension)
        return bool(shape == (1, self.dimension))

    def _is_affordable(self, books: list[float], free: Any) -> bool:
        """Whether one max cost of every resource is free, by the caller's ledger or by the policy's own account."""
        if free is None:
            left = [budget - books[spent] - books[held] for budget, spent, held in self.accounts]
        elif type(free) is list and len(free) == self.resources and set(map(type, free)) == {int}:
            left = free
        elif type(free) is np.ndarray and free.shape == (self.resources,) and free.dtype.kind in "iuf":
            left = free.tolist()
        else:
            return False
        return all(map(ge, left, self.unit)) and isfinite(sum(left))

    def _lifted(self, x: Array) -> Array | None:
        """Features with the constant, if finite: (candidates, m) for "shared", (m,) for "per_arm"."""
        if not self.shared:
            features = x.tolist()[0]
            features.append(1.0)
            return np.array(features) if isfinite(sum(features)) else None
        if not _are_finite(x):
            return None
        lifted: Array = np.ones((len(x), self.dimension + 1))
        lifted[:, :-1] = x
        return lifted

    def _quote(self, state: State, books: list[float]) -> tuple[list[float], float, float, Array]:
        """Prices λ, γ, noise uᵀΣ̂u and the direction u = (1, -λ)."""
        rounds, learnt = books[ROUND], books[LEARNT]
        prices = dual.value_prices_of_one(books[self.position], books[VALUE] / max(rounds, 1.0), self.rho)
        u = lagrangian.direction_of_one(prices)
        variance = noise.noise_of_one(state.residuals[0], learnt, u)
        if self.gamma != "auto":
            return prices, float(self.gamma), variance, u
        gone = state.oracle.forgotten.item()
        rate = gamma.practical_gamma_of_one(self.arms + 1, self.parameters, rounds, variance, learnt, gone)
        return prices, rate, variance, u

    def _delay_and_rest(self, books: list[float]) -> tuple[float, float]:
        """The mean delay of outcomes in rounds, and the rounds left."""
        return books[self.waited] / max(books[SETTLED], 1.0), max(self.horizon - books[ROUND], 1.0)

    def _is_late(self, books: list[float]) -> bool:
        return pace.is_late_for_one(*self._delay_and_rest(books))

    def _paces(self, books: list[float]) -> list[tuple[float, float]]:
        """Of each resource ρ_t, and the share of its hold that a decision counts as at least."""
        delay, rest = self._delay_and_rest(books)
        result = []
        for _, unit, budget, _, _, at_spent, at_held, at_predicted in self.terms:
            unspent, held = budget - books[at_spent] / unit, books[at_held] / unit
            result.append(pace.pace_of_one(unspent, held, books[at_predicted], delay, rest))
        return result

    def _charged(self, books: list[float], predictions: Array) -> Array:
        """Predictions (candidates, 1 + d) with costs that are at least what a decision blocks."""
        shares = np.array([share for _, share in self._paces(books)])
        charged = predictions.copy()
        holds = self.holds_in_units if len(predictions) == self.arms else np.ones(self.resources)
        charged[:, 1:] = pace.blocked(predictions[:, 1:], holds, shares)
        return charged

    def _ticket(self, books: list[float], chosen: Array, predictions: Array, arm: int) -> Ticket:
        """The ticket of a decision: chosen (1, dimension), predictions (candidates, 1 + d)."""
        rho = [each for each, _ in self._paces(books)]
        if arm == NULL_ARM:
            reward, costs = 0.0, [0.0] * self.resources
            hold = costs
        else:
            reward, *costs = predictions[arm].tolist()
            costs = [cost if cost > 0.0 else 0.0 for cost in costs]
            hold = self.hold[arm] if len(predictions) == self.arms else self.unit
        return Ticket.of_one(self.arm_arrays[arm], chosen, reward, costs, rho, books[ROUND], hold)

    def commit(self, state: State, ticket: Ticket) -> State:
        """Count one decision: the round advances, prices move at its predicted costs, its hold is taken."""
        books = state.books.tolist()[0]
        _, value, _, costs, paces, holds = ticket.of_only_row()
        charged = costs
        if books[self.waited] and self._is_late(books):
            shares = [share for _, share in self._paces(books)]
            terms = zip(holds, self.unit, shares, costs, strict=True)
            charged = [pace.blocked_of_one(cost, hold / unit, share) for hold, unit, share, cost in terms]
        books[ROUND] += 1.0
        books[OPENED] += ticket.arm.item() != NULL_ARM
        books[VALUE] += value
        rows = zip(self.terms, costs, charged, paces, holds)  # noqa: B905
        for (even, _, _, position, energy, _, held, predicted), cost, charge, rho, hold in rows:
            books[position], books[energy] = dual.value_step_of_one(
                books[position], books[energy], (charge - rho) / even
            )
            books[held] += hold
            books[predicted] += cost
        return state._replace(books=self._packed(books))

    def settle(self, state: State, ticket: Ticket, reward: float, costs: list[float], learn: bool) -> State:
        """Replace the prediction of one decision for a real arm by its outcome; the oracle learns it if `learn`."""
        books = state.books.tolist()[0]
        expected, _, decided_in, guesses, _, holds = ticket.of_only_row()
        books[OPENED] -= 1.0
        books[SETTLED] += 1.0
        books[self.waited] += max(books[ROUND] - 1.0 - decided_in, 0.0)
        target, surprise = [reward], [reward - expected]
        rows = zip(self.terms, guesses, holds, costs)  # noqa: B905
        for (even, unit, _, position, energy, spent, held, predicted), guess, hold, paid in rows:
            actual = paid / unit
            books[position] = dual.value_replacement_of_one(books[position], books[energy], (actual - guess) / even)
            books[spent] += paid
            books[held] -= hold
            books[predicted] -= guess
            target.append(actual)
            surprise.append(actual - guess)
        if not learn:
            return state._replace(books=self._packed(books))
        books[LEARNT] += 1.0
        lifted, block = self._lifted_row(ticket.features), 0 if self.shared else ticket.arm.item()
        image = state.oracle.solution[0, block].dot(lifted)
        errors = image[self.dimension + 1 :]
        errors -= target
        return self._taught(state, books, block, lifted, image, errors.tolist(), np.array(surprise))

    def learn(self, state: State, features: Any, arm: Any, rewards: Any, costs: Any) -> State | None:
        """Commit and settle one decision for a real arm in one pass; None for anything else, or where it is late.

        Hold and predicted cost come and go, so that held, predicted and opened stay as they are.
        """
        if not self._is_shaped(features) or not _are_finite(features):
            return None
        if type(arm) is not np.ndarray or type(rewards) is not np.ndarray or type(costs) is not np.ndarray:
            return None
        if arm.shape != (1,) or rewards.shape != (1,) or costs.shape != (1, self.resources):
            return None
        if arm.dtype != _WHOLE or rewards.dtype != FLOAT or costs.dtype != FLOAT:
            return None
        played, reward, paid_costs = arm.item(), rewards.item(), costs.tolist()[0]
        candidates = features.shape[1] if self.shared else self.arms
        if not (0 <= played < candidates and isfinite(reward + sum(paid_costs))):
            return None
        books = state.books.tolist()[0]
        if books[self.waited] and self._is_late(books):
            return None
        block = 0 if self.shared else played
        lifted = self._lifted_row(features[0, played] if self.shared else features)
        image = state.oracle.solution[0, block].dot(lifted)
        errors = image[self.dimension + 1 :]
        value, *predicted = errors.tolist()
        if not isfinite(value + sum(predicted)):
            return None
        rest = max(self.horizon - books[ROUND], 1.0)
        books[ROUND] += 1.0
        books[SETTLED] += 1.0
        books[LEARNT] += 1.0
        if value > 0.0:
            books[VALUE] += value
        off, clipped = [value - reward], 0.0
        rows = zip(self.terms, predicted, paid_costs)  # noqa: B905
        for (even, unit, budget, position, energy, spent, _, at_predicted), raw, paid in rows:
            actual, guess, before = paid / unit, raw, books[spent]
            if raw < 0.0:
                guess, clipped = 0.0, raw
            rho, _ = pace.pace_of_one(budget - before / unit, 0.0, books[at_predicted], 0.0, rest)
            moved, books[energy] = dual.value_step_of_one(books[position], books[energy], (guess - rho) / even)
            books[position] = dual.value_replacement_of_one(moved, books[energy], (actual - guess) / even)
            books[spent] = before + paid
            off.append(raw - actual)
        errors[:] = off
        surprise = errors
        if clipped < 0.0:  # the ticket has no cost below 0
            surprise = errors - np.minimum([0.0, *predicted], 0.0)
        return self._taught(state, books, block, lifted, image, off, surprise)

    def _taught(
        self,
        state: State,
        books: list[float],
        block: int,
        lifted: Array,
        image: Array,
        errors: list[float],
        surprise: Array,
    ) -> State:
        """The oracle learns one row; image: A⁻¹φ, then the errors; surprise: how far the ticket was off."""
        residuals = state.residuals.copy()
        dger(1.0, surprise, surprise, 1, 1, residuals[0].T, 1, 1, 1)
        freeze(residuals)
        oracle = self.oracle.update_row(state.oracle, block, lifted, image, errors)
        return State(self._packed(books), oracle, residuals, state.stage)

    def _lifted_row(self, x: Array) -> Array:
        """The features of one candidate, (dimension,) or (1, dimension), with the constant: (m,)."""
        lifted: Array = self.constant_row.copy()
        lifted[:-1] = x
        return lifted

    def _packed(self, books: list[float]) -> Array:
        return np.ndarray((1, len(books)), FLOAT, self.row_bytes.pack(*books))


def _are_finite(features: Array) -> bool:
    numbers = features.ravel()
    return isfinite(ddot(numbers, numbers))
