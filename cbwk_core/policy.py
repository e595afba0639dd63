"""SquareCBwK (Algorithm 1), with Algorithm 2 around it: one round is decide, commit, settle.

Everything here is pure: a policy is a frozen configuration, a state goes in and another comes out, randomness is the
`uniforms` argument. See DESIGN.md for the paper's symbols and for what `practical` does differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core import decision, plain, snapshot, two_stage
from cbwk_core import model as models
from cbwk_core.arguments import (
    checked_arms,
    checked_exclude,
    checked_free,
    checked_holds,
    checked_learn,
    checked_retired,
    checked_uniforms,
    positive_or_auto,
)
from cbwk_core.arrays import Array, Integers, finite, folded, frozen
from cbwk_core.oracles.build import build_oracle
from cbwk_core.oracles.oracle import Oracle
from cbwk_core.oracles.product import changes, forgotten
from cbwk_core.presets import (
    NOISE_MIN,
    PRESETS,
    PRICE_CEILING,
    PRICE_CORRECTION,
    PRICE_STEP,
    Preset,
    first_residuals,
    practical_gamma,
    residual_covariance,
)
from cbwk_core.problem import NULL_ARM, Choice, Problem, Thought, Ticket, checked_ticket, taken
from cbwk_core.rules import gamma as schedules
from cbwk_core.rules.dual import DualState, EntropicDual, ValueDual
from cbwk_core.rules.lagrangian import lagrangian_direction
from cbwk_core.rules.pace import paces_of
from cbwk_core.state import Quote, State, layout, new_books

MODELS = ("shared", "per_arm")
ENTROPIC, _NO_UNIFORMS = EntropicDual(), frozen(np.zeros(0))
VALUED = ValueDual(PRICE_STEP, PRICE_CEILING, PRICE_CORRECTION)


@dataclass(frozen=True, kw_only=True)
class SquareCBwK:
    """Contextual bandits with knapsacks by regression oracles.

    arms, dimension, resources, horizon: K without the null arm, m, d, T.
    budget: per resource or one for all; max_cost: also per arm, the hold of a decision.
    model: "shared" (every candidate has its own features) or "per_arm" (one context, parameters per arm).
    preset: "practical", "paper" or "authors". oracle: "newton", "gradient", "aggregate", "kernel" or an Oracle.
    link: "identity" or "logistic", for the reward, and in `practical` with "newton" for the costs too.
    forgetting: weight old data keeps at each update; None: all of it until outcomes say that the world has changed.
    gamma, z: numbers that replace the preset's. two_stage: "auto", True or False. retired: arms never played again.
    stage_one: "uniform" draws its arms instead of the paper's turns; "logged" too, and the caller keeps its outcomes.

    >>> policy = SquareCBwK(arms=2, dimension=3, resources=1, horizon=100, budget=50)
    >>> choice = policy.decide(policy.init(), np.eye(3)[None, :2], [0.4])
    >>> choice.arm, choice.probability.round(3)
    (array([0]), array([0.667]))
    """

    arms: int
    dimension: int
    resources: int
    horizon: int
    budget: Any
    max_cost: Any = 1.0
    model: str = "shared"
    preset: str = "practical"
    oracle: Any = "newton"
    link: str = "identity"
    forgetting: float | None = None
    gamma: float | str = "auto"
    z: float | str = "auto"
    two_stage: bool | str = "auto"
    retired: tuple[int, ...] = ()
    stage_one: str = "auto"

    null_arm = NULL_ARM

    def __post_init__(self) -> None:
        problem = self.problem
        object.__setattr__(self, "budget", problem.budget)
        object.__setattr__(self, "max_cost", problem.max_cost)
        for name in ("arms", "dimension", "resources", "horizon"):
            object.__setattr__(self, name, getattr(problem, name))
        object.__setattr__(self, "retired", checked_retired(self.retired, self.arms))
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {MODELS}, got {self.model!r}")
        if self.model == "per_arm" and self.arms < 1:
            raise ValueError(f"a per_arm model needs at least 1 arm, got {self.arms}")
        if self.preset not in tuple(PRESETS):
            raise ValueError(f"preset must be one of {sorted(PRESETS)}, got {self.preset!r}")
        for name in ("gamma", "z"):
            object.__setattr__(self, name, positive_or_auto(name, getattr(self, name)))
        two_stage.check(self)
        _ = self._oracle

    @cached_property
    def problem(self) -> Problem:
        """Sizes, budgets and max costs, checked."""
        return Problem.of(
            arms=self.arms,
            dimension=self.dimension,
            resources=self.resources,
            horizon=self.horizon,
            budget=self.budget,
            max_cost=self.max_cost,
        )

    @cached_property
    def rules(self) -> Preset:
        """What the preset stands for."""
        return PRESETS[self.preset]

    @cached_property
    def _oracle(self) -> Oracle[Any]:
        return self.make_oracle(self.arms if self.model == "per_arm" else 1)

    def make_oracle(self, blocks: int) -> Oracle[Any]:
        """The policy's kind of oracle with that many parameter blocks."""
        return build_oracle(
            self.oracle,
            dimension=self.dimension + self.rules.constant,
            targets=1 + self.resources,
            blocks=blocks,
            preset=self.rules,
            link=self.link,
            forgetting=self.forgetting,
        )

    @property
    def notebook_gamma(self) -> bool:
        """Whether γ is that of the authors' code."""
        return self.rules.notebook_gamma

    def oracle_regrets(self, rounds: int) -> tuple[float, float]:
        """Reg_sq^r and Reg_sq^c of the policy's oracle over that many rounds, constants 1 where the paper has O(·)."""
        oracle = self._oracle
        if self.oracle == "gradient":
            return rounds**0.5, self.resources * rounds**0.5
        if self.oracle == "aggregate":
            bound = oracle.error_bound(rounds)
            return bound, self.resources * bound
        return schedules.linear_oracle_regrets(oracle.dimension * oracle.blocks, self.resources, rounds)

    @cached_property
    def _predict(self) -> Any:
        """The oracle's `predict` without its checks, where it has such a thing: features are checked here."""
        return getattr(self._oracle, "trusting_predict", self._oracle.predict)

    @cached_property
    def _spread(self) -> Any:
        return getattr(self._oracle, "trusting_spread", self._oracle.spread)

    @cached_property
    def _update(self) -> Any:
        return getattr(self._oracle, "trusting_update", self._oracle.update)

    @cached_property
    def _plain(self) -> plain.Plain | None:
        """The same policy in plain floats, for one lane of the preset that has it."""
        return plain.Plain(self, self._oracle) if self.rules.value_prices else None

    @cached_property
    def _kept(self) -> NDArray[np.bool_] | None:
        """Arms that are not retired, or None when all are in play."""
        if not self.retired:
            return None
        kept = np.ones(self.arms, dtype=bool)
        kept[list(self.retired)] = False
        return kept

    def init(self, lanes: int = 1) -> State:
        """The state before the first round."""
        if isinstance(lanes, bool) or not isinstance(lanes, int | np.integer) or lanes < 1:
            raise ValueError(f"lanes must be a whole number of at least 1, got {lanes!r}")
        dual = (VALUED if self.rules.value_prices else ENTROPIC).init(lanes, self.resources)
        return State(
            books=new_books(lanes, self.resources, dual),
            oracle=self._oracle.init(lanes),
            residuals=frozen(first_residuals(lanes, 1 + self.resources)),
            stage=two_stage.first_stage(self, lanes),
        )

    def quote(self, state: State) -> Quote:
        """Prices, pace and learning rate of the next decision."""
        self._lanes(state)
        if self.rules.value_prices:
            return self._quote_in_value(state)
        terms = two_stage.terms(self, state.stage)
        prices = ENTROPIC.prices(state.dual, state.stage.radius, terms.scale)
        return Quote(prices, terms.pace, terms.gamma, np.ones(prices.shape[0]))

    def _quote_in_value(self, state: State) -> Quote:
        problem, rounds, learnt = self.problem, state.books[:, 0], state.books[:, 3]
        rho, blocking = paces_of(problem, state)
        prices = VALUED.prices(state.dual, state.value / np.maximum(rounds, 1.0), problem.rho)
        direction = lagrangian_direction(prices)
        covariance = residual_covariance(state.residuals, learnt)
        spread = np.vecdot(direction, np.matmul(covariance, direction[..., None])[..., 0])
        noise = np.maximum(spread, NOISE_MIN)
        if self.gamma == "auto":
            parameters = self._oracle.dimension * self._oracle.blocks
            gone = np.minimum(forgotten(state.oracle), learnt)
            gamma = practical_gamma(self.arms + 1, rounds, noise, parameters, learnt, gone)
        else:
            gamma = np.full((rho.shape[0], 1), float(self.gamma))
        return Quote(prices, rho, gamma, noise, blocking)

    def decide(
        self,
        state: State,
        features: ArrayLike,
        uniforms: ArrayLike,
        exclude: ArrayLike | None = None,
        free: ArrayLike | None = None,
        holds: ArrayLike | None = None,
    ) -> Choice:
        """Choose an arm for each of n requests; the state does not advance.

        features: (n, candidates, dimension) or, for "per_arm", (n, dimension). uniforms: (n,) in [0, 1).
        exclude: (n, candidates) bool, candidates not to play (also the padding of ragged requests).
        free: (d,) what the caller's ledger has left, in its units; without it the policy's own account decides.
        holds: (candidates, d) or (n, candidates, d) where a request's holds differ from the policy's max costs.
        """
        lanes = self._lanes(state)
        if exclude is None and holds is None and self._plain is not None:
            choice = self._plain.decide(state, features, uniforms, free)
            if choice is not None:
                return choice
        x = self._checked_features(features)
        rows = x.shape[0]
        if lanes not in (1, rows):
            raise ValueError(f"a state of {lanes} lanes decides {lanes} requests at once, got {rows}")
        lifted = self.lifted(x)
        predictions = self._predict(state.oracle, lifted)
        candidates = predictions.shape[1]
        request = decision.Request(
            predictions=predictions,
            leverage=self._spread(state.oracle, lifted) if self.rules.value_prices else None,
            rounds=state.round if rows == lanes else state.round + np.arange(rows),
            asked=self._asked(exclude, rows, candidates),
            holds=self._holds(holds, rows, candidates),
            uniforms=checked_uniforms(uniforms, rows),
        )
        quote = self.quote(state)
        weights, arm, reason = decision.draw(self, state, quote, request, self._free(state, free))
        probability = weights[np.arange(rows), arm]
        ticket = self._ticket(x, quote, request, arm)
        thought = Thought(frozen(predictions), quote.prices, quote.gamma)
        return Choice(frozen(arm), frozen(probability), frozen(weights), reason, ticket, thought)

    def look_ahead(self, state: State) -> None:
        """Work out what the next decision needs of the state alone, for who has the time now and will not have it then.

        Answers are the same with or without it, for this state and any other.
        """
        if self._lanes(state) == 1 and self._plain is not None:
            self._plain.look_ahead(state)

    def predict(self, state: State, features: ArrayLike) -> Array:
        """Reward, then costs in max costs, predicted for every candidate: (n, candidates, 1 + d)."""
        self._lanes(state)
        return np.asarray(self._predict(state.oracle, self.lifted(self._checked_features(features))))

    def _ticket(self, x: Array, quote: Quote, request: decision.Request, arm: Integers) -> Ticket:
        """What to keep of n decisions for these arms."""
        rows = arm.shape[0]
        index = np.arange(rows)
        predicted = request.predictions[index, arm]
        chosen = x[index, arm] if self.model == "shared" else x[:, 0].copy()
        hold = request.holds[0, arm] if request.holds.shape[0] == 1 else request.holds[index, arm]
        null = arm == NULL_ARM
        if null.any():
            real = ~null[:, None]
            predicted, chosen, hold = predicted * real, chosen * real, hold * real
        costs = np.maximum(predicted[:, 1:], 0.0) if self.rules.value_prices else predicted[:, 1:]
        return Ticket.of(
            arm=arm,
            features=frozen(chosen),
            reward=predicted[:, 0],
            costs=costs,
            rho=quote.rho,
            value=np.maximum(predicted[:, 0], 0.0),
            round=request.rounds,
            hold=hold,
            context=two_stage.context(self, request.rounds, x),
        )

    def changes(self, state: State) -> Integers:
        """How often the oracle has begun anew because the world has changed, (lanes,); 0 if it does not watch."""
        return np.full(self._lanes(state), changes(state.oracle), dtype=np.int64)

    def commit(self, state: State, ticket: Ticket) -> State:
        """Count n decisions, null ones too: rounds advance, prices move at predicted costs, holds are taken."""
        lanes = self._lanes(state)
        rows = checked_ticket(ticket, lanes, self.resources, self.dimension)
        if lanes == 1 and self._plain is not None:
            return self._plain.commit(state, ticket)
        for part in folded(rows, lanes):
            one = taken(ticket, part)
            state = state.booked(
                dual=self._dual_step(state, one),
                round=np.ones(lanes),
                opened=one.arm != NULL_ARM,
                value=one.value,
                held=one.hold,
                predicted=one.costs,
            )._replace(stage=two_stage.committed(self, state.stage, one))
        return state

    def settle(
        self, state: State, tickets: Ticket, rewards: ArrayLike, costs: ArrayLike, learn: ArrayLike = True
    ) -> State:
        """Replace predictions by outcomes, in any order, at any time: oracles learn where `learn`, prices are trued up.

        rewards (n,), costs (n, d) in the caller's units; a null decision has none (0).
        """
        lanes = self._lanes(state)
        rows = checked_ticket(tickets, lanes, self.resources, self.dimension)
        reward = finite("rewards", rewards, (rows,))
        cost = finite("costs", costs, (rows, self.resources))
        real = tickets.arm != NULL_ARM
        weight = (real & checked_learn(learn, rows)).astype(np.float64)
        if rows == lanes == 1 and real[0] and self._plain is not None and self._plain.newton:
            return self._plain.settle(state, tickets, float(reward[0]), cost[0].tolist(), bool(weight[0]))
        target = self._targets(reward, cost)
        released = self._released(state, tickets, cost * real[:, None], target, weight, settled=real)
        return self._taught(released, tickets, target, weight)

    def teach(self, state: State, tickets: Ticket, rewards: ArrayLike, costs: ArrayLike) -> State:
        """Let the oracle learn outcomes of decisions that were settled with learn=False: accounts and prices stay.

        For a reward that comes after the costs, and for catching up with outcomes that others have settled.
        """
        rows = checked_ticket(tickets, self._lanes(state), self.resources, self.dimension)
        reward = finite("rewards", rewards, (rows,))
        cost = finite("costs", costs, (rows, self.resources))
        weight = (tickets.arm != NULL_ARM).astype(np.float64)
        counted = state.booked(learnt=_per_lane(weight, state.books.shape[0]))
        return self._taught(counted, tickets, self._targets(reward, cost), weight)

    def _taught(self, state: State, tickets: Ticket, target: Array, weight: Array) -> State:
        """The oracle learns the rows that have weight, and how far the predictions on their tickets were off."""
        lanes = state.books.shape[0]
        block = np.maximum(tickets.arm, 0) if self._oracle.blocks > 1 else None
        oracle = self._update(state.oracle, self.lifted(tickets.features), target, block, weight)
        surprise = target.copy()
        surprise[:, 0] -= tickets.reward
        surprise[:, 1:] -= tickets.costs
        surprise *= weight[:, None]
        outer = surprise[:, :, None] * surprise[:, None, :]
        if outer.shape[0] == lanes:
            return State(state.books, oracle, frozen(state.residuals + outer), state.stage)
        # The residuals first, so that many rows at once are added in the order of as many single ones, to the last bit.
        terms = np.concatenate([state.residuals, outer]).reshape(-1, lanes, *outer.shape[1:])
        return State(state.books, oracle, frozen(terms.sum(axis=0)), state.stage)

    def cancel(self, state: State, tickets: Ticket) -> State:
        """Void n decisions: their holds and predicted costs go back, nothing is learnt."""
        rows = checked_ticket(tickets, self._lanes(state), self.resources, self.dimension)
        nothing = np.zeros((rows, self.resources))
        none = np.zeros(rows, dtype=bool)
        target = np.zeros((rows, 1 + self.resources))
        return self._released(state, tickets, nothing, target, np.zeros(rows), settled=none)

    def _targets(self, reward: Array, cost: Array) -> Array:
        """What the oracle learns, (n, 1 + d): the reward, then the costs in max costs."""
        target = np.empty((reward.shape[0], 1 + self.resources))
        target[:, 0] = reward
        np.divide(cost, self.problem.unit, out=target[:, 1:])
        return target

    def correct(self, state: State, tickets: Ticket, costs: ArrayLike) -> State:
        """Signed costs (n, d) on top of what was settled or cancelled: prices move, oracles do not learn."""
        lanes = self._lanes(state)
        rows = checked_ticket(tickets, lanes, self.resources, self.dimension)
        cost = finite("costs", costs, (rows, self.resources))
        for part in folded(rows, lanes):
            dual = self._dual_correction(state, cost[part] / self.problem.unit)
            state = state.booked(dual=dual, spent=cost[part])
        return state

    def _released(
        self,
        state: State,
        tickets: Ticket,
        costs: Array,
        target: Array,
        weight: Array,
        settled: NDArray[np.bool_],
    ) -> State:
        """The decisions are no longer open: holds and predictions go, prices move by cost minus prediction."""
        lanes = state.books.shape[0]
        waited = np.maximum(state.books[:, 0] - 1.0 - tickets.round.reshape(-1, lanes), 0.0).ravel() * settled
        if lanes == 1 and self._plain is not None:
            released = self._plain.release(state, tickets, costs.tolist())
            return released.booked(settled=settled.sum(), learnt=weight.sum(), waited=waited.sum())
        for part in folded(tickets.arm.shape[0], lanes):
            one, cost = taken(tickets, part), costs[part]
            state = state.booked(
                dual=self._dual_replacement(state, one, cost / self.problem.unit),
                opened=-1.0 * (one.arm != NULL_ARM),
                settled=settled[part],
                learnt=weight[part],
                spent=cost,
                held=-one.hold,
                predicted=-one.costs,
                **({"waited": waited[part]} if self.rules.value_prices else {}),
            )._replace(stage=two_stage.returned(self, state.stage, one, target[part], weight[part]))
        return state

    def _dual_step(self, state: State, ticket: Ticket) -> DualState:
        """A decision at its predicted cost, or what it blocks, in max costs, against its pace."""
        if not self.rules.value_prices:
            return self._entropic_move(state, ticket.costs - ticket.rho)
        costs, blocking = ticket.costs, paces_of(self.problem, state)[1]
        if blocking is not None:
            costs = np.maximum(costs, ticket.hold / self.problem.unit * blocking)
        return VALUED.step(state.dual, (costs - ticket.rho) / self.problem.rho)

    def _dual_replacement(self, state: State, ticket: Ticket, costs: Array) -> DualState:
        """The cost of a decision is known, in max costs, in place of the predicted one."""
        if self.rules.value_prices:
            before, after = (ticket.costs - ticket.rho) / self.problem.rho, (costs - ticket.rho) / self.problem.rho
            return VALUED.replace(state.dual, before, after)
        return self._entropic_move(state, costs - ticket.costs)

    def _dual_correction(self, state: State, difference: Array) -> DualState:
        """A cost turned out that much higher than what the prices have moved by."""
        if self.rules.value_prices:
            return VALUED.correct(state.dual, difference / self.problem.rho)
        return self._entropic_move(state, difference)

    def _entropic_move(self, state: State, excess: Array) -> DualState:
        terms = two_stage.terms(self, state.stage)
        return ENTROPIC.move(state.dual, excess, terms.scale, terms.dual_rate)

    def learn(self, state: State, features: ArrayLike, arm: ArrayLike, rewards: ArrayLike, costs: ArrayLike) -> State:
        """Undelayed loops: for each row in order exactly commit, then settle."""
        lanes = self._lanes(state)
        if self._plain is not None:
            learnt = self._plain.learn(state, features, arm, rewards, costs)
            if learnt is not None:
                return learnt
        x = self._checked_features(features)
        rows = x.shape[0]
        arms = checked_arms(arm, rows, (x.shape[1] if self.model == "shared" else self.arms) - 1)
        reward = finite("rewards", rewards, (rows,))
        cost = finite("costs", costs, (rows, self.resources))
        if rows % lanes:
            raise ValueError(f"rows must be a multiple of the state's {lanes} lanes, got {rows}")
        for part in folded(rows, lanes):
            predictions = self._predict(state.oracle, self.lifted(x[part]))
            request = decision.Request(
                predictions=predictions,
                leverage=None,
                rounds=state.round,
                asked=self._asked(None, lanes, predictions.shape[1]),
                holds=self._holds(None, lanes, predictions.shape[1]),
                uniforms=_NO_UNIFORMS,
            )
            ticket = self._ticket(x[part], self.quote(state), request, arms[part])
            state = self.settle(self.commit(state, ticket), ticket, reward[part], cost[part])
        return state

    def refresh_due(self, state: State) -> bool:
        """Whether `refresh` has something to do: stage one has ended and all its decisions are settled or cancelled."""
        self._lanes(state)
        return two_stage.due(self, state.stage, state.round)

    def refresh(self, state: State) -> State:
        """End stage one: estimate OPT, set the radius, start Algorithm 1 on what is left."""
        self._lanes(state)
        return two_stage.refresh(self, state)

    def adopt(self, older: SquareCBwK, state: State) -> State:
        """Carry a state over from an older policy: other budgets, horizon, max costs of new arms, arms added, retired.

        Nothing learnt is lost; prices per unit of cost stay as they were and move on from there.
        """
        self._check_successor(older)
        prices = older.quote(state).prices
        stage = two_stage.adopt(self, older, state.stage)
        oracle = state.oracle
        if self._oracle.blocks > older._oracle.blocks:
            oracle = older._oracle.resize(oracle, self._oracle.blocks)
        if self.rules.value_prices:
            dual = VALUED.rescale(state.dual, self.problem.rho / older.problem.rho)
        else:
            dual = ENTROPIC.restore(prices, stage.radius, two_stage.scale(stage))
        return state.booked(dual=dual)._replace(oracle=oracle, stage=stage)

    def _check_successor(self, older: SquareCBwK) -> None:
        if not isinstance(older, SquareCBwK):
            raise ValueError(f"older must be a SquareCBwK, got {type(older).__name__}")
        for name in ("dimension", "resources", "model", "preset", "oracle", "link", "forgetting"):
            if getattr(self, name) != getattr(older, name):
                raise ValueError(f"{name} cannot change, was {getattr(older, name)!r}, got {getattr(self, name)!r}")
        if self.arms < older.arms:
            raise ValueError(f"arms are retired, not removed: there were {older.arms}, got {self.arms}")
        if older.arms and self.max_cost[: older.arms] != older.max_cost:
            raise ValueError("the max costs of existing arms cannot change")
        if (self.problem.unit != older.problem.unit).any():
            raise ValueError("a new arm cannot have a larger max cost than all before it")

    def encode(self, state: State) -> bytes:
        """The state as versioned, checksummed bytes; only this very configuration decodes them."""
        self._lanes(state)
        return snapshot.encode(state, fingerprint=repr(self))

    def decode(self, data: bytes) -> State:
        """The state of `encode`; a ValueError if the bytes are damaged or belong to another policy."""
        state: State = snapshot.decode(data, self.init(), fingerprint=repr(self))
        return state

    def encode_model(self, state: State) -> bytes:
        """What the state has learnt, as bytes that any policy of the same shape decodes, whatever its budgets."""
        self._lanes(state)
        return models.encode(self, state)

    def decode_model(self, data: bytes) -> models.Model:
        """The model of `encode_model`, for `model.with_model`; a ValueError if it is damaged or of another shape."""
        return models.decode(self, data)

    def _lanes(self, state: State) -> int:
        """How many lanes the state has, if it is one for as many resources."""
        if not isinstance(state, State):
            raise ValueError(f"state must be a State of this policy, got {type(state).__name__}")
        if state.books.shape[1] != self._columns:
            raise ValueError(f"state must be one for {self.resources} resources, got one for {state.resources}")
        return len(state.books)

    @cached_property
    def _columns(self) -> int:
        return int(layout(self.resources)["predicted"].stop)

    def _checked_features(self, features: ArrayLike) -> Array:
        """(n, candidates, dimension) for "shared", (n, 1, dimension) for "per_arm"."""
        if self.model == "per_arm":
            return finite("features", features, (None, self.dimension))[:, None, :]
        x = finite("features", features, (None, None, self.dimension))
        if x.shape[1] < 1:
            raise ValueError("features must have at least one candidate, got none")
        return x

    def lifted(self, x: Array) -> Array:
        """Features with the constant one appended where the preset has it."""
        if not self.rules.constant:
            return x
        lifted = np.empty((*x.shape[:-1], self.dimension + 1))
        lifted[..., :-1] = x
        lifted[..., -1] = 1.0
        return lifted

    def _asked(self, exclude: ArrayLike | None, rows: int, candidates: int) -> NDArray[np.bool_] | None:
        """Candidates that are neither excluded nor retired; None when all are."""
        kept = self._kept if candidates == self.arms else None
        if exclude is None:
            return None if kept is None else np.broadcast_to(kept, (rows, candidates))
        excluded = checked_exclude(exclude, rows, candidates)
        return ~excluded if kept is None else ~excluded & kept

    def _holds(self, holds: ArrayLike | None, rows: int, candidates: int) -> Array:
        """(1 or n, candidates, d) in the caller's units."""
        if holds is not None:
            return checked_holds(holds, rows, candidates, self.problem.unit)
        if candidates == self.arms:
            return self.problem.hold[None]
        return np.broadcast_to(self.problem.unit, (1, candidates, self.resources))

    def _free(self, state: State, free: ArrayLike | None) -> Array:
        """What is left to hold, (lanes, d): by the caller's ledger, or by the policy's own account."""
        if free is None:
            return np.asarray(np.asarray(self.problem.budget) - state.spent - state.held)
        return checked_free(free, len(state.books), self.resources)


def _per_lane(flags: NDArray[np.bool_], lanes: int) -> Integers:
    return np.asarray(flags.reshape(-1, lanes).sum(axis=0))
