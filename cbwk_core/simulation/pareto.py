"""ParetoBandit, a router of LLM requests with a budget pacer, as a policy of the suite.

This module needs the package paretobandit, which `cbwk[bench]` installs. The policy and the pacer learn in place, so an
older state cannot be used again. The runner never does that.

ParetoBandit knows one budget, one context per request and a price of every arm that is declared and not learnt. Its
penalty of an arm is the dual variable times the logarithm of that price, scaled to [0, 1]; here the price is the max
cost of the arm. So it fits where there is one resource and max costs differ from arm to arm. It has no null arm: it
plays whatever the ledger can still pay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, Integers, Mask, finite
from cbwk_core.baselines import account as accounts
from cbwk_core.baselines.account import Account
from cbwk_core.baselines.baseline import Baseline
from cbwk_core.baselines.linear import one_hot
from cbwk_core.baselines.policy import Learn
from cbwk_core.problem import Problem
from cbwk_core.ticket import NULL_ARM, Choice, Ticket

IS_INSTALLED = find_spec("pareto_bandit") is not None


class ParetoState(NamedTuple):
    """The account, and one bandit and one pacer per lane."""

    account: Account
    bandits: tuple[Any, ...]
    pacers: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class ParetoBandit(Baseline):
    """Disjoint LinUCB with a budget pacer, both with the package's own settings for a start without priors."""

    problem: Problem

    model = "per_arm"

    def __post_init__(self) -> None:
        if self.problem.resources != 1:
            raise ValueError(f"ParetoBandit has one budget, got {self.problem.resources}")

    @cached_property
    def _names(self) -> list[str]:
        return [str(arm) for arm in range(self.arms)]

    @cached_property
    def _declared(self) -> Array:
        """The declared cost of each arm, (arms,)."""
        return self.problem.hold[:, 0]

    @cached_property
    def _normalised(self) -> dict[str, float]:
        """The logarithm of each declared cost, scaled to [0, 1]."""
        normalise = import_module("pareto_bandit.costs").log_normalize_cost
        floor, ceiling = float(self._declared.min()), float(self._declared.max())
        return {
            name: normalise(float(cost), floor=floor, ceiling=ceiling)
            for name, cost in zip(self._names, self._declared, strict=True)
        }

    def init(self, lanes: int = 1) -> ParetoState:
        """Return the state before the first round."""
        settings = import_module("pareto_bandit.config").BEST_K3_TABULA_RASA_HPARAMS
        bandit, pacer = import_module("pareto_bandit").DisjointLinUCBPolicy, import_module("pareto_bandit.budget_pacer")
        bandits = tuple(
            bandit(
                self._names,
                dim=self.problem.dimension + 1,
                alpha=settings["alpha"],
                forgetting_factor=settings["forgetting_factor"],
                seed=lane,
            )
            for lane in range(lanes)
        )
        pace = self.problem.budget[0] / self.problem.horizon
        pacers = tuple(pacer.BudgetPacer(target_avg_spend_usd=pace) for _ in range(lanes))
        return ParetoState(accounts.new_account(self.problem, lanes), bandits, pacers)

    def decide(self, state: ParetoState, features: ArrayLike, uniforms: ArrayLike) -> Choice:
        """Return the arm with the best penalised upper bound of each lane; null only if no arm can be paid."""
        del uniforms
        lanes = len(state.bandits)
        x = finite("features", features, (lanes, self.problem.dimension))
        allowed = accounts.playable(self.problem, state.account)
        column: Integers = np.full(lanes, self.arms)
        for lane in np.flatnonzero(allowed.any(axis=1)):
            names = self._within_ceiling(state.pacers[lane], allowed[lane])
            penalties = state.pacers[lane].get_extra_cost_penalties({name: self._normalised[name] for name in names})
            row = np.append(x[lane], 1.0)
            column[lane] = int(state.bandits[lane].select_arm(row, candidates=names, cost_penalties=penalties)[0])
        no_predictions = np.zeros((lanes, self.arms, 1 + self.resources))
        return self.answer(state, x, no_predictions, allowed, column, one_hot(column, self.arms + 1))

    def _within_ceiling(self, pacer: Any, allowed: Mask) -> list[str]:
        """Return the affordable arms below the pacer's ceiling on declared costs, or all affordable arms if none is."""
        ceiling = pacer.get_cost_ceiling_per_1k(float(self._declared.max()))
        below = allowed if ceiling is None else allowed & (self._declared <= ceiling)
        return [self._names[arm] for arm in np.flatnonzero(below if below.any() else allowed)]

    def commit(self, state: ParetoState, ticket: Ticket) -> ParetoState:
        """Return the state after the round is counted and the max cost of the arm is held."""
        lanes = len(state.bandits)
        for row in np.flatnonzero(ticket.arm != NULL_ARM):
            state.bandits[row % lanes].mark_selected(self._names[ticket.arm[row]])
        return state._replace(account=accounts.committed(state.account, ticket.arm))

    def settle(
        self, state: ParetoState, tickets: Ticket, rewards: ArrayLike, costs: ArrayLike, learn: Learn = True
    ) -> ParetoState:
        """Return the state after the costs are booked. The bandits learn rewards, clipped to [0, 1], in place."""
        rows, lanes = tickets.arm.size, len(state.bandits)
        y, c = finite("rewards", rewards, (rows,)), finite("costs", costs, (rows, self.resources))
        learnt = np.broadcast_to(np.asarray(learn), (rows,))
        for row in np.flatnonzero(tickets.arm != NULL_ARM):
            state.pacers[row % lanes].observe(float(c[row, 0]))
            if learnt[row]:
                reward = min(max(float(y[row]), 0.0), 1.0)
                name, x = self._names[tickets.arm[row]], np.append(tickets.features[row], 1.0)
                state.bandits[row % lanes].update(name, x, reward, advance_time=False)
        return state._replace(account=accounts.settled(state.account, tickets.arm, c))

    def cancel(self, state: ParetoState, tickets: Ticket) -> ParetoState:
        """Return the state after the holds are released. Nothing is learnt."""
        return state._replace(account=accounts.cancelled(state.account, tickets.arm))
