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
from struct import pack
from typing import Any

import numpy as np
from scipy.linalg.blas import ddot

from cbwk_core.arrays import FLOAT, Array, Floats, Integers, freeze, frozen
from cbwk_core.configuration import Configuration
from cbwk_core.oracles.newton import Newton
from cbwk_core.oracles.newton_state import FORGOTTEN, NewtonState
from cbwk_core.rules import dear_arms, dual, gamma, inverse_gap, lagrangian, noise, pace
from cbwk_core.state import LEARNT, OPENED, ROUND, SETTLED, VALUE, State, columns
from cbwk_core.ticket import NULL_ARM, POLICY, Choice, Thought, Ticket, TicketRow, only_row

# Up to about this many candidates a loop over plain floats is faster than numpy, so that one more costs no jump.
CANDIDATES_MAX = 384
_REASON = (POLICY,)
_WHOLE, _FLAG = np.dtype(np.int64), np.dtype(np.bool_)


def serves(policy: Configuration) -> bool:
    """Whether a policy's single requests can be served here."""
    oracle = policy.regressor
    is_linear = isinstance(oracle, Newton) and oracle.link == "identity"
    return policy.variant.value_prices and is_linear and not policy.retired and not policy.must_play


class Single:
    """The numbers of a policy, ready for loops. Books are the only row of a state's books, as a list."""

    def __init__(self, policy: Configuration) -> None:
        assert isinstance(policy.regressor, Newton), "serves() says so"
        problem, where = policy.problem, columns(policy.resources)
        self.oracle: Newton = policy.regressor
        self.parameters, self.gamma = policy.parameters, None if policy.gamma == "auto" else float(policy.gamma)
        self.in_own_root, self.tries_plausible_arms = policy.surprise_in_own_root, policy.tries_plausible_arms
        self.is_optimistic_at_prices = policy.is_optimistic_at_prices
        self.arms, self.resources, self.horizon = policy.arms, policy.resources, policy.horizon
        self.dimension, self.shared = policy.dimension, policy.model == "shared"
        self.axes = 3 if self.shared else 2  # of features: (1, candidates, dimension) or (1, dimension)
        self.budgets = problem.budgets.tolist()
        self.unit, self.rho = problem.unit.tolist(), problem.rho.tolist()
        self.hold, self.dearest = problem.hold.tolist(), problem.dearest.tolist()
        self.limits_dear_arms = policy.limits_dear_arms and bool((problem.hold != problem.hold[0]).any())
        self.ranges, self.paced, self.energy_kept = policy.ranges, policy.paced, policy.energy_kept
        self.holds_in_units, self.dearest_in_units = problem.hold / problem.unit, problem.dearest / problem.unit
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
        # One read-only array per arm of the policy, null last, so that index -1 is null here too.
        self.arm_arrays = [frozen(np.array([arm])) for arm in (*range(self.arms), NULL_ARM)]
        self.constant_row = np.ones(self.dimension + 1)
        self.books_shape, self.books_bytes = (1, where.width), Floats(f"{where.width}d")

    def decide(
        self, state: Any, features: Any, uniforms: Any, free: Any, pace_limit: Any = None, added: Any = None
    ) -> Choice | None:
        """The choice for one request that needs no mask; None for any other, or for arguments of other types."""
        if type(state) is not State or state.books.shape != self.books_shape:
            return None
        if type(uniforms) is not np.ndarray or uniforms.dtype != FLOAT or uniforms.shape != (1,):
            return None
        if pace_limit is not None and not self._has_floats(pace_limit, above=0.0):
            return None
        if added is not None and not (self._has_floats(added, above=-1e-300) and isfinite(sum(added))):
            return None
        books, uniform = state.books.tolist()[0], uniforms.item()
        if not 0.0 <= uniform < 1.0 or books[ROUND] >= self.horizon or not self._is_affordable(books, free):
            return None
        if pace.blind_share_of_one(books[OPENED], books[SETTLED], self.budgets, self.rho) < 1.0:
            return None
        candidates = self._candidates(features)
        if not 1 <= candidates <= CANDIDATES_MAX:
            return None
        lifted = np.ones((candidates, self.dimension + 1)) if self.shared else self.constant_row.copy()
        lifted[..., :-1] = features[0]
        predictions, leverage = state.oracle.predicted_of_one(lifted)
        rounds, learnt, rate = books[ROUND], books[LEARNT], self.gamma
        prices = dual.value_prices_of_one(books[self.position], books[VALUE] / max(rounds, 1.0), self.rho)
        if added is not None:
            prices = [price + more * unit for price, more, unit in zip(prices, added, self.unit, strict=True)]
        u = lagrangian.direction_of_one(prices)
        if self.ranges is None:
            variance = noise.noise_of_one(state.residuals[0], learnt, u)
            by_arm = [variance] * candidates
        else:
            by_arm = noise.noises_of_one(state.residuals[0], learnt, u * self.ranges)
            variance = sum(by_arm) / candidates
        if rate is None:
            rewards = state.oracle if type(state.oracle) is NewtonState else state.oracle.parts[0]
            gone = rewards.noticed.item(FORGOTTEN)
            rate = gamma.practical_gamma_of_one(self.arms + 1, self.parameters, rounds, variance, learnt, gone)
        charged = self._charged(books, predictions) if books[self.waited] and self._is_late(books) else predictions
        scores = lagrangian.scores_of_one(charged, u)
        limits = self._try_limits(books, lifted, leverage) if self.limits_dear_arms else None
        if added is not None and self.is_optimistic_at_prices:
            weights = inverse_gap.optimistic_weights_of_one(
                scores, leverage, rate, by_arm, self.horizon - rounds, self.parameters, limits
            )
        elif self.tries_plausible_arms:
            share = inverse_gap.played_share_of_one(books[OPENED] + books[SETTLED], rounds)
            weights = inverse_gap.plausible_weights_of_one(
                scores, leverage, rate, by_arm, self.horizon - rounds, share, self.parameters, limits
            )
        else:
            weights = inverse_gap.damped_weights_of_one(scores, leverage, rate, variance, limits)
        arm = inverse_gap.sample_of_one(weights, uniform)
        if arm == candidates:
            arm, chosen = NULL_ARM, np.zeros((1, self.dimension))
        else:
            chosen = features[0, arm : arm + 1].copy() if self.shared else features.copy()
        # One array and views of it: making an array costs more than filling it.
        packed = pack(f"{candidates + 3}d", rate, weights[arm], *weights)
        numbers, price_row = np.ndarray((1, candidates + 3), FLOAT, packed), np.array([prices])
        for array in (chosen, predictions, price_row):
            freeze(array)
        played = self.arm_arrays[arm] if arm < self.arms else frozen(np.array([arm]))
        ticket = partial(self._ticket, books, chosen, predictions, played, pace_limit)
        thought = Thought(predictions[None], price_row, numbers[:, :1])
        return Choice(played, numbers[0, 1:2], numbers[:, 2:], _REASON, ticket, thought)

    def _try_limits(self, books: list[float], lifted: Array, leverage: list[float]) -> list[float] | None:
        """`dear_arms.try_limits_of_one` of a state's own account."""
        if len(leverage) != self.arms:  # with the same max cost for all
            return None
        free = [budget - books[spent] - books[held] for budget, spent, held in self.accounts]
        norms = np.vecdot(lifted, lifted).tolist() if self.shared else [lifted.dot(lifted)] * self.arms
        unknown = [self.oracle.ridge * each / norm for each, norm in zip(leverage, norms, strict=True)]
        return dear_arms.try_limits_of_one(free, self.hold, unknown, self.horizon - books[ROUND])

    def _candidates(self, features: Any) -> int:
        """How many candidates one request has; 0 unless its features have the right type and shape and are finite."""
        if type(features) is not np.ndarray or features.dtype != FLOAT or features.ndim != self.axes:
            return 0
        if len(features) != 1 or features.shape[-1] != self.dimension or not features.size:
            return 0
        numbers = features.ravel()
        if not isfinite(ddot(numbers, numbers)):
            return 0
        return len(features[0]) if self.shared else self.arms

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
        return all(map(ge, left, self.dearest)) and isfinite(sum(left))

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
        holds = self.holds_in_units if len(predictions) == self.arms else self.dearest_in_units
        charged[:, 1:] = pace.blocked(predictions[:, 1:], holds, shares)
        return charged

    def _has_floats(self, values: Any, above: float) -> bool:
        """Whether it is a list of one float for each resource, all above a bound."""
        if type(values) is not list or len(values) != self.resources:
            return False
        return all(type(each) is float and each > above for each in values)

    def _ticket(
        self, books: list[float], chosen: Array, predictions: Array, played: Integers, pace_limit: list[float] | None
    ) -> Ticket:
        """The ticket of a decision: chosen (1, dimension), predictions (candidates, 1 + d), played (1,)."""
        arm, rho = played.item(), [each for each, _ in self._paces(books)]
        if pace_limit is not None:
            rho = [min(each, most / unit) for each, most, unit in zip(rho, pace_limit, self.unit, strict=True)]
        if arm == NULL_ARM:
            reward, costs = 0.0, [0.0] * self.resources
            hold = costs
        else:
            reward, *costs = predictions[arm].tolist()
            costs = [cost if cost > 0.0 else 0.0 for cost in costs]
            hold = self.hold[arm] if len(predictions) == self.arms else self.dearest
        return Ticket.of_one(played, chosen, reward, costs, rho, books[ROUND], hold)

    def commit(self, state: Any, ticket: Any) -> State | None:
        """Count one decision: the round advances, prices move at its predicted costs, its hold is taken.

        None for anything else.
        """
        if type(state) is not State or state.books.shape != self.books_shape:
            return None
        if (row := only_row(ticket, self.resources, self.dimension)) is None:
            return None
        books, charged = state.books.tolist()[0], row.costs
        if books[self.waited] and self._is_late(books):
            shares = [share for _, share in self._paces(books)]
            terms = zip(row.hold, self.unit, shares, row.costs, strict=True)
            charged = [pace.blocked_of_one(cost, hold / unit, share) for hold, unit, share, cost in terms]
        books[ROUND] += 1.0
        books[OPENED] += row.arm != NULL_ARM
        books[VALUE] += row.value
        rows = zip(self.terms, row.costs, charged, row.rho, row.hold)  # noqa: B905
        for (even, _, _, position, energy, _, held, predicted), cost, charge, rho, hold in rows:
            tight = dual.tightness_of_one(rho, even) if self.paced else 1.0
            books[position], books[energy] = dual.value_step_of_one(
                books[position], books[energy], (charge - rho) / even, tight, self.energy_kept
            )
            books[held] += hold
            books[predicted] += cost
        return state._replace(books=np.ndarray(self.books_shape, FLOAT, self.books_bytes.pack(*books)))

    def settle(self, state: Any, ticket: Any, rewards: Any, costs: Any, learn: Any) -> State | None:
        """Replace the prediction of one decision for a real arm by its outcome; the oracle learns it if `learn`.

        None for anything else.
        """
        if type(state) is not State or state.books.shape != self.books_shape:
            return None
        row, outcome = only_row(ticket, self.resources, self.dimension), self._outcome(rewards, costs)
        if row is None or outcome is None or row.arm == NULL_ARM:
            return None
        if type(learn) is not bool:
            if type(learn) is not np.ndarray or learn.dtype != _FLAG or learn.shape != (1,):
                return None
            learn = learn.item()
        if learn and type(state.oracle) is not NewtonState:
            return None
        books, (reward, paid_costs) = state.books.tolist()[0], outcome
        books[OPENED] -= 1.0
        books[SETTLED] += 1.0
        books[self.waited] += max(books[ROUND] - 1.0 - row.round, 0.0)
        target = [reward]
        rows = zip(self.terms, row.costs, row.hold, row.rho, paid_costs)  # noqa: B905
        for (even, unit, _, position, energy, spent, held, predicted), guess, hold, rho, paid in rows:
            actual = paid / unit
            tight = dual.tightness_of_one(rho, even) if self.paced else 1.0
            books[position] = dual.value_replacement_of_one(
                books[position], books[energy], (actual - guess) / even, self.in_own_root, tight
            )
            books[spent] += paid
            books[held] -= hold
            books[predicted] -= guess
            target.append(actual)
        if learn:
            return self._taught_outcome(state, books, ticket.features, row, target)
        return state._replace(books=np.ndarray(self.books_shape, FLOAT, self.books_bytes.pack(*books)))

    def teach(self, state: Any, ticket: Any, rewards: Any, costs: Any) -> State | None:
        """The oracle learns the outcome of one decision for a real arm, accounts and prices stay; None for others."""
        if type(state) is not State or type(state.oracle) is not NewtonState or state.books.shape != self.books_shape:
            return None
        row, outcome = only_row(ticket, self.resources, self.dimension), self._outcome(rewards, costs)
        if row is None or outcome is None or row.arm == NULL_ARM:
            return None
        books, (reward, paid_costs) = state.books.tolist()[0], outcome
        target = [reward, *(paid / unit for paid, unit in zip(paid_costs, self.unit, strict=True))]
        return self._taught_outcome(state, books, ticket.features, row, target)

    def _outcome(self, rewards: Any, costs: Any) -> tuple[float, list[float]] | None:
        """Reward and costs of one outcome, if they are finite and of the right types and shapes."""
        if type(rewards) is not np.ndarray or rewards.dtype != FLOAT or rewards.shape != (1,):
            return None
        if type(costs) is not np.ndarray or costs.dtype != FLOAT or costs.shape != (1, self.resources):
            return None
        reward, paid = rewards.item(), costs.tolist()[0]
        return (reward, paid) if isfinite(reward + sum(paid)) else None

    def _taught_outcome(
        self, state: State, books: list[float], features: Array, row: TicketRow, target: list[float]
    ) -> State:
        """The oracle learns what became of one decision: the target, in place of what its ticket predicted."""
        books[LEARNT] += 1.0
        block, lifted = 0 if self.shared else row.arm, self.constant_row.copy()
        lifted[:-1] = features
        image = state.oracle.solution[0, block].dot(lifted)
        errors = image[self.dimension + 1 :]
        errors -= target
        expected = (row.reward, *row.costs)
        surprise = np.array([actual - guess for actual, guess in zip(target, expected, strict=True)])
        if self.ranges is not None:
            surprise = noise.in_ranges(surprise, np.array(target), self.ranges[row.arm])
        return self._taught(state, books, block, lifted, image, errors.tolist(), surprise)

    def learn(self, state: Any, features: Any, arm: Any, rewards: Any, costs: Any) -> State | None:
        """Commit and settle one decision for a real arm in one pass; None for anything else, or where it is late.

        Hold and predicted cost come and go, so that held, predicted and opened stay as they are.
        """
        if type(state) is not State or type(state.oracle) is not NewtonState or state.books.shape != self.books_shape:
            return None
        candidates, outcome = self._candidates(features), self._outcome(rewards, costs)
        if type(arm) is not np.ndarray or arm.shape != (1,) or arm.dtype != _WHOLE or outcome is None:
            return None
        played, (reward, paid_costs) = arm.item(), outcome
        if not 0 <= played < candidates or self.paced:
            return None
        books = state.books.tolist()[0]
        if books[self.waited] and self._is_late(books):
            return None
        block, lifted = 0 if self.shared else played, self.constant_row.copy()
        lifted[:-1] = features[0, played] if self.shared else features
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
            books[position] = dual.value_replacement_of_one(
                moved, books[energy], (actual - guess) / even, self.in_own_root
            )
            books[spent] = before + paid
            off.append(raw - actual)
        errors[:] = off
        surprise = errors
        if clipped < 0.0:  # the ticket has no cost below 0
            surprise = errors - np.minimum([0.0, *predicted], 0.0)
        if self.ranges is not None:
            costs_in_units = [paid / unit for paid, unit in zip(paid_costs, self.unit, strict=True)]
            surprise = noise.in_ranges(surprise, np.array([reward, *costs_in_units]), self.ranges[played])
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
        return State(
            np.ndarray(self.books_shape, FLOAT, self.books_bytes.pack(*books)),
            self.oracle.update_row(state.oracle, block, lifted, image, errors),
            noise.summed_residuals_of_one(state.residuals, surprise),
            state.stage,
        )
