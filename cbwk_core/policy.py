"""SquareCBwK (Algorithm 1), with Algorithm 2 around it: one round is decide, commit, settle.

Everything here is pure: a policy is a frozen configuration, a state goes in and another comes out, randomness is the
`uniforms` argument. DESIGN.md maps the paper's symbols and says what `practical` does differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core import model as models
from cbwk_core import must_play, single, snapshot, stage_estimate, two_stage
from cbwk_core import round as rows_round
from cbwk_core.arguments import (
    checked_arms,
    checked_free,
    checked_learn,
    checked_pace,
    checked_prices,
    checked_uniforms,
)
from cbwk_core.arrays import Array, Integers, are_finite, finite, folded, frozen
from cbwk_core.configuration import Configuration
from cbwk_core.oracles.halves import split
from cbwk_core.quoting import quote
from cbwk_core.round import Request
from cbwk_core.rules import dual
from cbwk_core.rules.noise import first_residuals, mean_squares
from cbwk_core.single import Single
from cbwk_core.state import Quote, State, new_books, read_books, width_of
from cbwk_core.ticket import NULL_ARM, Choice, Ticket, checked_ticket


@dataclass(frozen=True, kw_only=True)
class SquareCBwK(Configuration):
    """Contextual bandits with knapsacks by regression oracles.

    arms, dimension, resources, horizon: K without the null arm, m, d, T.
    budget: per resource or one for all; max_cost: also per arm, the hold of a decision.
    model: "shared" (every candidate has its own features) or "per_arm" (one context, parameters per arm).
    preset: "practical", "paper" or "authors". oracle: "newton", "gradient", "aggregate", "kernel" or an Oracle.
    link: "identity" or "logistic", for the reward, and in `practical` with "newton" for the costs too.
    forgetting: the weight old data keeps at each update, ½ to below 1; 1 keeps all of it; None keeps all of it until
        the errors show that the world has changed.
    gamma, z: numbers that replace the preset's.
    two_stage: False or "off"; "paper" (Algorithm 2 with the paper's margin); True or "measured" (with a margin measured
        from the outcomes); "auto": the policy decides.
    retired: arms that are not played; a successor may play them again.
    unit, arm_unit: what costs, and the noise of each arm's costs, are counted in; None is the largest and each own
        max cost. A successor with other max costs keeps both, so that open tickets and residuals keep their meaning.
    paced: whether `decide` gets a `pace`; prices of `practical` then rise as far as it is below the even pace.
    must_play, floor_arm: every request gets an arm as long as one can be paid. What the floor arm needs for the rounds
        left stays in reserve, and arms are judged by what they earn beyond it (`must_play.py`).
    stage_one: "uniform" draws its arms instead of playing them in the paper's order; with "logged" the caller also
        keeps its outcomes.
    rules: the version of the rules, so that a stored campaign goes on as it began.

    >>> policy = SquareCBwK(arms=2, dimension=3, resources=1, horizon=100, budget=50)
    >>> choice = policy.decide(policy.init(), np.eye(3)[None, :2], [0.4])
    >>> choice.arm, choice.probability.round(3)
    (array([0]), array([0.667]))
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        two_stage.check(self)

    @cached_property
    def unmet_condition(self) -> str | None:
        """The condition of theorem 4.2 that two stages do not meet, in a sentence; None if all hold or with one stage.

        >>> SquareCBwK(arms=1, dimension=1, resources=1, horizon=1000, budget=900, preset="paper").unmet_condition
        """
        return two_stage.unmet_condition(self.problem, self.rules) if two_stage.length(self) else None

    @cached_property
    def _single(self) -> Single | None:
        """What a call asks first: it serves one row of one lane, and leaves all else (None) to `round`."""
        return Single(self) if single.serves(self) else None

    def _update(self, state: State) -> Any:
        """The oracle's `update`, without its checks where it has that: rows are checked here."""
        oracle = self.regressor_of(state.oracle)
        return getattr(oracle, "update_unchecked", oracle.update)

    def init(self, lanes: int = 1) -> State:
        """The state before the first round."""
        if isinstance(lanes, bool) or not isinstance(lanes, int | np.integer) or lanes < 1:
            raise ValueError(f"lanes must be a whole number of at least 1, got {lanes!r}")
        start = None if self.variant.value_prices else dual.entropic_start(lanes, self.resources)
        return State(
            books=new_books(lanes, self.resources, start, has_floor=self.must_play),
            oracle=self.regressor.init(lanes),
            residuals=frozen(first_residuals(lanes, 1 + self.resources)),
            stage=two_stage.first_stage(self, lanes),
        )

    def quote(self, state: State) -> Quote:
        """Prices, pace and learning rate of the next decision."""
        self._lanes(state)
        return quote(self, self.problem.rows, state, self.forgotten(state.oracle))

    def decide(
        self,
        state: State,
        features: ArrayLike,
        uniforms: ArrayLike,
        exclude: ArrayLike | None = None,
        free: ArrayLike | None = None,
        holds: ArrayLike | None = None,
        pace: ArrayLike | None = None,
        prices: ArrayLike | None = None,
        kept: ArrayLike | None = None,
        floor: int | None = None,
    ) -> Choice:
        """Choose an arm for each of n requests; the state does not advance.

        features: (n, candidates, dimension) or, for "per_arm", (n, dimension). uniforms: (n,) in [0, 1).
        exclude: (n, candidates) bool, candidates not to play (also the padding of ragged requests).
        free: (d,) what the caller's ledger has left, in its units; without it the policy's own account decides.
        holds: (candidates, d) or (n, candidates, d) where a request's holds differ from the policy's max costs.
        pace: (d,) or (n, d) what a round may cost where that is less than the policy's own pace, in the caller's units.
        prices: (d,) or (lanes, d), added to the policy's own, in rewards per caller's unit: see `shared_prices`.
        kept: must play: (d,) what must stay free for the floor arm, in place of the policy's own reserve.
        floor: must play: which candidate is the floor arm, if candidates are not the arms; -1 if none is.
        """
        one = self._single if exclude is None and holds is None and kept is None and floor is None else None
        if one is not None and (choice := one.decide(state, features, uniforms, free, pace, prices)) is not None:
            return choice
        lanes, x = self._lanes(state), self.checked_features(features)
        rows = len(x)
        if lanes not in (1, rows):
            raise ValueError(f"a state of {lanes} lanes decides {lanes} requests at once, got {rows}")
        predictions, leverage = self._predicted(state, x)
        candidates = predictions.shape[1]
        request = Request(
            x,
            predictions,
            leverage if self.variant.value_prices else None,
            self.asked(exclude, rows, candidates),
            self.holds(holds, rows, candidates),
            checked_uniforms(uniforms, rows),
            None if pace is None else checked_pace(pace, rows, self.resources) / self.problem.unit,
            None if prices is None else checked_prices(prices, lanes, self.resources) * self.problem.unit,
            must_play.checked_floor(self, kept, floor, candidates),
        )
        account = self._account(state, free)
        return rows_round.decide(self, self.problem.rows, state, self.forgotten(state.oracle), request, account)

    def predict(self, state: State, features: ArrayLike) -> Array:
        """Reward, then costs in max costs, predicted for every candidate: (n, candidates, 1 + d)."""
        self._lanes(state)
        return self.regressor_of(state.oracle).predict(state.oracle, self.lifted(self.checked_features(features)))

    def _predicted(self, state: State, x: Array) -> tuple[Array, Array | None]:
        """Predictions (n, candidates, 1 + d) and leverages (n, candidates), by one product where the oracle can."""
        lifted, oracle = self.lifted(x), self.regressor_of(state.oracle)
        if hasattr(oracle, "predict_with_leverage"):
            found: tuple[Array, Array | None] = oracle.predict_with_leverage(state.oracle, lifted)
            return found
        return oracle.predict(state.oracle, lifted), oracle.spread(state.oracle, lifted)

    def reserve(self, state: State, rounds: float) -> Array:
        """Must play: what the floor arm needs for that many rounds, (lanes, d) in the caller's units."""
        self._lanes(state)
        checked = must_play.checked_rounds(self, rounds, len(state.books))
        return must_play.needed(self.problem, must_play.costs_of(state), checked)

    def changes(self, state: State) -> Integers:
        """How often the oracle has restarted because the world has changed, (lanes,); 0 if it does not watch."""
        return np.full(self._lanes(state), getattr(state.oracle, "changes", 0), dtype=np.int64)

    def dismissed_alarms(self, state: State) -> Integers:
        """How often the oracle suspected a change that outcomes did not confirm, (lanes,): many mean a wrong model."""
        return np.full(self._lanes(state), getattr(state.oracle, "dismissed", 0), dtype=np.int64)

    def mean_squared_errors(self, state: State) -> Array:
        """The mean squared error of predictions, of the reward and of the costs in max costs: (lanes, 1 + d)."""
        self._lanes(state)
        return mean_squares(state.residuals, state.learnt)

    def is_finite(self, state: State) -> bool:
        """Whether all parameters of the oracle and the residuals are finite; if not, no prediction is worth anything.

        >>> policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=10, budget=5)
        >>> policy.is_finite(policy.init()), policy.is_finite(policy.init()._replace(residuals=np.array([[[np.inf]]])))
        (True, False)
        """
        self._lanes(state)
        parts = getattr(state.oracle, "parts", (state.oracle,))
        return are_finite((state.residuals, *[getattr(part, "theta", part) for part in parts]))

    def commit(self, state: State, ticket: Ticket) -> State:
        """Count n decisions, null ones too: rounds advance, prices move at predicted costs, holds are taken."""
        if self._single is not None and (after := self._single.commit(state, ticket)) is not None:
            return after
        rows = checked_ticket(ticket, self._lanes(state), self.resources, self.dimension)
        return rows_round.commit(self, self.problem.rows, state, ticket) if rows else state

    def settle(
        self, state: State, tickets: Ticket, rewards: ArrayLike, costs: ArrayLike, learn: ArrayLike = True
    ) -> State:
        """Replace predictions by outcomes, in any order, at any time: oracles learn where `learn`, prices are trued up.

        rewards (n,), costs (n, d) in the caller's units; a null decision has none (0).
        """
        if self._single is not None and (after := self._single.settle(state, tickets, rewards, costs, learn)):
            return after
        rows, reward, cost = self._outcome(state, tickets, rewards, costs)
        real = tickets.arm != NULL_ARM
        weight = (real & checked_learn(learn, rows)).astype(np.float64)
        if not rows:
            return state
        target, paid = self._targets(reward, cost), cost * real[:, None]
        released = rows_round.release(self, state, tickets, paid, target, weight, settled=real)
        return rows_round.teach(self, self._update(released), released, tickets, target, weight)

    def teach(
        self,
        state: State,
        tickets: Ticket,
        rewards: ArrayLike,
        costs: ArrayLike,
        learn_reward: ArrayLike = True,
        learn_costs: ArrayLike = True,
    ) -> State:
        """Let the oracle learn outcomes of decisions that were settled with learn=False: accounts and prices stay.

        For outcomes that another process has settled, and for rewards that come after the costs. Where the policy
        `learns_costs_first`, it learns the costs alone when they come (learn_reward=False; any reward is passed) and
        the reward alone later (learn_costs=False; the costs are passed again), which completes the outcome.
        """
        one = self._single if learn_reward is True and learn_costs is True else None
        if one is not None and (after := one.teach(state, tickets, rewards, costs)):
            return after
        rows, reward, cost = self._outcome(state, tickets, rewards, costs)
        real = tickets.arm != NULL_ARM
        asked = {"learn_reward": learn_reward, "learn_costs": learn_costs}
        flags = [real & checked_learn(learn, rows, name) for name, learn in asked.items()]
        if not rows:
            return state
        apart = (flags[0] != flags[1]).any()
        if apart and not self.learns_costs_first:
            raise ValueError("this policy learns an outcome when both halves are known")
        weight = flags[0].astype(np.float64)
        counted = state.booked(learnt=weight.reshape(-1, len(state.books)).sum(axis=0))
        if apart:
            counted = counted._replace(oracle=split(state.oracle))
        update = learn = self._update(counted)
        if apart:  # the oracle learns the halves of each row; residuals count with the reward
            halves = np.repeat(np.column_stack(flags), [1, self.resources], axis=1).astype(np.float64)
            update = lambda oracle, x, y, block, _: learn(oracle, x, y, block, halves)  # noqa: E731
        return rows_round.teach(self, update, counted, tickets, self._targets(reward, cost), weight)

    def cancel(self, state: State, tickets: Ticket) -> State:
        """Void n decisions: their holds and predicted costs go back, nothing is learnt."""
        rows = checked_ticket(tickets, self._lanes(state), self.resources, self.dimension)
        nothing, target = np.zeros((rows, self.resources)), np.zeros((rows, 1 + self.resources))
        none, weight = np.zeros(rows, dtype=bool), np.zeros(rows)
        return rows_round.release(self, state, tickets, nothing, target, weight, none) if rows else state

    def correct(self, state: State, tickets: Ticket, costs: ArrayLike) -> State:
        """Signed costs (n, d) on top of what was settled or cancelled: prices move, oracles do not learn."""
        rows = checked_ticket(tickets, self._lanes(state), self.resources, self.dimension)
        cost = finite("costs", costs, (rows, self.resources))
        return rows_round.correct(self, state, cost) if rows else state

    def _outcome(self, state: State, tickets: Ticket, rewards: ArrayLike, costs: ArrayLike) -> tuple[int, Array, Array]:
        """How many tickets there are, and their rewards (n,) and costs (n, d), checked."""
        rows = checked_ticket(tickets, self._lanes(state), self.resources, self.dimension)
        return rows, finite("rewards", rewards, (rows,)), finite("costs", costs, (rows, self.resources))

    def _targets(self, reward: Array, cost: Array) -> Array:
        """What the oracle learns, (n, 1 + d): the reward, then the costs in max costs."""
        target = np.empty((len(reward), 1 + self.resources))
        target[:, 0] = reward
        np.divide(cost, self.problem.unit, out=target[:, 1:])
        return target

    def learn(self, state: State, features: ArrayLike, arm: ArrayLike, rewards: ArrayLike, costs: ArrayLike) -> State:
        """Undelayed loops: for each row in order exactly commit, then settle."""
        if self._single is not None and (after := self._single.learn(state, features, arm, rewards, costs)):
            return after
        lanes, x = self._lanes(state), self.checked_features(features)
        rows = len(x)
        arms = checked_arms(arm, rows, (x.shape[1] if self.model == "shared" else self.arms) - 1)
        reward = finite("rewards", rewards, (rows,))
        cost = finite("costs", costs, (rows, self.resources))
        if rows % lanes:
            raise ValueError(f"rows must be a multiple of the state's {lanes} lanes, got {rows}")
        for part in folded(rows, lanes):
            predictions, _ = self._predicted(state, x[part])
            holds = self.holds(None, lanes, predictions.shape[1])
            request = Request(x[part], predictions, None, None, holds, np.zeros(lanes))
            base = must_play.base_of(self, lanes, predictions.shape[1]) if self.must_play else None
            ticket = rows_round.ticket(self, self.quote(state), request, state.round, arms[part], base)
            state = self.settle(self.commit(state, ticket), ticket, reward[part], cost[part])
        return state

    def refresh_due(self, state: State) -> bool:
        """Whether `refresh` has something to do: stage one has ended and all its decisions are settled or cancelled."""
        self._lanes(state)
        return two_stage.due(self, state.stage, state.round)

    def refresh(self, state: State) -> State:
        """End stage one: estimate OPT, set the radius, start Algorithm 1 on what is left."""
        if not self.refresh_due(state):
            raise ValueError("refresh is for when refresh_due says so: stage one is not over")
        found = stage_estimate.estimate(self, state.stage, two_stage.mode_of(self))
        return two_stage.second_stage(self, state, found.radius)

    def adopt(self, older: SquareCBwK, state: State) -> State:
        """Carry a state over from an older policy: other budgets, horizon, max costs, arms added, retired, returned.

        Nothing learnt is lost; prices per unit of cost stay as they were and move on from there.
        """
        self._check_successor(older)
        self._lanes(state)
        stage = two_stage.adopt(self, older, state.stage)
        oracle = state.oracle
        if self.regressor.blocks > older.regressor.blocks:
            oracle = older.regressor_of(oracle).resize(oracle, self.regressor.blocks)
        if self.variant.value_prices:
            position = dual.value_rescaled(state.position, self.problem.rho / older.problem.rho)
            return state.replaced(position=position)._replace(oracle=oracle, stage=stage)
        prices = older.quote(state).prices
        weights = dual.entropic_restored(prices, stage.radius, two_stage.scale(stage))
        return state.replaced(log_weights=weights)._replace(oracle=oracle, stage=stage)

    def _check_successor(self, older: SquareCBwK) -> None:
        if not isinstance(older, SquareCBwK):
            raise ValueError(f"older must be a SquareCBwK, got {type(older).__name__}")
        for name in ("dimension", "resources", "model", "preset", "oracle", "link", "forgetting", "rules"):
            if getattr(self, name) != getattr(older, name):
                raise ValueError(f"{name} cannot change, was {getattr(older, name)!r}, got {getattr(self, name)!r}")
        if self.arms < older.arms:
            raise ValueError(f"arms are retired, not removed: there were {older.arms}, got {self.arms}")
        if (self.problem.unit != older.problem.unit).any():
            raise ValueError(f"the unit of costs cannot change: pass unit={older.problem.unit.tolist()}")
        if older.arms and (self.problem.arm_unit[: older.arms] != older.problem.arm_unit).any():
            raise ValueError(f"arm_unit cannot change: pass arm_unit with {older.problem.arm_unit.tolist()}")

    def encode(self, state: State) -> bytes:
        """The state as versioned, checksummed bytes; only this very configuration decodes them."""
        self._lanes(state)
        return snapshot.encode(state, fingerprint=self.fingerprint)

    def decode(self, data: bytes) -> State:
        """The state of `encode`; a ValueError if the bytes are damaged or belong to another policy."""
        blank = self.init()._replace(oracle=models.blank_oracle(self, data))
        state: State = snapshot.decode(data, blank, fingerprint=self.fingerprint)
        return state._replace(books=self.read_books(state.books))

    def read_books(self, numbers: ArrayLike) -> Array:
        """Stored books as this version of the library has them: (lanes, columns)."""
        prices = self.variant.value_prices
        return read_books(numbers, self.resources, value_prices=prices, has_floor=self.must_play)

    def encode_model(self, state: State) -> bytes:
        """The model of the state as bytes that any policy of the same shape decodes, whatever its budgets."""
        self._lanes(state)
        return models.encode(self, state)

    def decode_model(self, data: bytes) -> models.Model:
        """The model of `encode_model` in this policy's units, for `model.with_model`.

        A ValueError if it is damaged, of another shape, or in units that cannot be converted.
        """
        return models.decode(self, data)

    def _lanes(self, state: State) -> int:
        """How many lanes the state has, if it is one for as many resources."""
        if not isinstance(state, State):
            raise ValueError(f"state must be a State of this policy, got {type(state).__name__}")
        if state.books.shape[1] != self._width:
            raise ValueError(f"state must be one for {self.resources} resources, got one for {state.resources}")
        return len(state.books)

    @cached_property
    def _width(self) -> int:
        return width_of(self.resources, has_floor=self.must_play)

    def _account(self, state: State, free: ArrayLike | None) -> Array:
        """What is free to hold, (lanes, d): by the caller's ledger, or by the policy's own account."""
        if free is None:
            return np.asarray(np.asarray(self.problem.budget) - state.spent - state.held)
        return checked_free(free, len(state.books), self.resources)
