"""The part that the peers with prices share: the oracle of `practical`, the ledger, and the pace of what is left.

A peer differs from another in two things only: how its prices move (its dual) and how it chooses an arm from scores,
leverages and noise. The rules themselves are those of `cbwk_core/rules`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core import must_play
from cbwk_core.arrays import Array, Integers, Mask, finite, folded, frozen
from cbwk_core.baselines import account as accounts
from cbwk_core.baselines.account import Account
from cbwk_core.baselines.baseline import Baseline
from cbwk_core.baselines.linear import MODELS
from cbwk_core.baselines.policy import Learn
from cbwk_core.oracles.build import build_oracle
from cbwk_core.oracles.newton import Newton
from cbwk_core.oracles.newton_state import NewtonState
from cbwk_core.presets import PRESETS
from cbwk_core.problem import Problem
from cbwk_core.rules import dual, pace
from cbwk_core.rules.inverse_gap import sample
from cbwk_core.rules.lagrangian import direction, scores
from cbwk_core.rules.noise import first_residuals, noise
from cbwk_core.ticket import NULL_ARM, Choice, Ticket

Dual = TypeVar("Dual")


class Books(NamedTuple):
    """What the pace, the prices and the noise count."""

    value: Array  # (lanes,), sum of the predicted rewards of the decisions
    predicted: Array  # (lanes, d), predicted costs of the open decisions, in max costs
    residuals: Array  # (lanes, 1 + d, 1 + d), sum of outer products of the residuals, in the units of the targets
    learnt: Array  # (lanes,), outcomes that the oracle learnt
    settled: Array  # (lanes,), outcomes of real arms
    waited: Array  # (lanes,), sum of the rounds that these outcomes waited
    floor: Array  # (lanes, 1 + 2d), the known costs of the floor arm, as `State.floor`


class PricedState(NamedTuple, Generic[Dual]):
    """The account, the regression, the counts, and what the prices follow from."""

    account: Account
    oracle: NewtonState
    books: Books
    dual: Dual


class ValueDual(NamedTuple):
    """Prices in units of value (`rules/dual.py`)."""

    position: Array  # (lanes, d)
    energy: Array  # (lanes, d)


class View(NamedTuple):
    """What a peer sees of one request per lane."""

    x: Array  # (lanes, arms or 1, dimension + 1), features with the constant
    predictions: Array  # (lanes, arms, 1 + d), the reward, then the costs in max costs, at least 0
    scores: Array  # (lanes, arms + 1), the predicted Lagrangian, null last
    deviations: Array  # (lanes, arms), standard deviation of a score if the residuals were 1/leverage outcomes' mean
    noise: Array  # (lanes, arms), residual variance of the worth of an outcome at the prices


@dataclass(frozen=True, kw_only=True)
class PricedLearner(Baseline, ABC, Generic[Dual]):
    """A policy that plays by predicted Lagrangians at prices that move with the spend.

    The oracle is that of `practical`: Newton with a constant feature, its ridge and its watch. A cost is a share of the
    max cost of its resource, in a "per_arm" model of the max cost of its own arm.

    paced: whether `decide` gets a `pace`, as that of SquareCBwK. Tickets then carry the pace of their round, and prices
    rise as far as it is below the even pace.
    With a floor arm in the problem it must play: masks, values and steps are those of `must_play.py`.
    """

    problem: Problem
    model: str = "shared"
    paced: bool = False

    null_arm = NULL_ARM

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {MODELS}, got {self.model!r}")
        if self.problem.arms < 1:
            raise ValueError("a baseline needs at least one arm, got 0")

    @abstractmethod
    def first_dual(self, lanes: int) -> Dual:
        """Return the dual before the first round."""

    @abstractmethod
    def prices(self, state: PricedState[Dual], rho: Array | None = None) -> Array:
        """Return the prices per max cost, (lanes, d). rho: the pace of the round, if the policy is paced."""

    @abstractmethod
    def moved(self, before: Dual, excess: Array, ticket: Ticket, tight: Array | None) -> Dual:
        """Return the dual after one round of decisions: excess (c - ρ_t) / ρ and tightness (lanes, d)."""

    @abstractmethod
    def replaced(self, before: Dual, difference: Array, tight: Array | None) -> Dual:
        """Return the dual after costs replaced predictions, (c - ĉ) / ρ, at this tightness: (n, lanes, d) each."""

    @abstractmethod
    def weigh(self, state: PricedState[Dual], view: View, allowed: Mask, uniforms: Array) -> tuple[Array, Integers]:
        """Return probabilities (lanes, arms + 1) over the allowed columns, null last, and the best column (lanes,)."""

    @cached_property
    def oracle(self) -> Newton:
        """The regression of the reward and the costs, as `practical` has it."""
        preset = PRESETS["practical"]
        oracle = build_oracle(
            "newton",
            dimension=self.problem.dimension + preset.constant,
            targets=1 + self.resources,
            blocks=self.arms if self.model == "per_arm" else 1,
            preset=preset,
            link="identity",
            forgetting=None,
        )
        return cast(Newton, oracle)

    @cached_property
    def _cost_unit(self) -> Array:
        """One unit of a cost target, (arms, d), in the caller's units."""
        unit = np.broadcast_to(self.problem.unit, self.problem.hold.shape)
        return unit if self.model == "shared" else np.where(self.problem.hold > 0.0, self.problem.hold, unit)

    @cached_property
    def _unit_share(self) -> Array:
        """The units of the cost targets in max costs of their resource, (arms, d)."""
        return np.asarray(self._cost_unit / self.problem.unit)

    def init(self, lanes: int = 1) -> PricedState[Dual]:
        """Return the state before the first round."""
        none = frozen(np.zeros(lanes))
        residuals = first_residuals(lanes, 1 + self.resources)
        floor = frozen(np.zeros((lanes, 1 + 2 * self.resources)))
        books = Books(none, frozen(np.zeros((lanes, self.resources))), residuals, none, none, none, floor)
        account = accounts.new_account(self.problem, lanes)
        return PricedState(account, self.oracle.init(lanes), books, self.first_dual(lanes))

    def paces(self, state: PricedState[Dual]) -> tuple[Array, Array | None]:
        """Return ρ_t and the share of its hold that a decision blocks, as `rules.pace.paces` does."""
        account, books, problem = state.account, state.books, self.problem
        unspent = problem.budgets - account.spent / problem.unit
        held = accounts.held(problem, account) / problem.unit
        rest = np.maximum(problem.horizon - account.round, 1.0)
        return pace.paces(unspent, held, books.predicted, _delay(books)[:, None], rest[:, None])

    def mean_value(self, state: PricedState[Dual]) -> Array:
        """Return R̂, the mean predicted reward of the decisions so far: (lanes,)."""
        return np.asarray(state.books.value / np.maximum(state.account.round, 1.0))

    def predict(self, state: PricedState[Dual], x: Array) -> Array:
        """Return the predicted reward and costs, at least 0 and in max costs, for lifted features (n, k, m + 1)."""
        predictions = self.oracle.predict(state.oracle, x)
        predictions[..., 1:] = np.maximum(predictions[..., 1:] * self._unit_share, 0.0)
        return predictions

    def decide(
        self,
        state: PricedState[Dual],
        features: ArrayLike,
        uniforms: ArrayLike,
        free: Array | None = None,
        pace: Array | None = None,
        prices: ArrayLike | None = None,
    ) -> Choice:
        """Return one arm per lane; null where no affordable arm is worth its price.

        free, pace (lanes, d): what the caller's ledger lets a decision hold, and a round cost, in the caller's units.
        prices: (d,) or (lanes, d), added to those of the peer, in rewards per caller's unit.
        """
        lanes, dimension = state.account.round.size, self.problem.dimension
        shape = (lanes, dimension) if self.model == "per_arm" else (lanes, self.arms, dimension)
        x = finite("features", features, shape)
        u = finite("uniforms", uniforms, (lanes,))
        rho = None if pace is None else np.minimum(self.paces(state)[0], pace / self.problem.unit)
        added = 0.0 if prices is None else np.asarray(prices, dtype=np.float64) * self.problem.unit
        view = self._view(state, _lifted(x[:, None, :] if self.model == "per_arm" else x), rho, added)
        allowed = np.ones((lanes, self.arms + 1), dtype=np.bool_)
        payable = allowed[:, :-1] = accounts.playable(self.problem, state.account, free)
        base = None if self.problem.floor_arm is None else self._masked(state, allowed, free)
        probabilities, best = self.weigh(state, view, allowed, u)
        column = sample(probabilities, best, u)
        if rho is not None:  # prices rest while nothing can be paid, as those of `practical`
            rho = rho * payable.any(axis=1, keepdims=True)
        value = None
        if base is not None:
            value = must_play.beyond(view.predictions, base, np.where(column < self.arms, column, NULL_ARM))
        return self.answer(state, x, view.predictions, payable, column, probabilities, rho, value)

    def _masked(self, state: PricedState[Dual], allowed: Mask, free: Array | None) -> Integers:
        """Mask what the reserve does not leave, in place; return what takes the place of null, (lanes,)."""
        account, books, problem = state.account, state.books, self.problem
        held = accounts.held(problem, account)
        left = np.array(problem.budget) - account.spent - held
        left = left if free is None else np.minimum(left, free)
        floor, known = cast(int, problem.floor_arm), must_play.Costs(books.floor, held, books.predicted, _delay(books))
        base = must_play.masked(
            problem, known, must_play.Floor(floor, None), allowed, problem.hold[None], left, account.round
        )
        return base.candidate

    def _view(self, state: PricedState[Dual], x: Array, rho: Array | None, added: Array | float) -> View:
        predictions = self.predict(state, x)
        prices, (_, blocking) = self.prices(state, rho) + added, self.paces(state)
        charged = predictions
        if blocking is not None:
            charged = predictions.copy()
            holds = self.problem.hold / self.problem.unit
            charged[..., 1:] = pace.blocked(charged[..., 1:], holds, blocking[:, None])
        variance = self._noise(state.books, prices)
        leverage = np.maximum(self.oracle.spread(state.oracle, x), 0.0)
        return View(x, predictions, scores(charged, direction(prices)), np.sqrt(variance * leverage), variance)

    def _noise(self, books: Books, prices: Array) -> Array:
        """Return uᵀΣ̂u for u = (1, -λ·units of the arm): (lanes, arms), or (lanes, 1) where all arms have one unit."""
        units = self._unit_share[:1] if (self._unit_share == self._unit_share[0]).all() else self._unit_share
        by_arm = prices[:, None, :] * units
        u = direction(by_arm.reshape(-1, by_arm.shape[2])).reshape(*by_arm.shape[:2], -1)
        return noise(books.residuals, books.learnt, u)

    def commit(self, state: PricedState[Dual], ticket: Ticket) -> PricedState[Dual]:
        """Count the decisions, take their holds, and move the prices at the predicted costs."""
        for part in folded(ticket.arm.size, state.account.round.size):
            state = self._committed(state, ticket.rows(part))
        return state

    def _committed(self, state: PricedState[Dual], ticket: Ticket) -> PricedState[Dual]:
        books, problem = state.books, self.problem
        rho, blocking = self.paces(state)
        rho = ticket.rho if self.paced else rho
        charged = ticket.costs
        if blocking is not None:
            charged = pace.blocked(charged, ticket.hold / problem.unit, blocking)
        earned = np.maximum(ticket.reward, 0.0) if problem.floor_arm is None else ticket.value
        tight = self.tightness(ticket.rho if self.paced else rho, state.books.floor)
        books = books._replace(
            value=frozen(books.value + earned * (ticket.arm != NULL_ARM)),
            predicted=frozen(books.predicted + ticket.costs),
        )
        return state._replace(
            account=accounts.committed(state.account, ticket.arm),
            books=books,
            dual=self.moved(state.dual, (charged - rho) / problem.rho, ticket, tight),
        )

    def settle(
        self,
        state: PricedState[Dual],
        tickets: Ticket,
        rewards: ArrayLike,
        costs: ArrayLike,
        learn: Learn = True,
    ) -> PricedState[Dual]:
        """Book the costs, move the prices by what was not predicted, and learn the rows where `learn` is true."""
        rows, lanes = tickets.arm.size, state.account.round.size
        real = tickets.arm != NULL_ARM
        y = finite("rewards", rewards, (rows,))
        c = finite("costs", costs, (rows, self.resources)) * real[:, None]
        weight = (real & learn).astype(np.float64)
        books = self._closed(state.books, tickets, lanes)
        oracle, books = self._learnt(state.oracle, books, tickets, y, c, weight)
        difference = (c / self.problem.unit - tickets.costs) / self.problem.rho
        floors = state.books.floor[None]
        if self.problem.floor_arm is not None:
            paid = c.reshape(-1, lanes, self.resources)
            floors = must_play.floors(self.problem, state.books.floor, tickets.arm, paid, real)
        tight = self.tightness(tickets.rho.reshape(-1, lanes, self.resources), floors[:-1])
        waited = np.maximum(state.account.round - 1.0 - tickets.round.reshape(-1, lanes), 0.0)
        of_real = real.reshape(-1, lanes)
        books = books._replace(
            settled=books.settled + of_real.sum(axis=0),
            waited=books.waited + (waited * of_real).sum(axis=0),
            floor=frozen(floors[-1]),
        )
        moved = self.replaced(state.dual, difference.reshape(-1, lanes, self.resources), tight)
        return PricedState(accounts.settled(state.account, tickets.arm, c), oracle, books, moved)

    def teach(
        self,
        state: PricedState[Dual],
        tickets: Ticket,
        rewards: ArrayLike,
        costs: ArrayLike,
        learn_reward: Learn = True,
        learn_costs: Learn = True,
    ) -> PricedState[Dual]:
        """Learn whole outcomes of decisions that were settled with learn=False; the account and the prices stay."""
        assert np.array_equal(learn_reward, learn_costs), "a peer does not learn costs before their reward"
        rows = tickets.arm.size
        y, c = finite("rewards", rewards, (rows,)), finite("costs", costs, (rows, self.resources))
        weight = ((tickets.arm != NULL_ARM) & learn_reward).astype(np.float64)
        oracle, books = self._learnt(state.oracle, state.books, tickets, y, c, weight)
        return state._replace(oracle=oracle, books=books)

    def _learnt(
        self, oracle: NewtonState, books: Books, tickets: Ticket, rewards: Array, costs: Array, weight: Array
    ) -> tuple[NewtonState, Books]:
        """Return the regression and the books after the outcomes that have weight."""
        if not weight.any():
            return oracle, books
        arm = np.maximum(tickets.arm, 0)
        targets = np.concatenate([rewards[:, None], costs / self._cost_unit[arm]], axis=1)
        block = arm if self.model == "per_arm" else None
        taught = self.oracle.update(oracle, _lifted(tickets.features), targets, block, weight)
        return taught, self._with_residuals(books, tickets, targets, weight, len(books.learnt))

    def cancel(self, state: PricedState[Dual], tickets: Ticket) -> PricedState[Dual]:
        """Release the holds and move the prices as a cost of 0 does; the regression does not change."""
        lanes = state.account.round.size
        difference = (-tickets.costs / self.problem.rho).reshape(-1, lanes, self.resources)
        tight = self.tightness(tickets.rho.reshape(-1, lanes, self.resources), state.books.floor)
        return state._replace(
            account=accounts.cancelled(state.account, tickets.arm),
            books=self._closed(state.books, tickets, lanes),
            dual=self.replaced(state.dual, difference, tight),
        )

    def tightness(self, rho: Array, floor: Array) -> Array | None:
        """Return how far these paces, less the cost of a floor arm, are below the even pace: as `rho`, (..., lanes, d).

        floor: `Books.floor` at each of them. None if the policy is not paced and has no floor arm.
        """
        if self.problem.floor_arm is not None:
            return must_play.tightness(self.problem, rho, floor)
        return dual.tightness(rho, self.problem.rho) if self.paced else None

    def _closed(self, books: Books, tickets: Ticket, lanes: int) -> Books:
        """Return the books without the predictions of these decisions."""
        closed = tickets.costs.reshape(-1, lanes, self.resources)
        return books._replace(predicted=frozen(dual.accumulated(books.predicted, -closed)[-1]))

    def _with_residuals(self, books: Books, tickets: Ticket, targets: Array, weight: Array, lanes: int) -> Books:
        arm = np.maximum(tickets.arm, 0)
        predicted = np.concatenate([tickets.reward[:, None], tickets.costs / self._unit_share[arm]], axis=1)
        surprise = (targets - predicted) * weight[:, None]
        outer = (surprise[:, :, None] * surprise[:, None, :]).reshape(-1, *books.residuals.shape)
        return books._replace(
            residuals=frozen(dual.accumulated(books.residuals, outer)[-1]),
            learnt=books.learnt + weight.reshape(-1, lanes).sum(axis=0),
        )


@dataclass(frozen=True, kw_only=True)
class ValuePriced(PricedLearner[ValueDual]):
    """A peer whose prices move as those of `practical` do: in units of value, by relative steps."""

    def first_dual(self, lanes: int) -> ValueDual:
        """Return prices of 0."""
        zeros = frozen(np.zeros((lanes, self.resources)))
        return ValueDual(zeros, zeros)

    def prices(self, state: PricedState[ValueDual], rho: Array | None = None) -> Array:
        """Return λ = p·R̂/ρ per max cost, ρ the even pace: (lanes, d)."""
        del rho
        return dual.value_prices(state.dual.position, self.mean_value(state), self.problem.rho[None])

    def moved(self, before: ValueDual, excess: Array, ticket: Ticket, tight: Array | None) -> ValueDual:
        """Return the dual after one step."""
        del ticket
        each, kept = None if tight is None else tight[None], dual.energy_kept(self.paced)
        return ValueDual(*dual.value_steps(before.position, before.energy, excess[None], each, kept))

    def replaced(self, before: ValueDual, difference: Array, tight: Array | None) -> ValueDual:
        """Return the dual after the steps of the surprises."""
        return before._replace(
            position=dual.value_replacements(before.position, before.energy, difference, tight, in_own_root=True)
        )


def _delay(books: Books) -> Array:
    """Return the mean number of rounds between a decision and its outcome, (lanes,)."""
    return np.asarray(books.waited / np.maximum(books.settled, 1.0))


def _lifted(x: Array) -> Array:
    """Return the features with a constant one appended."""
    lifted = np.ones((*x.shape[:-1], x.shape[-1] + 1))
    lifted[..., :-1] = x
    return lifted
